package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/yaml"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// The exit statuses of the commands that ask a driver, for scripts.
const (
	exitFindings = 1 // audit has found something that is still there
	exitFault    = 2 // not all could be looked at or done
)

// exit is an error with a status of its own; its text may be empty.
type exit struct {
	status int
	error
}

// Unwrap returns the error.
func (e exit) Unwrap() error { return e.error }

const (
	// auditGrace is longer than any call may take (driver.callTimeout), so what a
	// call under way has made is not taken for an orphan.
	auditGrace  = 15 * time.Minute
	rotateGrace = 24 * time.Hour
)

// ask is the commands contracts, buckets, keys, audit and rotate.
func ask(ctx context.Context, command admin.Command, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("contract-cosi-driver "+string(command), flag.ContinueOnError)
	flags.SetOutput(stderr)
	var r admin.Request
	file := flags.String("config", "", "the configuration `file` (required)")
	output := flags.String("output", "table", "table, json or yaml")
	flags.StringVar(output, "o", "table", "short for --output")
	switch command {
	case admin.Rotate:
		flags.StringVar(&r.Access, "access", "", "rotate the key of the access with this `id`")
		flags.Var((*age)(&r.OlderThan), "older-than", "rotate every key of at least this `age`, such as 90d")
		flags.BoolVar(&r.Delivered, "delivered", false, "with --access, say that the application's Secret has the new key by now; the grace begins")
		flags.StringVar(&r.Contract, "contract", "", "with --older-than, only keys of this contract")
		r.Grace = rotateGrace
		flags.Var((*age)(&r.Grace), "grace", "how long the old key stays valid after the new one was delivered")
	case admin.Audit:
		flags.BoolVar(&r.Fix, "fix", false, "remove orphaned keys and principals; never a bucket, never a record")
		r.Grace = auditGrace
		flags.Var((*age)(&r.Grace), "grace", "leave out what is younger: a call may be under way")
		fallthrough
	default:
		flags.StringVar(&r.Contract, "contract", "", "only what is under this contract")
	}
	fail := func(err error) error { return exit{exitFault, err} }
	if err := parse(flags, args); err != nil {
		return fail(err)
	}
	if helped(flags) {
		return nil
	}
	if !slices.Contains([]string{"table", "json", "yaml"}, *output) {
		return fail(fmt.Errorf("--output %q is none of table, json and yaml", *output))
	}
	if *file == "" {
		return fail(fmt.Errorf("--config is missing; see %s --help", flags.Name()))
	}
	if command == admin.Rotate && (r.Access == "") == (r.OlderThan == 0) {
		return fail(errors.New("give either --access or --older-than"))
	}
	if r.Delivered && r.Access == "" {
		return fail(errors.New("--delivered is said of one access; give --access too"))
	}
	c, err := config.Load(*file, driver.Types())
	if err != nil {
		return fail(err)
	}
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(stderr)))
	answer, err := driver.Ask(klog.NewContext(ctx, log), c, command, r)
	if err != nil {
		return fail(err)
	}
	return show(answer, command, *output, stdout)
}

// show prints a report and returns what it means as an exit status.
func show(answer json.RawMessage, command admin.Command, output string, stdout io.Writer) error {
	var report admin.Report[json.RawMessage]
	err := json.Unmarshal(answer, &report)
	var text []byte
	switch {
	case err != nil:
		return exit{exitFault, fmt.Errorf("the driver's answer cannot be understood; use the command of its own version: %w", err)}
	case output == "yaml":
		text, err = yaml.JSONToYAML(answer)
	case output == "json":
		text, err = json.MarshalIndent(answer, "", "  ")
		text = append(text, '\n')
	default:
		text, err = tableOf(answer, command, time.Now())
	}
	if err == nil {
		_, err = stdout.Write(text)
	}
	if err != nil {
		return exit{exitFault, err}
	}
	if len(report.Faults) > 0 {
		return exit{exitFault, errors.New("not all could be done:\n  " + strings.Join(report.Faults, "\n  "))}
	}
	if command == admin.Audit {
		for _, item := range report.Items {
			var o admin.Orphan
			if err := json.Unmarshal(item, &o); err != nil || !o.Fixed {
				return exit{exitFindings, errors.New("")}
			}
		}
	}
	return nil
}

// tableOf prints the items of a report for people.
func tableOf(answer json.RawMessage, command admin.Command, now time.Time) ([]byte, error) {
	switch command {
	case admin.Contracts:
		return table(answer, "CONTRACT\tSTATE\tTERMS\tPLAN\tBUCKETS\tKEYS\tBYTES\tOBJECTS\tNOTE", func(c admin.Contract) []string {
			note := ""
			if len(c.Differing) > 0 {
				note = "not as configured: " + strings.Join(c.Differing, ", ")
			} else if c.State != "Active" {
				note = c.Message
			}
			return []string{c.ID, c.State, c.Terms, c.Plan,
				bounded(cmp.Or(c.Used.Buckets, number(c.Buckets)), c.Quota.Buckets), bounded(cmp.Or(c.Used.Keys, number(c.Keys)), c.Quota.Keys),
				bounded(c.Used.Bytes, c.Quota.Bytes), bounded(c.Used.Objects, c.Quota.Objects), note}
		})
	case admin.Buckets:
		return table(answer, "BUCKET\tREGION\tORIGIN\tAGE\tACCESSES", func(b admin.Bucket) []string {
			names := make([]string, len(b.Accesses))
			for i, id := range b.Accesses {
				names[i] = strings.TrimPrefix(id, b.Contract+".")
			}
			return []string{b.ID, b.Region, b.Origin, since(b.CreatedAt, now), strings.Join(names, ", ")}
		})
	case admin.Audit:
		return table(answer, "KIND\tID\tKEY\tFIXED\tWHAT", func(o admin.Orphan) []string {
			return []string{o.Kind, o.ID, o.AccessKeyID, strconv.FormatBool(o.Fixed), o.Text}
		})
	}
	return table(answer, "ACCESS\tKEY\tSTATE\tAGE\tLAST USED\tBUCKETS\tROTATION", func(k admin.Key) []string {
		buckets := make([]string, len(k.Buckets))
		for i, b := range k.Buckets {
			buckets[i] = b.Bucket + " " + string(b.Mode)
		}
		return []string{k.ID, k.AccessKeyID, k.State, since(k.IssuedAt, now), since(k.LastUsed, now), strings.Join(buckets, ", "), rotation(k.Rotation, now)}
	})
}

// table prints a row for each item, a dash where nothing is known.
func table[T any](answer json.RawMessage, head string, row func(T) []string) ([]byte, error) {
	var report admin.Report[T]
	if err := json.Unmarshal(answer, &report); err != nil {
		return nil, err
	}
	if len(report.Items) == 0 {
		return []byte("none\n"), nil
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, head)
	for _, item := range report.Items {
		cells := row(item)
		for i, cell := range cells {
			cells[i] = cmp.Or(fault.Line(cell), "-") // it may be a name that a service gave
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	err := w.Flush()
	return []byte(out.String()), err
}

func number(n int) *int64 { v := int64(n); return &v }

// bounded is what is used, of what is allowed.
func bounded(used, most *int64) string {
	text := ""
	if used != nil {
		text = strconv.FormatInt(*used, 10)
	}
	if most != nil {
		text = cmp.Or(text, "?") + " of " + strconv.FormatInt(*most, 10)
	}
	return text
}

// since is a time's age in its largest unit, "" for no time.
func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return brief(now.Sub(t))
}

func brief(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func rotation(r *admin.Rotation, now time.Time) string {
	switch {
	case r == nil:
		return ""
	case r.Old == "":
		return "being issued"
	case r.Delivered.IsZero():
		return r.Old + " is valid until the new key is delivered"
	case r.EndsAt.Before(now):
		return r.Old + " is about to be revoked"
	}
	return r.Old + " is revoked in " + brief(r.EndsAt.Sub(now))
}

// age is a flag: a duration in which a day can be written too.
type age time.Duration

func (a *age) String() string {
	if d := time.Duration(*a); d > 0 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return time.Duration(*a).String()
}

func (a *age) Set(s string) error {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		*a = age(time.Duration(n) * 24 * time.Hour)
		if err == nil {
			return nil
		}
	} else if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		*a = age(d)
		return nil
	}
	return errors.New("not a time such as 90d, 12h or 30m")
}
