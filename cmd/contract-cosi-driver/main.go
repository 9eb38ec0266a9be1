// Command contract-cosi-driver serves COSI on a unix socket, next to the
// upstream COSI sidecar, and answers the commands of those who run it. Its own help lists the
// commands, each with examples.
package main

import (
	"context"
	"errors"
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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

const defaultEndpoint = "unix:///var/lib/cosi/cosi.sock"

func main() {
	if os.Getenv("GOGC") == "" {
		paceCollector()
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
	root := serve("contract-cosi-driver")
	root.Version = version()
	root.Long = "A COSI driver for object storage that is sold by contract. Without a command it serves."
	root.AddGroup(&cobra.Group{ID: asking, Title: "Ask a driver, also one that is stopped:"})
	root.AddCommand(
		serve("serve"), check(), transfer(), deliver(),
		ask(admin.Contracts), ask(admin.Buckets), ask(admin.Keys), ask(admin.Audit), ask(admin.Rotate), ask(admin.Revoke),
		&cobra.Command{Use: "version", Short: "Print the version", Args: arguments, RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(stdout, version())
			return err
		}},
	)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagFault)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if _, coded := errors.AsType[exit](err); err != nil && !coded && command.GroupID == asking {
		return exit{exitFault, err}
	}
	return err
}

// serve is the command that serves, also as the program itself.
func serve(use string) *cobra.Command {
	o := driver.Options{
		Version: version(), Versions: []driver.Version{driver.V1alpha1, driver.V1alpha2}, Grace: 10 * time.Second,
		Started: func(string) { go debug.FreeOSMemory() }, // much of what a start takes is of no further use
	}
	mode := fileMode(0o660)
	var validate bool
	var verbosity int
	c := &cobra.Command{
		Use: use, Short: "Serve COSI until SIGTERM", Args: arguments,
		Example: "  contract-cosi-driver serve --config driver.yaml --endpoint unix:///run/cosi/cosi.sock --http-endpoint :8080\n" +
			"  contract-cosi-driver serve --config driver.yaml --validate",
	}
	flags := c.Flags()
	configFlag(flags, &o.ConfigFile)
	flags.BoolVar(&validate, "validate", false, "check the configuration, print what is in effect with secrets redacted, and end")
	endpointFlag(flags, &o.Socket.Endpoint)
	flags.Var((*versions)(&o.Versions), "cosi-versions", "COSI `versions` that are served, separated by commas")
	flags.Var(&mode, "socket-mode", "permission bits of the socket, in `octal`")
	flags.StringVar(&o.Socket.Group, "socket-group", "", "`group` of the socket, by name or number")
	flags.StringVar(&o.HTTPAddress, "http-endpoint", "", "`address` of /metrics, /healthz and /readyz; empty turns them off")
	flags.Var((*age)(&o.Grace), "grace", "how long a stop waits for calls under way")
	flags.IntVarP(&verbosity, "v", "v", 0, "log `level`: 0 life cycle and failed calls, 2 all calls, 4 steps")
	format := textLog
	flags.Var(&format, "log-format", "how lines of the log are written, `text` or json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.Socket.Mode = fs.FileMode(mode)
		configuration, err := load(o.ConfigFile)
		if err != nil {
			return err
		}
		if validate {
			return configuration.Print(c.OutOrStdout())
		}
		return driver.Run(klog.NewContext(c.Context(), format.logger(verbosity, c.ErrOrStderr())), configuration, o)
	}
	return c
}

// defaultConfig is where the chart puts the configuration, so that a command in a
// pod of it needs no flag.
const defaultConfig = "/etc/contract-cosi-driver/config/config.yaml"

func configFlag(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, "config", defaultConfig, "the configuration `file`")
}

func load(file string) (*config.Config, error) {
	c, err := config.Load(file, driver.Types())
	if file == defaultConfig && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; say with --config where the configuration is", err)
	}
	return c, err
}

// arguments refuses what is no command of a command's own.
func arguments(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !c.HasSubCommands():
		return fmt.Errorf("unexpected argument %q; %s takes flags only", args[0], c.Name())
	}
	var known []string
	for _, sub := range c.Commands() {
		known = append(known, sub.Name())
	}
	return fmt.Errorf("unknown command %q; %s", args[0], settings.Suggest(args[0], known))
}

// flagFault names the flag that is nearest to one that there is not.
func flagFault(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	name := "--" + unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		name = "-" + short
	}
	return fmt.Errorf("unknown flag %s; %s", name, settings.Suggest(name, known))
}

// endpointFlag takes the sidecar's own variable as the default, as the
// specification asks (v1alpha1 spec.md, "Configuration and Operation").
func endpointFlag(flags *pflag.FlagSet, endpoint *string) {
	def := os.Getenv("COSI_ENDPOINT")
	if def == "" {
		def = defaultEndpoint
	}
	flags.StringVar(endpoint, "endpoint", def, "the driver's `socket`, unix:///path.sock; the default is $COSI_ENDPOINT")
}

// fileMode is a flag in octal.
type fileMode fs.FileMode

// Type implements pflag.Value.
func (m *fileMode) Type() string { return "octal" }

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

// Type implements pflag.Value.
func (v *versions) Type() string { return "versions" }

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
