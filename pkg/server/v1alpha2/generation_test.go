package v1alpha2

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/klog/v2/textlogger"
)

// Each generation is told by what it alone does, and its calls agree with it.
func TestCallersAgree(t *testing.T) {
	t.Parallel()
	for i, g := range generations {
		can := ^set(0)
		for _, f := range g.forms {
			if callers(f)&(1<<i) == 0 {
				t.Errorf("%s does not call by %s", g.name, f)
			}
			can &= callers(f)
		}
		// C1 does nothing that C2 does not.
		if want := map[string]string{"C1": "C1 or C2"}[g.name]; can.String() != want && can.String() != g.name {
			t.Errorf("the calls of %s tell %s", g.name, can)
		}
	}
}

func TestTheLogSaysTheGenerationOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		calls []form
		want  []string
	}{
		{"A", []form{createsByName, createsByName, grantsOneMode, getsExisting, grantsOneMode, createsByName}, []string{"A or B1 or B2", "A or B1", "A"}},
		{"C2", []form{generatesBucket, createsByID, grantsThreeModes, generatesAccount, createsByID}, []string{"C1 or C2", "C2"}},
		{"an upgrade", []form{getsExisting, gets, grantsThreeModes, generatesAccount, grantsByID}, []string{"A", "B1 or B2 or C1 or C2", "B2 or C1 or C2", "C2"}},
		{"there and back", []form{getsExisting, generatesAccount, getsExisting, generatesAccount}, []string{"A", "C2"}},
	} {
		var out bytes.Buffer
		log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))
		told := caller{told: map[set]bool{}}
		for _, f := range c.calls {
			told.heard(log, f)
		}
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			_, rest, _ := strings.Cut(line, `generation="`)
			generation, _, _ := strings.Cut(rest, `"`)
			got = append(got, generation)
		}
		if strings.Join(got, ", ") != strings.Join(c.want, ", ") {
			t.Errorf("%s: the log says %q, want %q", c.name, got, c.want)
		}
	}
}
