package sanity

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes a report to be read: a line for each check, then what has
// to be said about those that did not pass, each with what waits for it.
func (r *Report) WriteTable(w io.Writer) error {
	p := &printer{w: w}
	for _, api := range r.APIs {
		p.printf("COSI %s at %s\n", api, r.Endpoint)
		t := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
		group := ""
		for _, result := range r.of(api) {
			if result.Verdict == NotRun && r.found(api, strings.TrimPrefix(result.Message, seeOther)) {
				continue // that finding tells
			}
			if letter := result.Number[:1]; letter != group {
				group = letter
				_, _ = fmt.Fprintf(t, "\n%s\n", title(group))
			}
			_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", result.Number, verdict(result), result.Level, round(result.Took), result.Name)
		}
		_ = t.Flush() // p keeps the error
		for _, v := range []Verdict{Unready, Failed, Warned} {
			for _, result := range r.of(api) {
				if result.Verdict == v {
					r.writeFinding(p, result)
				}
			}
		}
		r.writeReasons(p, api)
		p.printf("\n")
	}
	p.printf("%d passed, %d failed, %d warned, %d not run", r.Count(Passed), r.Count(Failed), r.Count(Warned), r.Count(NotRun))
	if n := r.known(); n > 0 {
		p.printf(" (%d of them known from the baseline)", n)
	}
	p.printf(", in %s; the names of this run have UIDs that begin with %s\n", round(r.Took), r.Run)
	if !r.Judged() {
		p.printf("There is no verdict: the set-up is not complete, see above\n")
	}
	return p.err
}

// title is what a group is about.
func title(letter string) string {
	for _, g := range Groups() {
		if g[0] == letter {
			return g[1]
		}
	}
	return letter
}

func verdict(r Result) string {
	if r.Known {
		return string(r.Verdict) + ", known"
	}
	return string(r.Verdict)
}

func (r *Report) known() int {
	n := 0
	for _, result := range r.Results {
		if result.Known {
			n++
		}
	}
	return n
}

// writeFinding says what was found, what it stands on, what to do, and what was
// not judged because of it.
func (r *Report) writeFinding(p *printer, result Result) {
	p.printf("\n%s %s %s\n%s\n", strings.ToUpper(verdict(result)), result.Number, result.Name, indent(result.Message, "    "))
	if result.Level != SetUp {
		p.printf("  %s, %s:\n%s\n", result.Level, result.Source, indent(result.Sentence, "    "))
	}
	p.printf("  What to do: %s\n", cures[result.Number])
	if waiting := r.waiting(result); len(waiting) > 0 {
		p.printf("  Not run because of it: %s\n", strings.Join(waiting, ", "))
	}
}

// waiting are the checks that another one has kept from being run.
func (r *Report) waiting(on Result) []string {
	var out []string
	for _, result := range r.of(on.API) {
		if result.Verdict == NotRun && result.Message == seeOther+on.Number {
			out = append(out, result.Number)
		}
	}
	return out
}

// writeReasons says why checks were not run that no other check has decided.
func (r *Report) writeReasons(p *printer, api API) {
	reasons, order := map[string][]string{}, []string(nil)
	for _, result := range r.of(api) {
		if result.Note != "" {
			p.printf("\nNOTE %s: %s\n", result.Number, result.Note)
		}
		if result.Verdict != NotRun || r.found(api, strings.TrimPrefix(result.Message, seeOther)) {
			continue
		}
		if reasons[result.Message] == nil {
			order = append(order, result.Message)
		}
		reasons[result.Message] = append(reasons[result.Message], result.Number)
	}
	for i, reason := range order {
		if i == 0 {
			p.printf("\nNOT RUN\n")
		}
		p.printf("  %s: %s\n", strings.Join(reasons[reason], ", "), reason)
	}
}

// found reports whether a check has a finding.
func (r *Report) found(api API, number string) bool {
	return slices.ContainsFunc(r.of(api), func(result Result) bool {
		return result.Number == number && result.Verdict != Passed && result.Verdict != NotRun
	})
}

func (r *Report) of(api API) []Result {
	var out []Result
	for _, result := range r.Results {
		if result.API == api {
			out = append(out, result)
		}
	}
	return out
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) Write(b []byte) (int, error) {
	if p.err == nil {
		_, p.err = p.w.Write(b)
	}
	return len(b), nil
}

func (p *printer) printf(format string, args ...any) { _, _ = fmt.Fprintf(p, format, args...) }

func round(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

func indent(text, by string) string { return by + strings.ReplaceAll(text, "\n", "\n"+by) }

// WriteJSON writes a report to be read by a program.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// The elements of JUnit's XML, as the common readers take them.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Name    string       `xml:"name,attr"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name      string      `xml:"name,attr"`
		Tests     int         `xml:"tests,attr"`
		Failures  int         `xml:"failures,attr"`
		Skipped   int         `xml:"skipped,attr"`
		Timestamp string      `xml:"timestamp,attr"`
		Seconds   string      `xml:"time,attr"`
		Cases     []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Seconds string        `xml:"time,attr"`
		Failure *junitMessage `xml:"failure"`
		Skipped *junitMessage `xml:"skipped"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes a report for a CI system. A warning is a test that has
// passed and has something to say.
func (r *Report) WriteJUnit(w io.Writer) error {
	out := junitSuites{Name: "cosi-sanity"}
	for _, api := range r.APIs {
		suite := junitSuite{Name: strings.TrimSuffix(fmt.Sprintf("cosi-sanity.%s.%s", api.Version, api.Generation), "."), Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05")}
		var took time.Duration
		for _, result := range r.of(api) {
			took += result.Took
			c := junitCase{Class: suite.Name, Name: result.Number + " " + result.Name, Seconds: seconds(result.Took)}
			text := fmt.Sprintf("%s\n%s, %s: %s\nWhat to do: %s", result.Message, result.Level, result.Source, result.Sentence, cures[result.Number])
			if result.Known {
				c.Output = "known: " + text
				suite.Cases = append(suite.Cases, c)
				continue
			}
			switch result.Verdict {
			case Failed, Unready:
				suite.Failures++
				c.Failure = &junitMessage{Message: firstLine(result.Message), Type: string(result.Level), Text: text}
			case NotRun:
				suite.Skipped++
				c.Skipped = &junitMessage{Message: result.Message}
			case Warned:
				c.Output = "warning: " + text
			case Passed:
			}
			suite.Cases = append(suite.Cases, c)
		}
		suite.Tests, suite.Seconds = len(suite.Cases), seconds(took)
		out.Suites = append(out.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// WriteBadge writes a line of Markdown for a README. It says which versions were
// judged and how; it links to nothing.
func (r *Report) WriteBadge(w io.Writer) error {
	p := &printer{w: w}
	for _, api := range r.APIs {
		state := map[bool]string{true: "conformant", false: "not conformant"}[!r.failed(api)]
		if !r.Judged() {
			state = "not judged"
		}
		passed := 0
		for _, result := range r.of(api) {
			if result.Verdict == Passed {
				passed++
			}
		}
		p.printf("**COSI %s**: %s (cosi-sanity: %d of %d checks passed)\n", api, state, passed, len(r.of(api)))
	}
	return p.err
}

func (r *Report) failed(api API) bool {
	return slices.ContainsFunc(r.of(api), func(result Result) bool { return result.Verdict == Failed })
}

// WriteList writes what the checks are, by groups.
func WriteList(w io.Writer) error {
	return writeList(w, false)
}

// WriteSpec writes the checks with each sentence that they stand on, and its
// place.
func WriteSpec(w io.Writer) error {
	return writeList(w, true)
}

func writeList(w io.Writer, sentences bool) error {
	p := &printer{w: w}
	group := ""
	for _, check := range Checks() {
		if letter := check.Number[:1]; letter != group {
			group = letter
			p.printf("%s: %s\n", group, title(group))
		}
		p.printf("  %s %s\n", check.Number, check.Name)
		for _, rule := range check.Rules {
			if sentences && rule.Level != SetUp {
				p.printf("      %s%s %s, %s:\n%s\n", rule.For, since(check, rule), rule.Level, rule.Source, indent(rule.Sentence, "          "))
			}
		}
	}
	return p.err
}

// since says from which generation on a check of v1alpha2 holds.
func since(c Check, r Rule) string {
	if c.Since == "" || r.For != V1Alpha2 {
		return ""
	}
	return fmt.Sprintf(" since %s", c.Since)
}

// WriteMarkdown writes the checks as a table for documentation.
func WriteMarkdown(w io.Writer) error {
	p := &printer{w: w}
	p.printf("| | The driver passes if … | v1alpha1 | v1alpha2 |\n|---|---|---|---|\n")
	for _, check := range Checks() {
		if check.keeps() {
			continue
		}
		p.printf("| %s | %s |", check.Number, check.Name)
		for _, v := range Versions() {
			if rule, ok := check.rule(v); ok {
				p.printf(" %s%s, `%s` |", rule.Level, since(check, rule), shortSource(rule.Source))
			} else {
				p.printf(" |")
			}
		}
		p.printf("\n")
	}
	return p.err
}

// shortSource leaves the folders of a sidecar's file out.
func shortSource(s string) string { return s[strings.LastIndex(s, "/")+1:] }
