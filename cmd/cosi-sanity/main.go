// Command cosi-sanity puts any COSI driver through the conformance suite of
// package sanity, over its socket.
//
//	cosi-sanity --endpoint unix:///run/cosi.sock [--config FILE] [flags]
//	cosi-sanity --list [--spec]
//
// It exits with 0 if nothing failed, 1 if a check did, and 2 if there is no
// verdict: the configuration is wrong, no driver answers, the set-up is not
// complete, or it was interrupted. Warnings do not count, but with --strict they
// do; what --baseline knows does not count.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/sanity"
)

// The exit statuses.
const (
	passed    = 0
	failed    = 1
	noVerdict = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cosi-sanity:", err)
	}
	os.Exit(status)
}

// run is the program; it returns its exit status and what there is to complain of.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return passed, nil
	case err != nil:
		return noVerdict, err
	case o.version:
		_, err := fmt.Fprintln(stdout, "cosi-sanity", version())
		return passed, err
	case o.list, o.spec:
		write := sanity.WriteList
		if o.spec {
			write = sanity.WriteSpec
		}
		if err := write(stdout); err != nil {
			return noVerdict, err
		}
		return passed, nil
	}
	report, err := sanity.Run(ctx, o.config)
	if report == nil {
		return noVerdict, err
	}
	write := map[string]func(io.Writer) error{
		"table": report.WriteTable, "json": report.WriteJSON, "junit": report.WriteJUnit, "badge": report.WriteBadge,
	}[o.output]
	if err := errors.Join(err, write(stdout)); err != nil {
		return noVerdict, err
	}
	switch {
	case report.Failed():
		return failed, nil
	case !report.Judged():
		return noVerdict, errNotReady
	}
	return passed, nil
}

var errNotReady = errors.New("there is no verdict: the set-up is not complete")

// version is that of the build.
func version() string {
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		return build.Main.Version
	}
	return "of an unknown version"
}

type options struct {
	config              sanity.Config
	output, baseline    string
	list, spec, version bool
}

// parse reads the file first and lets the flags change it.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{}
	var file string
	// The first pass only looks for the file; the second sets what is given.
	// What is wrong is said once.
	first := flags(&options{}, &file)
	first.SetOutput(stderr)
	if err := first.Parse(args); err != nil {
		return o, err
	}
	if first.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see cosi-sanity --help", first.Arg(0))
	}
	if file != "" {
		if err := o.config.Load(file); err != nil {
			return o, err
		}
	}
	second := flags(&o, &file)
	second.SetOutput(io.Discard)
	if err := second.Parse(args); err != nil {
		return o, err
	}
	if !slices.Contains([]string{"table", "json", "junit", "badge"}, o.output) {
		return o, fmt.Errorf("-o: %q is none of table, json, junit and badge", o.output)
	}
	if o.baseline != "" {
		var err error
		if o.config.Baseline, err = sanity.LoadBaseline(o.baseline); err != nil {
			return o, fmt.Errorf("--baseline: %w", err)
		}
	}
	return o, nil
}

func flags(o *options, file *string) *flag.FlagSet {
	c := &o.config
	f := flag.NewFlagSet("cosi-sanity", flag.ContinueOnError)
	f.StringVar(file, "config", "", "a YAML `file` with any of the settings; flags override it")
	f.StringVar(&c.Endpoint, "endpoint", c.Endpoint, "the driver's socket, unix:///path.sock")
	f.Func("cosi-version", "`version` to check, v1alpha1 or v1alpha2; by default all that the socket serves", func(s string) error {
		c.Versions = []sanity.Version{sanity.Version(s)}
		return nil
	})
	f.Func("generation", "`generations` of v1alpha2 to judge, with commas between; by default the oldest and the newest that the driver's methods show", func(s string) error {
		c.Generations = nil
		for part := range strings.SplitSeq(s, ",") {
			c.Generations = append(c.Generations, sanity.Generation(strings.TrimSpace(part)))
		}
		return nil
	})
	parameter := func(name string, to *map[string]string, usage string) {
		f.Func(name, usage+", as `key=value`; may be given again", func(s string) error {
			key, value, ok := strings.Cut(s, "=")
			if !ok || key == "" {
				return errors.New("not key=value")
			}
			all := maps.Clone(*to)
			if all == nil {
				all = map[string]string{}
			}
			all[key], *to = value, all
			return nil
		})
	}
	parameter("bucket-parameter", &c.BucketParameters, "a parameter of a bucket class that works")
	parameter("other-bucket-parameter", &c.OtherBucketParameters, "a parameter of a valid bucket class that the first is not compatible with")
	parameter("access-parameter", &c.AccessParameters, "a parameter of an access class that works")
	parameter("other-access-parameter", &c.OtherAccessParameters, "a parameter of a valid access class that the first is not compatible with")
	parameter("read-only-parameter", &c.ReadOnlyParameters, "a parameter of an access class whose keys may only read (v1alpha1)")
	parameter("write-only-parameter", &c.WriteOnlyParameters, "a parameter of an access class whose keys may only write (v1alpha1)")
	f.BoolVar(&c.S3.Enabled, "s3", c.S3.Enabled, "use the issued keys, which makes objects for a moment")
	store := func(name string, to *string, usage string) {
		f.Func(name, usage+"; implies --s3", func(s string) error {
			*to, c.S3.Enabled = s, true
			return nil
		})
	}
	store("s3-endpoint", &c.S3.Endpoint, "the object store's `URL`, in place of the driver's")
	store("s3-ca", &c.S3.CAFile, "a PEM `file` of the authorities to trust the object store by")
	store("s3-region", &c.S3.Region, "the `region` to sign for, in place of the driver's")
	number := func(name string, to *int, usage string) {
		f.Func(name, usage, func(s string) error {
			n, err := strconv.Atoi(s)
			if err != nil || n < 2 {
				return errors.New("not a whole number of 2 or more")
			}
			*to = n
			return nil
		})
	}
	number("repeat", &c.Repeat, "how often a call that has to be idempotent is made, a `number` (default 3)")
	number("concurrency", &c.Concurrency, "how many callers there are at once, a `number` (default 50)")
	duration := func(name string, to *time.Duration, usage string) {
		f.Func(name, usage, func(s string) error {
			d, err := time.ParseDuration(s)
			if err != nil || d <= 0 {
				return errors.New("not a time of more than nothing, such as 30s or 2m")
			}
			*to = d
			return nil
		})
	}
	duration("call-timeout", &c.CallTimeout, "the `time` after which a call without an answer counts as hung (default 30s)")
	duration("settle", &c.Settle, "the `time` for which driver and object store may ask for patience (default 10s)")
	f.StringVar(&c.Inventory, "inventory", c.Inventory, "a shell `command` that prints what the service holds, one thing a line: it runs before and after")
	f.StringVar(&c.Objects, "bucket-objects", c.Objects, "a shell `command` that makes the Bucket objects which a driver reads, such as 'kubectl \"$1\" -f -'")
	f.StringVar(&c.Restart, "restart", c.Restart, "a shell `command` that restarts the driver, and ends")
	f.StringVar(&o.baseline, "baseline", "", "a `file` that -o json has written: what it has found before does not fail the run")
	selection := func(name string, to *[]string, usage string) {
		given := false
		f.Func(name, usage+" `checks`: numbers, letters of groups or names, with commas between; may be given again", func(s string) error {
			if !given {
				*to, given = nil, true
			}
			for part := range strings.SplitSeq(s, ",") {
				*to = append(*to, strings.TrimSpace(part))
			}
			return nil
		})
	}
	selection("run", &c.Run, "run only these")
	selection("skip", &c.Skip, "do not run these")
	f.BoolVar(&c.Strict, "strict", c.Strict, "take a SHOULD for a MUST")
	f.StringVar(&o.output, "o", "table", "the `output`: table, json, junit or badge")
	f.BoolVar(&o.list, "list", false, "print the checks, and end")
	f.BoolVar(&o.spec, "spec", false, "print the checks with each sentence that they stand on and its place, and end")
	f.BoolVar(&o.version, "version", false, "print the version, and end")
	return f
}
