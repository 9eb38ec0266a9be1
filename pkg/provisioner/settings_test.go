package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

const (
	readers  = `{"Statement":[{"Effect":"Allow","Principal":{"AWS":"a"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::data/*"}]}`
	writers  = `{"Statement":[{"Effect":"Allow","Principal":{"AWS":"b"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::data/*"}]}`
	everyone = `{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::data/*"}]}`
)

var dataID = cosi.BucketID{ContractID: teamID, Bucket: "data"}

// configure is Configure for the settings of blue/photos; none if given is nil. The
// process becomes the one that changes things.
func (w *world) configure(p *process, given map[string]string) (Configured, error) {
	_, leave, err := p.writer.Enter(w.ctx())
	if err != nil {
		return Configured{}, err
	}
	leave()
	var s *journal.Settings
	if given != nil {
		s = &journal.Settings{Claim: "blue/photos", Parameters: given}
	}
	return p.Configure(w.ctx(), dataID, s, true)
}

// is checks what the bucket has, by words that are to be in its documents, or not, with !.
func (w *world) is(when string, want map[string]string) {
	w.Helper()
	for sub, text := range want {
		text, not := strings.CutPrefix(text, "!")
		if have := w.service.Document("data", sub); strings.Contains(have, text) == not {
			w.fail("%s: %s is %q, of %v %q", when, sub, have, !not, text)
		}
	}
}

// What settings say stands over the class: a repeat of the create call, drift and
// another process agree with it, and what goes with the settings comes from the class.
func TestSettings(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		class := map[string]string{"policy": readers, "tags": "of=class"}
		w.must("create", func() error { return w.create(p, "data", class) })
		given := map[string]string{"policy": writers, "versioning": "Enabled", "tags": "of=team", "corsOrigins": "https://a.example.com"}
		got, err := w.configure(p, given)
		if err != nil || got.State == nil || len(got.State.Differing) > 0 || got.State.Has["versioning"] != "Enabled" || got.State.Tags["of"] != "team" || got.State.Tags[cosi.OwnerTag] != "" {
			w.fail("it is %+v, %v", got.State, err)
		}
		all := map[string]string{"policy": "PutObject", "versioning": "Enabled", "tagging": "team", "cors": "a.example.com"}
		w.is("configured", all)
		for _, p := range []*process{p, w.start()} {
			w.must("a repeat", func() error { return w.create(p, "data", class) })
			w.kind("another class", w.create(p, "data", map[string]string{"policy": writers}), fault.Mismatch)
			w.service.SetDocument("data", "policy", readers)
			w.service.SetDocument("data", "cors", "")
			w.must("drift", func() error { return w.inspect(p) })
			w.is("repaired", all)
		}
		if settled, err := p.Settled(w.ctx()); err != nil || fmt.Sprint(settled) != "map[blue/photos:[main.team.data]]" {
			w.fail("settled are %v, %v", settled, err)
		}
		w.must("look", func() error { _, err := w.configure(p, given); return err })
		p.count.Store(0)
		if _, err := p.Configure(w.ctx(), dataID, &journal.Settings{Claim: "blue/photos", Parameters: maps.Clone(given)}, false); err != nil || p.count.Load() > 0 {
			w.fail("what is so already takes %d steps, %v", p.count.Load(), err)
		}
		w.must("go back", func() error { _, err := w.configure(p, nil); return err })
		w.is("back", map[string]string{"policy": "GetObject", "versioning": "Suspended", "tagging": "class", "cors": "!example"})
		if record, err := w.records().Bucket(w.ctx(), dataID); err != nil || record.Settings != nil || record.Leaving != nil || len(record.Effective.Differences(record.Requested)) > 0 {
			w.fail("the record is %+v, %v", record, err)
		}
		w.end(p)
	})
}

// Settings that are refused, by the driver, the contract or the service, leave the
// bucket as it was, and its create call is answered as before.
func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		if _, err := w.configure(p, map[string]string{"policy": readers}); err != nil {
			w.fail("settings: %v", err)
		}
		terms := w.terms[team]
		terms.Guard = params.Guard{RefusePublic: true, Parameters: []string{"policy", "cors", "encryption"}}
		w.terms[team] = terms
		for _, c := range []struct {
			given map[string]string
			says  string
			ours  bool
		}{
			{map[string]string{"policy": `{"Statement":[{"Effect":"Maybe"}]}`}, "Effect", true},
			{map[string]string{"policy": everyone}, "makes the bucket public", true},
			{map[string]string{"policy": writers, "versioning": "Enabled"}, "a BucketSettings may not give versioning", true},
			{map[string]string{"policy": writers, "encryption": "AES256"}, "has no encryption", false},
		} {
			_, err := w.configure(p, c.given)
			if err == nil || !strings.Contains(err.Error(), c.says) || (c.ours != errors.Is(err, ErrNotAccepted)) {
				w.fail("%v: %v", c.given, err)
			}
			w.is("refused", map[string]string{"policy": "GetObject", "versioning": "!Enabled"})
			w.must("a repeat", func() error { return w.create(p, "data", nil) })
			w.must("drift", func() error { return w.inspect(p) })
			w.is("after a repeat", map[string]string{"policy": "GetObject", "versioning": "!Enabled"})
		}
		record, err := w.records().Bucket(w.ctx(), dataID)
		if err != nil || record.Leaving != nil || record.Settings.Parameters["policy"] != readers {
			w.fail("the record is %+v, %v", record, err)
		}
		w.end(p)
	})
}

// A Bucket can come to be another claim's. A contract for one namespace takes no settings
// from another.
func TestSettingsFromAnotherNamespace(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		terms := w.terms[team]
		for _, c := range []struct {
			namespace string
			refused   bool
		}{{"red", true}, {"blu", true}, {"blue", false}, {"", false}} {
			terms.Namespace = c.namespace
			w.terms[team] = terms
			_, err := w.configure(p, map[string]string{"policy": readers})
			if errors.Is(err, ErrNotAccepted) != c.refused || (err != nil) != c.refused {
				w.fail("a contract for namespace %q: %v", c.namespace, err)
			}
			policy := "GetObject"
			if c.refused {
				policy = "!GetObject"
			}
			w.is(c.namespace, map[string]string{"policy": policy})
		}
		terms.Namespace = "red" // which has it now
		w.terms[team] = terms
		if _, err := w.configure(p, nil); err != nil {
			w.fail("withdrawn: %v", err)
		}
		w.is("withdrawn", map[string]string{"policy": "!GetObject"})
	})
}

// Whatever step a change ends at, the next one leaves nothing of it.
func TestSettingsThatAreCutShort(t *testing.T) {
	t.Parallel()
	class := map[string]string{"expireAfterDays": "9"}
	first := map[string]string{"policy": readers, "tags": "first=1"}
	cut := map[string]string{"corsOrigins": "https://cut.example.com", "tags": "cut=1", "acl": "public-read", "expireAfterDays": "3"}
	then := map[string]string{"versioning": "Enabled"}
	for _, f := range []fate{lost, refused, unanswered, killed, killedThen} {
		for _, next := range []map[string]string{then, nil} {
			done := false
			for step := 0; !done && step < 60; step++ {
				in(t, memory.Chosen, false, func(w *world, p *process) {
					w.must("create", func() error { return w.create(p, "data", class) })
					if _, err := w.configure(p, first); err != nil {
						w.fail("settings: %v", err)
					}
					w.sched.follow(func(n int, _ string) fate {
						if n == step {
							return f
						}
						return carried
					})
					_, err := w.configure(p, cut)
					w.sched.follow(nil)
					done = err == nil && step > 5
					if p.killed() {
						p.Wait()
						p = w.start()
					}
					if step%2 == 0 {
						w.must("a repeat", func() error { return w.create(p, "data", class) })
						w.must("drift", func() error { return w.inspect(p) })
					}
					w.must("the next", func() error { _, err := w.configure(p, next); return err })
					want := map[string]string{"policy": "!Statement", "cors": "!cut", "tagging": "!cut", "acl": "!AllUsers", "lifecycle": "9", "versioning": "!Enabled"}
					if next != nil {
						want["versioning"] = "Enabled"
					}
					w.is(fmt.Sprintf("%s at step %d", f, step), want)
					w.is("the first", map[string]string{"tagging": "!first"})
					if record, err := w.records().Bucket(w.ctx(), dataID); err != nil || record.Leaving != nil {
						w.fail("the record is %+v, %v", record, err)
					}
					w.end(p)
				})
				if t.Failed() {
					t.Fatalf("%s at step %d", f, step)
				}
			}
			if !done {
				t.Error("no end of steps")
			}
		}
	}
}

// Random settings, beside repeats, drift and two drivers that are killed, end in what
// was said last.
func TestRandomSettings(t *testing.T) {
	t.Parallel()
	for n := range *seeds * 3 {
		s := uint64(n) + 1
		if *seed != 0 {
			s = *seed
		}
		synctest.Test(t, func(t *testing.T) { randomSettings(t, s) })
		if t.Failed() {
			t.Fatalf("with -seed %d", s)
		}
	}
}

func randomSettings(t *testing.T, seed uint64) {
	w := newWorld(t, memory.Chosen, false, seed)
	class := map[string]string{"tags": "of=class", "policy": readers}
	w.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: config.Keep}
	drivers := []*process{w.start(), w.start()}
	w.must("create", func() error { return w.create(w.alive(drivers), "data", class) })
	fates := []fate{lost, refused, unanswered, killed, killedThen}
	faults := rand.New(rand.NewPCG(seed, 1))
	w.sched.follow(func(int, string) fate {
		if faults.IntN(15) == 0 {
			return fates[faults.IntN(len(fates))]
		}
		return carried
	})
	choices := map[string][]string{
		"policy": {writers, everyone}, "tags": {"a=1", "b=2,c=3"}, "corsOrigins": {"https://a.example.com", "https://b.example.com"},
		"expireAfterDays": {"3", "4"}, "acl": {"public-read"}, "versioning": {"Enabled"}, "encryption": {"AES256"}, // which the service does not have
	}
	var wanted map[string]string
	for range 30 {
		synctest.Wait()
		i := w.rand.IntN(2)
		if drivers[i].killed() {
			drivers[i].Wait()
			drivers[i] = w.start()
		}
		switch p := drivers[i]; w.rand.IntN(5) {
		case 0:
			_ = w.create(p, "data", class)
		case 1:
			_ = w.inspect(p)
		default:
			if wanted = nil; w.rand.IntN(5) > 0 {
				wanted = map[string]string{}
				for _, name := range slices.Sorted(maps.Keys(choices)) {
					if w.rand.IntN(3) == 0 {
						wanted[name] = choices[name][w.rand.IntN(len(choices[name]))]
					}
				}
				delete(wanted, []string{"encryption", ""}[w.rand.IntN(2)])
			}
			_, _ = w.configure(p, wanted)
		}
	}
	w.sched.follow(nil)
	p := w.start()
	delete(wanted, "encryption")
	w.must("at the end", func() error { _, err := w.configure(p, wanted); return err })
	w.must("a repeat", func() error { return w.create(p, "data", class) })
	var got Configured
	w.must("a look", func() (err error) {
		s := &journal.Settings{Claim: "blue/photos", Parameters: map[string]string{}}
		maps.Copy(s.Parameters, wanted)
		got, err = p.Configure(context.Background(), dataID, s, true)
		return err
	})
	want, _ := params.ParseBucket(map[string]string{"contract": team, "tags": "of=class", "policy": readers})
	want, err := want.With(wanted)
	if err != nil || len(got.Effective.Differences(want)) > 0 || len(got.State.Differing) > 0 {
		w.fail("it is %+v, and not as %v says", got, wanted)
	}
	for option, given := range map[string]string{"cors": "corsOrigins", "lifecycle": "expireAfterDays", "acl": "acl"} {
		if _, has := got.State.Has[option]; has != (wanted[given] != "") {
			w.fail("%s is %q, and %v was wanted", option, got.State.Has[option], wanted)
		}
	}
	if !maps.Equal(got.State.Tags, want.Tags) {
		w.fail("the tags are %v, and not %v", got.State.Tags, want.Tags)
	}
	w.end(p)
}

// Settings whose BucketSettings is gone go at last: also if the service was away at that
// time, or the driver was killed, and although it refuses something else of the class.
func TestSettingsThatAreGoneDoNotComeBack(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		if _, err := w.configure(p, map[string]string{"policy": everyone}); err != nil {
			w.fail("settings: %v", err)
		}
		terms := w.terms[team]
		terms.Defaults.BucketClass = map[string]string{"encryption": "AES256"} // which the service does not have
		w.terms[team] = terms
		if _, err := w.configure(p, nil); !fault.Is(err, fault.FailedPrecondition) {
			w.fail("it says %v", err)
		}
		w.is("refused", map[string]string{"policy": "!GetObject"})
		w.service.SetDocument("data", "policy", everyone) // as if it had been cut short before
		if settled, err := p.Settled(w.ctx()); err != nil || len(settled["blue/photos"]) != 1 {
			w.fail("it is forgotten: %v, %v", settled, err)
		}
		terms.Defaults.BucketClass = nil
		w.terms[team] = terms
		w.must("again", func() error { _, err := w.configure(p, nil); return err })
		w.is("gone", map[string]string{"policy": "!GetObject"})
		record, err := w.records().Bucket(w.ctx(), dataID)
		if err != nil || record.Leaving != nil || record.Settings != nil {
			w.fail("the record is %+v, %v", record, err)
		}
		w.end(p)
	})
}

// Whatever step a withdrawal ends at, it is known, and the next one completes it.
func TestWithdrawalThatIsCutShort(t *testing.T) {
	t.Parallel()
	for _, f := range []fate{lost, refused, unanswered, killed, killedThen} {
		done := false
		for step := 0; !done && step < 60; step++ {
			in(t, memory.Chosen, false, func(w *world, p *process) {
				w.must("create", func() error { return w.create(p, "data", nil) })
				if _, err := w.configure(p, map[string]string{"policy": everyone}); err != nil {
					w.fail("settings: %v", err)
				}
				w.sched.follow(func(n int, _ string) fate {
					if n == step {
						return f
					}
					return carried
				})
				_, err := w.configure(p, nil)
				w.sched.follow(nil)
				done = err == nil && step > 5
				if p.killed() {
					p = w.start()
				}
				settled, listErr := p.Settled(w.ctx())
				if open := strings.Contains(w.service.Document("data", "policy"), "GetObject"); listErr != nil || open && len(settled["blue/photos"]) == 0 {
					w.fail("%v at step %d: the bucket has the settings, and it is forgotten: %v", f, step, listErr)
				}
				w.must("again", func() error { _, err := w.configure(p, nil); return err })
				w.is("gone", map[string]string{"policy": "!GetObject"})
				record, err := w.records().Bucket(w.ctx(), dataID)
				if err != nil || record.Leaving != nil || record.Settings != nil {
					w.fail("%v at step %d: the record is %+v, %v", f, step, record, err)
				}
				w.end(p)
			})
		}
	}
}
