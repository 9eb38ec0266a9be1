package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/test/guide"
)

// shown is how many lines of a command's output are printed; the rest is counted.
const shown = 14

// walker goes through the scenarios, and stops at the first fault.
type walker struct {
	*node
	ctx  context.Context
	rows []row

	blocks []guide.Block   // the guides' that are for a node
	ran    map[string]bool // lines

	note []string // of the scenario that runs
}

// row is a line of the table at the end.
type row struct {
	scenario string
	took     time.Duration
	notes    string
}

// failure is what a scenario panics with, to end it from wherever it is.
type failure struct{ error }

func (w *walker) fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// notef adds to the scenario's line in the table.
func (w *walker) notef(format string, args ...any) {
	w.note = append(w.note, fmt.Sprintf(format, args...))
}

// sh runs a line as a person types it, prints both, and returns what it prints. It
// has to succeed.
func (w *walker) sh(line string) string {
	out, err := w.try(line)
	if err != nil {
		w.fail("%s: %w", line, err)
	}
	return out
}

// refused is sh for a line that has to fail, with the text in what it prints.
func (w *walker) refused(line, text string) {
	out, err := w.try(line)
	if err == nil || !strings.Contains(out, text) {
		w.fail("%s: should have failed with %q", line, text)
	}
}

func (w *walker) try(line string) (string, error) {
	w.ran[line] = true
	fmt.Println("  $", line)
	out, err := w.quiet(line)
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	for i, l := range lines {
		if i == shown && len(lines) > shown+1 {
			fmt.Printf("    ... %d more lines\n", len(lines)-shown)
			break
		}
		if l != "" {
			fmt.Println("   ", l)
		}
	}
	return out, err
}

// quiet runs a line at the top of a copy of what the guides need of the repository,
// and prints nothing.
func (w *walker) quiet(line string) (string, error) {
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-eo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = w.path("repository"), w.environment()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// get is what a line prints that is only looked at.
func (w *walker) get(line string) string {
	out, err := w.quiet(line)
	if err != nil {
		w.fail("%s: %w: %s", line, err, out)
	}
	return strings.TrimSpace(out)
}

// within waits until the line succeeds, and returns how long that took.
func (w *walker) within(limit time.Duration, line string) time.Duration {
	fmt.Println("  $ until", line+"; do sleep 1; done")
	from := time.Now()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		out, err := w.quiet(line)
		if err == nil {
			return time.Since(from)
		}
		if time.Since(from) > limit || w.ctx.Err() != nil {
			w.fail("%s: not within %s: %s", line, limit, out)
		}
	}
}
