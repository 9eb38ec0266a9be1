package provisioner

import (
	"slices"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// A quota comes from the class or the contract's defaults, follows the defaults in
// place, and goes with them; what the class says stays.
func TestQuotaFollowsItsClass(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		has := func(what string, want contract.Bounds) {
			t.Helper()
			if got := w.service.Bounds("data"); got != want {
				w.fail("%s: %+v, want %+v", what, got, want)
			}
		}
		class := map[string]string{"maxObjects": "5"}
		create := func() error { return w.create(p, "data", class) }
		under := func(defaults map[string]string) {
			terms := w.terms[team]
			terms.Defaults = params.Defaults{BucketClass: defaults}
			w.terms[team] = terms
			w.must("create", create)
		}
		under(map[string]string{"maxBytes": "1Mi", "maxObjects": "9"})
		has("made", contract.Bounds{MaxBytes: 1 << 20, MaxObjects: 5})
		w.service.SetBounds("data", contract.Bounds{MaxObjects: 7})
		w.must("create again", create)
		has("restored", contract.Bounds{MaxBytes: 1 << 20, MaxObjects: 5})
		under(map[string]string{"maxBytes": "3Ki"})
		has("with other defaults", contract.Bounds{MaxBytes: 3 << 10, MaxObjects: 5})
		under(nil)
		has("without defaults", contract.Bounds{MaxObjects: 5})
		class = nil
		err := create()
		w.kind("another class", err, fault.Mismatch, "maxObjects differ")
		has("after another class", contract.Bounds{MaxObjects: 5})
	})
}

// A contract's buckets are measured with one call, whatever their number, and none if
// it has none; a bucket that is not the driver's is not told of, and one that is listed
// twice is told of once, as the metrics of a bucket can be.
func TestMeasureContract(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: config.Keep}
		for _, name := range []string{"one", "two", "three"} {
			w.must("create", func() error { return w.create(p, name, nil) })
			w.service.PutObject(name, "key")
		}
		w.service.MakeBucket("foreign", team, "us-east-1")
		w.service.ListTwice()
		before := p.count.Load()
		all, told, err := p.MeasureContract(w.ctx(), teamID)
		var names []string
		for _, use := range all {
			names = append(names, use.Bucket)
			if *use.Objects != 1 || *use.Bytes != 3 {
				w.fail("%+v", use)
			}
		}
		slices.Sort(names)
		if err != nil || !told || !slices.Equal(names, []string{"one", "three", "two"}) {
			w.fail("%q %v %v", names, told, err)
		}
		if calls := p.count.Load() - before; calls != 1 {
			w.fail("%d steps", calls)
		}
		before = p.count.Load()
		all, told, err = p.MeasureContract(w.ctx(), cosi.ContractID{Backend: backend, Contract: "other"})
		if err != nil || !told || len(all) > 0 || p.count.Load() != before {
			w.fail("a contract without buckets: %+v %v %v", all, told, err)
		}
	})
}
