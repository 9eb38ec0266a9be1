package backends

import (
	"regexp"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

// A key that someone stops at the service is seen without any call of a
// sidecar: reported, or brought back as it was.
func TestDriftOfAKey(t *testing.T) {
	t.Parallel()
	for mode, repaired := range map[string]string{"report": "false", "repair": "true"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := run(t, storages["rgw"], func(text string) string {
				return text + "drift: {mode: " + mode + ", interval: 1s, callsPerSecond: 1000}\n"
			})
			l := r.life()
			must(t, l.create())
			must(t, l.grant())
			must(t, l.use())
			if regexp.MustCompile(`contract_cosi_drift_findings_total{.*} [1-9]`).MatchString(r.page("/metrics")) {
				t.Errorf("findings where nothing has changed:\n%s", r.logs)
			}
			_, err := ceph.Admin(t.Context(), "user", "suspend", "--uid", tenantOf(l.contract)+"$"+l.access)
			must(t, err)
			for _, what := range []string{"key-inactive", "key-policy"} { // release 16 forgets the policies, too
				sample := `contract_cosi_drift_findings_total{repaired="` + repaired + `",what="` + what + `"}`
				r.until(sample, func() bool { return !strings.Contains(r.page("/metrics"), sample+" 0\n") })
				if line := `what="` + what + `" repaired=` + repaired; !strings.Contains(r.logs.String(), line) {
					t.Errorf("no line of the log says %s", line)
				}
			}
			if mode == "report" {
				l.refused()
			} else {
				must(t, l.use())
			}
			must(t, l.revoke())
			must(t, l.delete())
		})
	}
}

// until waits for something.
func (r *running) until(what string, so func() bool) {
	r.Helper()
	poll.Until(r, what, so)
}
