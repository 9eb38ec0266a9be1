package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
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
	exitFault    = 2 // not all could be checked or done
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
	// nowGrace is for keys that have to go: the kubelet takes about a minute.
	nowGrace = 2 * time.Minute
)

// asking is the group of the commands that ask a driver.
const asking = "ask"

// ask is a command that asks a driver.
func ask(command admin.Command) *cobra.Command {
	c := &cobra.Command{Use: string(command), Args: arguments, GroupID: asking}
	flags := c.Flags()
	var r admin.Request
	var file, output, issuedBefore string
	var now bool
	configFlag(flags, &file)
	flags.StringVarP(&output, "output", "o", "table", "the `format`: table, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // fails for a flag that there is not
	contract := func(text string) { flags.StringVar(&r.Contract, "contract", "", text) }
	const under = "only what is under this contract, by `name` or id"
	switch command {
	case admin.Contracts:
		c.Short, c.Example = "List contracts: their state, and what is used of their quota", "  contract-cosi-driver contracts -o yaml"
		contract(under)
	case admin.Buckets:
		c.Short, c.Example = "List buckets, and the accesses that reach each", "  contract-cosi-driver buckets --contract team-blue"
		contract(under)
	case admin.Keys:
		c.Short, c.Example = "List keys: their state, age, end and rotation", "  contract-cosi-driver keys --contract team-blue -o json"
		contract(under)
	case admin.Audit:
		c.Short, c.Example = "Find what is on one side only, service or journal", "  contract-cosi-driver audit\n  contract-cosi-driver audit --fix"
		contract(under)
		flags.BoolVar(&r.Fix, "fix", false, "remove orphaned keys and principals; never a bucket, never a record")
		r.Grace = auditGrace
		flags.Var((*age)(&r.Grace), "grace", "leave out what is younger: a call may be under way")
	case admin.Rotate:
		c.Short = "Issue new keys beside old ones"
		c.Example = "  contract-cosi-driver rotate --access main.team-blue.ba-web --grace 12h\n" +
			"  contract-cosi-driver rotate --access main.team-blue.ba-web --delivered\n" +
			"  contract-cosi-driver rotate --older-than 90d\n" +
			"  contract-cosi-driver rotate --contract team-blue --now"
		contract("with --older-than or --now, only keys of this contract, by `name` or id")
		flags.BoolVar(&now, "now", false, "with --contract, replace every key, and wait until all old ones are revoked; the grace is then 2m by default")
		flags.StringVar(&issuedBefore, "issued-before", "", "in place of --now, replace what was issued before this `time` only, to resume")
		flags.StringVar(&r.Access, "access", "", "rotate the key of the access with this `id`")
		flags.Var((*age)(&r.OlderThan), "older-than", "rotate every key of at least this `age`, such as 90d")
		flags.BoolVar(&r.Delivered, "delivered", false, "with --access, say that the application's Secret has the new key by now; the grace begins")
		r.Grace = rotateGrace
		flags.Var((*age)(&r.Grace), "grace", "how long the old key stays valid after the new one was delivered")
	case admin.Revoke:
		c.Short = "Revoke a key that has leaked, at once"
		c.Example = "  contract-cosi-driver revoke --access main.team-blue.ba-web\n" +
			"  contract-cosi-driver revoke --access main.team-blue.ba-web --lift"
		flags.StringVar(&r.Access, "access", "", "revoke the key of the access with this `id`, and issue no other; keys lists the ids (required)")
		flags.BoolVar(&r.Lift, "lift", false, "let the access be granted again, with another key")
		_ = c.MarkFlagRequired("access")
	}
	c.RunE = onConfig(&file, func(c *cobra.Command, configuration *config.Config) error {
		log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(c.ErrOrStderr())))
		if !r.IssuedBefore.IsZero() {
			if !c.Flags().Changed("grace") {
				r.Grace = nowGrace
			}
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "If this is interrupted, resume it with rotate --contract %s --issued-before %s\n", r.Contract, r.IssuedBefore.Format(time.RFC3339Nano))
		}
		p := &printer{command: command, output: output, stdout: bufio.NewWriter(c.OutOrStdout()), stderr: c.ErrOrStderr(), told: time.Now()}
		if err := driver.Ask(klog.NewContext(c.Context(), log), configuration, command, r, p.take); err != nil {
			return errors.Join(p.stdout.Flush(), err)
		}
		return p.end()
	})
	c.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case !slices.Contains(formats, output):
			return fmt.Errorf("--output %q is none of table, json and yaml", output)
		case command != admin.Rotate:
		case flags.Changed("older-than") && r.OlderThan == 0:
			return errors.New("--older-than has to be more than 0s; 1s rotates every key")
		case now || issuedBefore != "":
			r.IssuedBefore = time.Now().UTC()
			if issuedBefore != "" {
				var err error
				if r.IssuedBefore, err = time.Parse(time.RFC3339, issuedBefore); err != nil {
					return fmt.Errorf("--issued-before %q is not a time such as %s", issuedBefore, time.RFC3339)
				}
			}
			if r.Contract == "" || r.Access != "" || r.OlderThan != 0 || r.Delivered || now && issuedBefore != "" {
				return errors.New("--now and --issued-before go with --contract NAME and --grace only, and not with each other")
			}
		case (r.Access == "") == (r.OlderThan == 0):
			return errors.New("give either --access ID, for one key, or --older-than AGE, for all keys of at least that age")
		case r.Delivered && r.Access == "":
			return errors.New("--delivered is said of one access; give --access ID too")
		}
		return nil
	}
	return c
}

// formats are what a report is printed in.
var formats = []string{"table", "json", "yaml"}

// printer prints an answer: JSON as it comes, and the rest at its end.
type printer struct {
	command admin.Command
	output  string
	stdout  *bufio.Writer
	stderr  io.Writer
	told    time.Time // when progress was last told

	report  admin.Report[json.RawMessage] // without its items, if they are printed
	printed int
	unfixed bool // audit has found something that is still there
	err     error
}

// progressEvery is how often progress is told.
const progressEvery = 2 * time.Second

// take takes a part of the answer.
func (p *printer) take(l admin.Line) {
	p.report.Faults = append(p.report.Faults, l.Faults...)
	if l.Of > 0 && time.Since(p.told) >= progressEvery {
		p.told = time.Now()
		of := "contracts"
		if p.command == admin.Rotate {
			of = "keys"
		}
		_, _ = fmt.Fprintf(p.stderr, "%s: %d of %d %s\n", p.command, l.Done, l.Of, of)
		p.err = errors.Join(p.err, p.stdout.Flush())
	}
	if l.Item == nil {
		return
	}
	if p.command == admin.Audit {
		var o admin.Orphan
		p.unfixed = p.unfixed || json.Unmarshal(l.Item, &o) != nil || !o.Fixed
	}
	if p.output != "json" {
		p.report.Items = append(p.report.Items, l.Item)
		return
	}
	separator := ",\n    "
	if p.printed == 0 {
		separator = "{\n  \"items\": [\n    "
	}
	p.print(separator, l.Item, "    ")
	p.printed++
}

// print writes JSON behind a prefix, with each further line indented.
func (p *printer) print(prefix string, v any, indent string) {
	text, err := json.MarshalIndent(v, indent, "  ")
	if err == nil {
		_, err = p.stdout.WriteString(prefix + string(text))
	}
	p.err = errors.Join(p.err, err)
}

// end prints what is left, and returns what the command ends with.
func (p *printer) end() error {
	switch {
	case p.output == "json" && p.printed > 0:
		_, _ = p.stdout.WriteString("\n  ]")
		if len(p.report.Faults) > 0 {
			p.print(",\n  \"faults\": ", p.report.Faults, "  ")
		}
		_, _ = p.stdout.WriteString("\n}\n")
	case len(p.report.Items) == 0 && len(p.report.Faults) > 0 && p.output == "table": // it is not known that there is none
	default:
		if p.report.Items == nil {
			p.report.Items = []json.RawMessage{}
		}
		text, err := json.MarshalIndent(p.report, "", "  ")
		text = append(text, '\n')
		if err == nil && p.output == "yaml" {
			text, err = yaml.JSONToYAML(text)
		} else if err == nil && p.output == "table" {
			text, err = tableOf(text, p.command, time.Now())
		}
		_, _ = p.stdout.Write(text)
		p.err = errors.Join(p.err, err)
	}
	if err := errors.Join(p.err, p.stdout.Flush()); err != nil {
		return err
	}
	if len(p.report.Faults) > 0 {
		return errors.New("not all could be done:\n  " + strings.Join(p.report.Faults, "\n  "))
	}
	if p.unfixed {
		return exit{exitFindings, errors.New("")}
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
		return table(answer, "BUCKET\tREGION\tORIGIN\tAGE\tBYTES\tOBJECTS\tACCESSES", func(b admin.Bucket) []string {
			names := make([]string, len(b.Accesses))
			for i, id := range b.Accesses {
				names[i] = strings.TrimPrefix(id, b.Contract+".")
			}
			return []string{b.ID, b.Region, b.Origin, since(b.CreatedAt, now),
				bounded(b.Used.Bytes, b.Quota.Bytes), bounded(b.Used.Objects, b.Quota.Objects), strings.Join(names, ", ")}
		})
	case admin.Audit:
		return table(answer, "KIND\tID\tKEY\tFIXED\tWHAT", func(o admin.Orphan) []string {
			return []string{o.Kind, o.ID, o.AccessKeyID, strconv.FormatBool(o.Fixed), o.Text}
		})
	}
	return table(answer, "ACCESS\tKEY\tSTATE\tAGE\tENDS\tLAST USED\tBUCKETS\tROTATION", func(k admin.Key) []string {
		buckets := make([]string, len(k.Buckets))
		for i, b := range k.Buckets {
			buckets[i] = b.Bucket + " " + string(b.Mode)
			if b.ObjectMetadata != "" {
				buckets[i] += " objectMetadata:" + string(b.ObjectMetadata)
			}
			if b.BucketMetadata != "" {
				buckets[i] += " bucketMetadata:" + string(b.BucketMetadata)
			}
		}
		return []string{k.ID, k.AccessKeyID, k.State, since(k.IssuedAt, now), until(k.EndsAt, now), since(k.LastUsed, now), strings.Join(buckets, ", "), rotation(k.Rotation, now)}
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

// until is how long it is to a time, "" for no time.
func until(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.Before(now):
		return "ended"
	}
	return "in " + brief(t.Sub(now))
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

// Type implements pflag.Value.
func (a *age) Type() string { return "duration" }

// String is "" for no time, which a help does not show.
func (a *age) String() string {
	switch d := time.Duration(*a); {
	case d == 0:
		return ""
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	default:
		return d.String()
	}
}

func (a *age) Set(s string) error {
	number, unit := s, time.Duration(0)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		number, unit = days, 24*time.Hour
	}
	n, err := strconv.ParseUint(number, 10, 16)
	switch {
	case err == nil && (unit > 0 || n == 0):
		*a = age(time.Duration(n) * unit)
		return nil
	case err == nil:
		return fmt.Errorf("it has no unit; did you mean %ds?", n)
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("not a time such as 90d, 12h, 30m or 10s")
	}
	*a = age(d)
	return nil
}
