package v1alpha2

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
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
		if want := map[string]string{"C1": "C1 or C2"}[string(g.name)]; can.String() != want && can.String() != string(g.name) {
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
		for line := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
			_, rest, _ := strings.Cut(line, `generation="`)
			generation, _, _ := strings.Cut(rest, `"`)
			got = append(got, generation)
		}
		if strings.Join(got, ", ") != strings.Join(c.want, ", ") {
			t.Errorf("%s: the log says %q, want %q", c.name, got, c.want)
		}
	}
}

func TestOnly(t *testing.T) {
	t.Parallel()
	if only(config.Auto) != 0 {
		t.Errorf("auto is %s alone", only(config.Auto))
	}
	for _, g := range generations {
		if got := only(g.name).String(); got != string(g.name) {
			t.Errorf("%s alone is %q", g.name, got)
		}
	}
}

// A generation that the configuration names decides what is a name and what an id,
// and never lets modes be read by other numbers than their own.
func TestConfiguredGeneration(t *testing.T) {
	t.Parallel()
	const name, id = "bucket-1", "main.team.bucket-1"
	class := map[string]string{"contract": "team"}
	for _, g := range generations {
		byID := slices.Contains(g.forms, createsByID)
		taken := callers(createsByName)
		if byID {
			taken = callers(createsByID)
		}
		s := serverOf(t, g.name)
		for _, value := range []string{name, id} {
			_, err := s.createBucket(t.Context(), &cosipb.DriverCreateBucketRequest{Name: value, Parameters: class})
			// A name is not one of the driver's ids; anything else gets as far as the contract.
			if want := byID && value == name; fault.Is(err, fault.InvalidArgument) != want {
				t.Errorf("%s: create of %q: %v", g.name, value, err)
			}
			if s.caller.can != taken {
				t.Errorf("%s: create of %q is taken for one of %s", g.name, value, s.caller.can)
			}
		}
		for _, modes := range []struct {
			form  form
			modes [3]int
		}{{grantsOneMode, [3]int{2, absent, absent}}, {grantsThreeModes, [3]int{3, 1, 1}}} {
			req := &cosipb.DriverGrantBucketAccessRequestB2{}
			if err := proto.Unmarshal(grantOf(modes.modes), req); err != nil {
				t.Fatal(err)
			}
			req.Protocol = &cosipb.ObjectProtocol{Type: cosipb.ObjectProtocol_S3}
			got, err := s.requested(t.Context(), req)
			if !slices.Contains(g.forms, modes.form) {
				if !fault.Is(err, fault.InvalidArgument) {
					t.Errorf("%s: %s: %v", g.name, modes.form, err)
				}
			} else if err != nil || got.Buckets[0].Mode != cosi.ReadOnly {
				t.Errorf("%s: %s: %v, %v", g.name, modes.form, got.Buckets, err)
			}
		}
	}
}
