package sanity

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes a report to be read: a line for each check, then what has
// to be said about those that did not pass.
func (r *Report) WriteTable(w io.Writer) error {
	p := &printer{w: w}
	for _, v := range r.Versions {
		p.printf("COSI %s at %s\n\n", v, r.Endpoint)
		t := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
		for _, result := range r.of(v) {
			_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", result.Number, result.Verdict, result.Level, round(result.Took), result.Name)
		}
		_ = t.Flush() // p keeps the error
		for _, verdict := range []Verdict{Failed, Warned} {
			for _, result := range r.of(v) {
				if result.Verdict == verdict {
					p.printf("\n%s %s %s\n", strings.ToUpper(string(verdict)), result.Number, result.Name)
					p.printf("%s\n", indent(result.Message, "    "))
					p.printf("  %s, %s:\n%s\n", result.Level, result.Source, indent(result.Sentence, "    "))
				}
			}
		}
		reasons, order := map[string][]string{}, []string(nil)
		for _, result := range r.of(v) {
			if result.Verdict == NotRun {
				if reasons[result.Message] == nil {
					order = append(order, result.Message)
				}
				reasons[result.Message] = append(reasons[result.Message], result.Number)
			}
		}
		for i, reason := range order {
			if i == 0 {
				p.printf("\nNOT RUN\n")
			}
			p.printf("  %s: %s\n", strings.Join(reasons[reason], ", "), reason)
		}
		p.printf("\n")
	}
	p.printf("%d passed, %d failed, %d warned, %d not run, in %s; the names of this run have UIDs that begin with %s\n",
		r.Count(Passed), r.Count(Failed), r.Count(Warned), r.Count(NotRun), round(r.Took), r.Run)
	return p.err
}

func (r *Report) of(v Version) []Result {
	var out []Result
	for _, result := range r.Results {
		if result.Version == v {
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
	for _, v := range r.Versions {
		suite := junitSuite{Name: "cosi-sanity." + string(v), Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05")}
		var took time.Duration
		for _, result := range r.of(v) {
			took += result.Took
			c := junitCase{Class: suite.Name, Name: result.Number + " " + result.Name, Seconds: seconds(result.Took)}
			text := fmt.Sprintf("%s\n%s, %s: %s", result.Message, result.Level, result.Source, result.Sentence)
			switch result.Verdict {
			case Failed:
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

// WriteList writes what the checks are and what they stand on.
func WriteList(w io.Writer) error {
	p := &printer{w: w}
	for _, check := range Checks() {
		p.printf("%s %s\n", check.Number, check.Name)
		for _, rule := range check.Rules {
			p.printf("    %s %s, %s:\n%s\n", rule.Version, rule.Level, rule.Source, indent(rule.Sentence, "        "))
		}
	}
	return p.err
}

// WriteMarkdown writes the checks as a table for documentation.
func WriteMarkdown(w io.Writer) error {
	p := &printer{w: w}
	p.printf("| | The driver passes if … | v1alpha1 | v1alpha2 |\n|---|---|---|---|\n")
	for _, check := range Checks() {
		p.printf("| %s | %s |", check.Number, check.Name)
		for _, v := range Versions() {
			if rule, ok := check.rule(v); ok {
				p.printf(" %s, `%s` |", rule.Level, shortSource(rule.Source))
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
