package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// transfer saves the journal that a configuration names, or takes in what was
// saved: for a backup, and to move to another cluster or from one kind of
// journal to the other.
func transfer(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	const wanted = "say journal export or journal import"
	if len(args) == 0 {
		return errors.New(wanted)
	}
	direction := args[0]
	flags := flag.NewFlagSet("contract-cosi-driver journal "+direction, flag.ContinueOnError)
	flags.SetOutput(stderr)
	configFile := flags.String("config", "", "the configuration `file` (required)")
	var run func(*config.Config) error
	switch direction {
	case "export":
		output := flags.String("output", "", "the `file` to write, which must not exist; by default standard output")
		run = func(c *config.Config) error { return export(ctx, c, *output, stdout, stderr) }
	case "import":
		input := flags.String("input", "", "the `file` that an export has written (required)")
		run = func(c *config.Config) error { return takeIn(ctx, c, *input, stdout) }
	case "help", "-h", "--help":
		_, err := fmt.Fprintln(stdout, "contract-cosi-driver journal export --config FILE [--output FILE]\ncontract-cosi-driver journal import --config FILE --input FILE")
		return err
	default:
		return fmt.Errorf("unknown command journal %q; %s", direction, wanted)
	}
	if err := parse(flags, args[1:]); err != nil || helped(flags) {
		return err
	}
	if *configFile == "" {
		return fmt.Errorf("--config is missing; see %s --help", flags.Name())
	}
	if input := flags.Lookup("input"); input != nil && input.Value.String() == "" {
		return fmt.Errorf("--input is missing; see %s --help", flags.Name())
	}
	c, err := config.Load(*configFile, driver.Types())
	if err != nil {
		return err
	}
	return run(c)
}

// export writes to a file that only its owner can read, or to nothing: half an
// export is worse than none.
func export(ctx context.Context, c *config.Config, output string, stdout, stderr io.Writer) (err error) {
	j, err := driver.OpenJournal(ctx, c, metrics.New())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	const warning = "it holds secrets; keep it as you keep the keys themselves"
	if output == "" {
		n, err := journal.Export(ctx, j, c.Driver.Owner, stdout)
		if err == nil {
			_, err = fmt.Fprintf(stderr, "%d entries exported; %s\n", n, warning)
		}
		return err
	}
	file, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	n, err := journal.Export(ctx, j, c.Driver.Owner, file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(output))
	}
	_, err = fmt.Fprintf(stderr, "%d entries exported to %s; %s\n", n, output, warning)
	return err
}

func takeIn(ctx context.Context, c *config.Config, input string, stdout io.Writer) error {
	file, err := os.Open(input)
	if err != nil {
		return fmt.Errorf("--input: %w", err)
	}
	defer func() { _ = file.Close() }()
	imported, same, err := driver.Import(ctx, c, file)
	if err != nil {
		if imported > 0 {
			err = fmt.Errorf("%w (%d entries were imported before; it can be repeated)", err, imported)
		}
		return err
	}
	_, err = fmt.Fprintf(stdout, "%d entries imported, %d were there already\n", imported, same)
	return err
}
