package contract_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// bare is a provider that can nothing which it need not, and counts its calls.
type bare struct {
	contract.Provider
	can   contract.Capabilities
	have  contract.Contract
	err   error
	calls []string
}

func (b *bare) Capabilities() contract.Capabilities { return b.can }

func (b *bare) Regions(context.Context) ([]cosi.Endpoint, error) {
	return []cosi.Endpoint{{Region: "one"}, {Region: "two"}}, nil
}

func (b *bare) EnsureContract(_ context.Context, spec contract.Spec) (contract.Contract, error) {
	b.calls = append(b.calls, "EnsureContract "+spec.Owner)
	return b.have, b.err
}

func (b *bare) GetContract(context.Context, string) (contract.Contract, error) {
	b.calls = append(b.calls, "GetContract")
	return b.have, b.err
}

func TestServiceRefusesBeforeItAsks(t *testing.T) {
	t.Parallel()
	n := int64(1)
	for name, c := range map[string]struct {
		spec contract.Spec
		kind fault.Kind
		says string
	}{
		"plan":    {contract.Spec{Name: "media", Plan: "gold"}, fault.Unsupported, "contract media: backend main has no plan;"},
		"several": {contract.Spec{Name: "media", Suspend: true, Quota: contract.Quota{MaxBytes: &n}}, fault.Unsupported, "has no suspend, quota.maxBytes;"},
		"region":  {contract.Spec{Name: "media", Region: "three"}, fault.InvalidArgument, "contract media: backend main has no region three;"},
		"fine":    {contract.Spec{Name: "media", Region: "two"}, "", ""},
	} {
		b := &bare{}
		_, err := contract.NewService("main", "cluster", nil, b).EnsureContract(t.Context(), c.spec)
		if !fault.Is(err, c.kind) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s with %q", name, err, c.kind, c.says)
		}
		want := []string{"EnsureContract cluster"}
		if c.kind != "" {
			want = nil
		}
		if !slices.Equal(b.calls, want) {
			t.Errorf("%s: calls %q, want %q", name, b.calls, want)
		}
	}
}

func TestServiceKnowsItsOwn(t *testing.T) {
	t.Parallel()
	for owner, kind := range map[string]fault.Kind{"cluster": "", "another": fault.NotFound, "": fault.NotFound} {
		b := &bare{have: contract.Contract{Name: "media", Owner: owner, State: contract.StateActive}}
		s := contract.NewService("main", "cluster", nil, b)
		if _, err := s.Signed(t.Context(), "media"); !fault.Is(err, kind) {
			t.Errorf("owner %q: Signed: %v, want %q", owner, err, kind)
		}
		if _, _, err := s.CompareContract(t.Context(), contract.Spec{Name: "media"}); !fault.Is(err, kind) {
			t.Errorf("owner %q: CompareContract: %v, want %q", owner, err, kind)
		}
		if err := s.Usable(b.have); (err == nil) != (kind == "") {
			t.Errorf("owner %q: Usable: %v", owner, err)
		}
	}
}

func TestServiceFallsBack(t *testing.T) {
	t.Parallel()
	s := contract.NewService("main", "cluster", nil, &bare{})
	if used, err := s.Usage(t.Context(), "media"); err != nil || used != (contract.Usage{}) {
		t.Errorf("Usage: %v, %v", used, err)
	}
	if err := s.AcknowledgeKey(t.Context(), "media", secret.KeyPair{}); err != nil {
		t.Errorf("AcknowledgeKey: %v", err)
	}
	if _, err := s.RestoreKey(t.Context(), "media", "ba-1", secret.KeyPair{AccessKeyID: "AK"}, nil, true); !fault.Is(err, fault.Unsupported) {
		t.Errorf("RestoreKey: %v", err)
	}
	for _, c := range []struct {
		can  contract.Capabilities
		want string
	}{{contract.Capabilities{}, "cluster"}, {contract.Capabilities{SharedBuckets: true}, cosi.SharedMark("cluster", "media")}} {
		if got := contract.NewService("main", "cluster", nil, &bare{can: c.can}).Mark("media"); got != c.want {
			t.Errorf("mark %q, want %q", got, c.want)
		}
	}
}

func TestServiceNamesTheContract(t *testing.T) {
	t.Parallel()
	s := contract.NewService("main", "cluster", nil, &bare{err: fault.New(fault.Unavailable, "no answer")})
	_, err := s.GetContract(t.Context(), "media")
	if err == nil || err.Error() != "contract media: no answer" || !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}
