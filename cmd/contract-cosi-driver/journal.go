package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// transfer saves the journal that a configuration names, or takes in what was
// saved: for a backup, and to move to another cluster or from one kind of
// journal to the other.
func transfer() *cobra.Command {
	c := &cobra.Command{
		Use: "journal", Short: "Save the journal, or take in what was saved", Args: arguments,
		RunE: func(*cobra.Command, []string) error { return errors.New("say journal export or journal import") },
	}
	var configFile, output, input string
	export := &cobra.Command{
		Use: "export", Short: "Write the journal to a file", Args: arguments,
		Example: "  contract-cosi-driver journal export --config driver.yaml --output journal.json",
		RunE: onConfig(&configFile, func(c *cobra.Command, configuration *config.Config) error {
			return export(c.Context(), configuration, output, c.OutOrStdout(), c.ErrOrStderr())
		}),
	}
	configFlag(export.Flags(), &configFile)
	export.Flags().StringVar(&output, "output", "", "the `file` to write, which must not exist; by default standard output")
	command := &cobra.Command{
		Use: "import", Short: "Read a journal from a file", Args: arguments,
		Example: "  contract-cosi-driver journal import --config driver.yaml --input journal.json",
		RunE: onConfig(&configFile, func(c *cobra.Command, configuration *config.Config) error {
			return importJournal(c.Context(), configuration, input, c.OutOrStdout())
		}),
	}
	configFlag(command.Flags(), &configFile)
	command.Flags().StringVar(&input, "input", "", "the `file` that an export has written (required)")
	_ = command.MarkFlagRequired("input") // fails for a flag that there is not
	c.AddCommand(export, command)
	return c
}

// onConfig is a command's work on a configuration.
func onConfig(file *string, do func(*cobra.Command, *config.Config) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		configuration, err := load(*file)
		if err != nil {
			return err
		}
		return do(c, configuration)
	}
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

func importJournal(ctx context.Context, c *config.Config, input string, stdout io.Writer) error {
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
