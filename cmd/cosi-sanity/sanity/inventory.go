package sanity

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// takeInventory runs the user's command and returns its lines in order.
func (c Config) takeInventory(ctx context.Context) ([]string, error) {
	if c.Inventory == "" {
		return nil, nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", c.Inventory) //nolint:gosec // the user's own
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the command of --inventory: %w: %s", err, shorten(complaint.String()))
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		line = strings.Trim(line, " \t\r\n,") // the last of a list in JSON has no comma
		if strings.Trim(line, "[]{}") != "" { // nor is an empty list printed as others are
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// missing are the lines of one inventory that another has not.
func missing(in, from []string) []string {
	from = slices.Clone(from)
	var out []string
	for _, line := range in {
		if i := slices.Index(from, line); i >= 0 {
			from = slices.Delete(from, i, i+1)
		} else {
			out = append(out, line)
		}
	}
	return out
}

// compareInventories tells what the service holds more, and less, than before.
func (s *session) compareInventories(ctx context.Context) error {
	if s.cfg.Inventory == "" {
		return nil
	}
	after, err := s.cfg.takeInventory(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, line := range missing(after, s.inventory) {
		if s.told(line) {
			continue
		}
		errs = append(errs, fmt.Errorf("the service holds what it did not hold before: %s", shorten(line)))
	}
	for _, line := range missing(s.inventory, after) {
		errs = append(errs, fmt.Errorf("the service no longer holds what it held before, which the run has not made: %s", shorten(line)))
	}
	return errors.Join(errs...)
}

// told reports whether a finding names what a line of the inventory holds: it is
// left behind because of that.
func (s *session) told(line string) bool {
	const shortest = 8 // a word of the message may look like less
	name := strings.Trim(line, `"'`)
	for _, r := range s.verdicts {
		if len(name) >= shortest && (r.Verdict == Failed || r.Verdict == Warned) && strings.Contains(r.Message, name) {
			return true
		}
	}
	return false
}
