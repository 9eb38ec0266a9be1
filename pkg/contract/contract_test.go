package contract_test

import (
	"slices"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
)

func TestUnmet(t *testing.T) {
	t.Parallel()
	n := int64(1)
	all := contract.Capabilities{
		Suspend: true, Plans: true, Labels: true,
		Quota: contract.QuotaKinds{Buckets: true, Keys: true, Bytes: true, Objects: true},
	}
	for what, spec := range map[string]contract.Spec{
		"plan":             {Plan: "p"},
		"labels":           {Labels: map[string]string{"a": "b"}},
		"suspend":          {Suspend: true},
		"quota.maxBuckets": {Quota: contract.Quota{MaxBuckets: &n}},
		"quota.maxKeys":    {Quota: contract.Quota{MaxKeys: &n}},
		"quota.maxBytes":   {Quota: contract.Quota{MaxBytes: &n}},
		"quota.maxObjects": {Quota: contract.Quota{MaxObjects: &n}},
	} {
		if got := (contract.Capabilities{}).Unmet(spec); !slices.Equal(got, []string{what}) {
			t.Errorf("a service that cannot do anything: %q, want %q", got, what)
		}
		if got := all.Unmet(spec); len(got) > 0 {
			t.Errorf("a service that can do all: %q", got)
		}
	}
	if got := (contract.Capabilities{}).Unmet(contract.Spec{Name: "a", Owner: "b", Display: "c", Region: "d"}); len(got) > 0 {
		t.Errorf("what every service has: %q", got)
	}
}
