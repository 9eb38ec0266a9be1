package driver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// A bucket's claim is asked for once, and again only where it was not answered.
func TestMeterAsksForEachClaimOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		fails := true
		metric := metrics.New()
		m := newMeter(metric, func(_ context.Context, bucket string) (string, string, error) {
			asked = append(asked, bucket)
			if bucket == "two" && fails {
				return "", "", errors.New("no answer")
			}
			return "team-blue", "claim-" + bucket, nil
		})
		id, n := cosi.ContractID{Backend: "main", Contract: "blue"}, int64(7)
		measure := func() {
			m.Measured(t.Context(), id, []contract.BucketUse{{Bucket: "one", Bytes: &n}, {Bucket: "two", Objects: &n, Bounds: contract.Bounds{MaxObjects: 9}}})
		}
		measure()
		if text := told(t, metric); !strings.Contains(text, `bucket_bytes{backend="main",bucket="one",claim="claim-one",contract="blue",namespace="team-blue"} 7`) ||
			!strings.Contains(text, `bucket_max_objects{backend="main",bucket="two",claim="",contract="blue",namespace=""} 9`) {
			t.Errorf("told %s", text)
		}
		fails = false
		measure()
		measure()
		if got := strings.Join(asked, " "); got != "one two two" {
			t.Errorf("asked for %s", got)
		}
		m.Passed()
		measure()
		if len(asked) != 3 {
			t.Errorf("after a pass, asked for %s", asked)
		}
		m.Passed()
		m.Passed()
		if len(m.known)+len(m.before) > 0 {
			t.Errorf("a contract that is gone is remembered: %v, %v", m.known, m.before)
		}
	})
}
