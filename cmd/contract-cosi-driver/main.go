// Command contract-cosi-driver serves COSI on a unix socket, next to the
// upstream COSI sidecar.
//
//	contract-cosi-driver [serve] --config FILE [flags]   serve until SIGTERM
//	contract-cosi-driver check [flags]                   probe a running driver
//	contract-cosi-driver check --config FILE [--trial]   try a configuration's backends
//	contract-cosi-driver journal export|import [flags]   save the journal, or take in what was saved
//	contract-cosi-driver contracts|buckets|keys [flags]  list what there is, and how it is
//	contract-cosi-driver audit [--fix] [flags]           find what is on one side only, service or journal
//	contract-cosi-driver rotate [flags]                  issue new keys beside old ones
//	contract-cosi-driver version                         print the version
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
)

const defaultEndpoint = "unix:///var/lib/cosi/cosi.sock"

// gcPercent lets the heap, of a few MiB, grow more than the collector's default
// would: under load it would run dozens of times a second. GOGC overrides it.
const gcPercent = 300

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err == nil {
		return
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "contract-cosi-driver:", text)
	}
	coded := exit{status: 1}
	_ = errors.As(err, &coded)
	os.Exit(coded.status)
}

// run is the program: args without the program's name. It returns when ctx
// ends, or with the first fault.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	command := "serve"
	if len(args) > 0 && len(args[0]) > 0 && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	switch command {
	case "serve":
		return serve(ctx, args, stdout, stderr)
	case "check":
		return check(ctx, args, stdout, stderr)
	case "journal":
		return transfer(ctx, args, stdout, stderr)
	case "contracts", "buckets", "keys", "audit", "rotate":
		return ask(ctx, admin.Command(command), args, stdout, stderr)
	case "version":
		_, err := fmt.Fprintln(stdout, version())
		return err
	case "help":
		return serve(ctx, []string{"--help"}, stdout, stderr)
	}
	return fmt.Errorf("unknown command %q; commands are serve, check, journal, contracts, buckets, keys, audit, rotate and version", command)
}

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("contract-cosi-driver serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := driver.Options{Version: version(), Versions: []driver.Version{driver.V1alpha1, driver.V1alpha2}}
	mode := fileMode(0o660)
	file := flags.String("config", "", "the configuration `file` (required)")
	validate := flags.Bool("validate", false, "check the configuration, print what is in effect with secrets redacted, and end")
	endpointFlag(flags, &o.Socket.Endpoint)
	flags.Var((*versions)(&o.Versions), "cosi-versions", "COSI `versions` that are served, separated by commas")
	flags.Var(&mode, "socket-mode", "permission bits of the socket, in `octal`")
	flags.StringVar(&o.Socket.Group, "socket-group", "", "`group` of the socket, by name or number")
	flags.StringVar(&o.HTTPAddress, "http-endpoint", "", "`address` of /metrics, /healthz and /readyz; empty turns them off")
	flags.DurationVar(&o.Grace, "grace", 10*time.Second, "how long a stop waits for calls under way")
	verbosity := flags.Int("v", 0, "log `level`: 0 life cycle and failed calls, 2 all calls, 4 steps")
	format := textLog
	flags.Var(&format, "log-format", "how lines of the log are written, `text` or json")
	if err := parse(flags, args); err != nil || helped(flags) {
		return err
	}
	o.Socket.Mode, o.ConfigFile = fs.FileMode(mode), *file
	if *file == "" {
		return errors.New("--config is missing; see contract-cosi-driver serve --help")
	}
	c, err := config.Load(*file, driver.Types())
	if err != nil {
		return err
	}
	if *validate {
		return c.Print(stdout)
	}
	return driver.Run(klog.NewContext(ctx, format.logger(*verbosity, stderr)), c, o)
}

// endpointFlag takes the sidecar's own variable as the default, as the
// specification asks (v1alpha1 spec.md, "Configuration and Operation").
func endpointFlag(flags *flag.FlagSet, endpoint *string) {
	def := os.Getenv("COSI_ENDPOINT")
	if def == "" {
		def = defaultEndpoint
	}
	flags.StringVar(endpoint, "endpoint", def, "the driver's socket, unix:///path.sock; the default is $COSI_ENDPOINT")
}

// parse is Parse for flags that are the whole command line.
func parse(flags *flag.FlagSet, args []string) error {
	flags.Bool("help", false, "print this text")
	flags.Bool("h", false, "print this text")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see %s --help", flags.Arg(0), flags.Name())
	}
	if helped(flags) {
		flags.Usage()
	}
	return nil
}

func helped(flags *flag.FlagSet) bool {
	return flags.Lookup("help").Value.String() == "true" || flags.Lookup("h").Value.String() == "true"
}

// fileMode is a flag in octal.
type fileMode fs.FileMode

func (m *fileMode) String() string { return fmt.Sprintf("%#o", uint32(*m)) }

func (m *fileMode) Set(s string) error {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return errors.New("not permission bits in octal, such as 0660")
	}
	*m = fileMode(n)
	return nil
}

// versions is a flag that lists COSI versions.
type versions []driver.Version

func (v *versions) String() string {
	out := make([]string, len(*v))
	for i, version := range *v {
		out[i] = string(version)
	}
	return strings.Join(out, ",")
}

func (v *versions) Set(s string) error {
	var out versions
	for name := range strings.SplitSeq(s, ",") {
		version := driver.Version(name)
		if version != driver.V1alpha1 && version != driver.V1alpha2 {
			return fmt.Errorf("%q is neither %s nor %s", name, driver.V1alpha1, driver.V1alpha2)
		}
		if slices.Contains(out, version) {
			return fmt.Errorf("%s is named twice", version)
		}
		out = append(out, version)
	}
	*v = out
	return nil
}

// release is written by the linker into a released build.
var release string

func version() string {
	if release != "" {
		return release + " " + runtime.Version()
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value
		}
	}
	return v + " " + info.GoVersion
}
