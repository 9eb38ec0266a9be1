package drift

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
)

var contractID = cosi.ContractID{Backend: "main", Contract: "team-a"}

// inspector writes down who was looked at, and when.
type inspector struct {
	calls int64 // of each look
	uses  []contract.BucketUse
	look  func(ctx context.Context) error
	due   map[string]error // of a record, why what is due cannot be done

	mu     sync.Mutex
	looked map[string][]time.Time
	repair map[string]bool
}

func (i *inspector) saw(ctx context.Context, id fmt.Stringer, repair bool) ([]provisioner.Finding, error) {
	i.mu.Lock()
	i.looked[id.String()] = append(i.looked[id.String()], time.Now())
	i.repair[id.String()] = repair
	i.mu.Unlock()
	ctx.Value(countKey{}).(*atomic.Int64).Add(i.calls)
	if i.look != nil {
		return nil, i.look(ctx)
	}
	return []provisioner.Finding{{What: "policy", Repaired: repair}}, nil
}

func (i *inspector) InspectContract(ctx context.Context, id cosi.ContractID, repair bool) ([]provisioner.Finding, error) {
	return i.saw(ctx, id, repair)
}

func (i *inspector) InspectBucket(ctx context.Context, id cosi.BucketID, repair bool) ([]provisioner.Finding, error) {
	return i.saw(ctx, id, repair)
}

func (i *inspector) InspectAccount(ctx context.Context, id cosi.AccountID, repair bool) ([]provisioner.Finding, error) {
	return i.saw(ctx, id, repair)
}

func (i *inspector) MeasureContract(context.Context, cosi.ContractID) ([]contract.BucketUse, bool, error) {
	return i.uses, i.uses != nil, nil
}

func (i *inspector) Tend(_ context.Context, key journal.Key) error { return i.due[key.ID] }

// world is a journal with buckets, and settings that can change.
type world struct {
	*inspector
	Config
	settings atomic.Pointer[config.Drift]
	passes   atomic.Int64
	found    atomic.Int64
	measured []string
}

func newWorld(t testing.TB, buckets int, s config.Drift) *world {
	t.Helper()
	store, err := filestore.Open(t.Context(), filepath.Join(t.TempDir(), "journal"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	j := journal.New(store)
	var group sync.WaitGroup
	for n := range buckets {
		group.Go(func() {
			if err := j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(n)}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	w := &world{inspector: &inspector{calls: 3, looked: map[string][]time.Time{}, repair: map[string]bool{}}}
	w.settings.Store(&s)
	w.Config = Config{
		Journal: j, Inspector: w.inspector, Timeout: time.Minute,
		Settings: func() config.Drift { return *w.settings.Load() },
		Mode:     func(string) config.DriftMode { return w.settings.Load().Mode },
		Recorder: w,
	}
	return w
}

func bucketID(n int) cosi.BucketID {
	return cosi.BucketID{ContractID: contractID, Bucket: fmt.Sprintf("bucket-%d", n)}
}

// run runs for a while of the bubble's time.
func (w *world) run(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(quiet(t), d)
	defer cancel()
	Run(ctx, w.Config)
}

func quiet(t *testing.T) context.Context {
	return klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard))))
}

// Each thing is looked at once in an interval, always at the same time of it,
// and the looks are spread evenly.
func TestTurns(t *testing.T) {
	const buckets, intervals, interval = 600, 4, time.Hour
	w := newWorld(t, buckets, config.Drift{Mode: config.DriftReport, Interval: interval, CallsPerSecond: 100})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w.run(t, intervals*interval)
		tenths := make([]int, 10)
		for n := range buckets {
			looks := w.looked[bucketID(n).String()]
			if len(looks) != intervals {
				t.Fatalf("bucket %d was looked at %d times in %d intervals", n, len(looks), intervals)
			}
			at := looks[0].Sub(start) % interval
			tenths[at*10/interval]++
			for _, again := range looks {
				if off := (again.Sub(start)%interval - at).Abs(); off > 2*time.Second {
					t.Errorf("bucket %d has its turn at %s and once at %s", n, at, again.Sub(start)%interval)
				}
			}
		}
		for i, n := range tenths {
			if n < buckets/10/2 || n > buckets/10*2 {
				t.Errorf("%d of %d looks are in tenth %d of the interval: %v", n, buckets, i, tenths)
			}
		}
		if n := w.found.Load(); n != buckets*intervals {
			t.Errorf("%d findings", n)
		}
	})
}

// A clock that is set while the driver runs neither holds turns up nor brings them all at
// once: a time that has the reading of the clock that cannot be set says so when printed.
func TestTurnsAreByTheClockThatCannotBeSet(t *testing.T) {
	now := time.Now()
	begin, ago := began(now, time.Hour)
	if !begin.Round(0).Equal(now.Truncate(time.Hour)) || now.Sub(begin) != ago || !strings.Contains(begin.String(), " m=") {
		t.Errorf("the interval of %s began at %s, %s ago", now, begin, ago)
	}
}

// The calls of all looks keep to the rate, though the interval is overrun; and
// everything has its turn then, too.
func TestRate(t *testing.T) {
	const buckets, perSecond = 300, 10
	w := newWorld(t, buckets, config.Drift{Mode: config.DriftReport, Interval: time.Minute, CallsPerSecond: perSecond})
	synctest.Test(t, func(t *testing.T) {
		const lasts = 10 * time.Minute
		w.run(t, lasts)
		looks, least := 0, 1000
		for n := range buckets {
			k := len(w.looked[bucketID(n).String()])
			looks, least = looks+k, min(least, k)
		}
		most := int(lasts.Seconds())*perSecond + atOnce*int(w.calls)
		if calls := looks * int(w.calls); calls > most || calls < most*9/10 {
			t.Errorf("%d calls, at the rate they are %d", calls, most)
		}
		if want := looks/buckets - 1; least < want {
			t.Errorf("one was looked at %d times, on average it was %d times", least, looks/buckets)
		}
		if w.passes.Load() == 0 {
			t.Error("no pass has ended")
		}
	})
}

// The mode is a contract's own, and settings that change hold at once.
func TestModes(t *testing.T) {
	w := newWorld(t, 20, config.Drift{Mode: config.DriftOff, Interval: time.Hour, CallsPerSecond: 100})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(quiet(t))
		done := make(chan struct{})
		go func() { Run(ctx, w.Config); close(done) }()
		sleep := func(d time.Duration) int {
			time.Sleep(d)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.looked)
		}
		if n := sleep(2 * time.Hour); n != 0 {
			t.Errorf("%d looks with mode off", n)
		}
		w.settings.Store(&config.Drift{Mode: config.DriftRepair, Interval: time.Minute, CallsPerSecond: 100})
		if n := sleep(2*time.Minute + 2*attention); n != 20 || !w.repair[bucketID(7).String()] {
			t.Errorf("%d looks with mode repair in the new interval, repair is %v", n, w.repair[bucketID(7).String()])
		}
		cancel()
		<-done
	})
}

// A stop does not wait for a look that waits for a service.
func TestStop(t *testing.T) {
	w := newWorld(t, 20, config.Drift{Mode: config.DriftReport, Interval: time.Minute, CallsPerSecond: 100})
	w.look = func(ctx context.Context) error {
		<-ctx.Done()
		return fault.In(ctx.Err(), "silence")
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w.run(t, 3*time.Minute/2)
		if took := time.Since(start); took > 3*time.Minute/2+attention {
			t.Errorf("the stop took %s", took-3*time.Minute/2)
		}
		if len(w.looked) == 0 {
			t.Error("nothing was looked at")
		}
	})
}

// What could not be done because something is away does not wait for its next turn.
func TestAgain(t *testing.T) {
	w := newWorld(t, 3, config.Drift{Mode: config.DriftOff, Interval: time.Hour, CallsPerSecond: 100})
	w.due = map[string]error{bucketID(1).String(): fault.New(fault.Unavailable, "away"), bucketID(2).String(): fault.New(fault.Conflict, "not ours")}
	var again []string
	w.Again = func(key journal.Key) { again = append(again, key.ID) }
	synctest.Test(t, func(t *testing.T) { w.run(t, time.Hour-time.Second) })
	if !slices.Equal(again, []string{bucketID(1).String()}) {
		t.Errorf("again are %v", again)
	}
}

// What buckets hold is asked once for each contract and interval, whatever the mode.
func TestMeasured(t *testing.T) {
	for _, mode := range []config.DriftMode{config.DriftOff, config.DriftRepair} {
		w := newWorld(t, 20, config.Drift{Mode: mode, Interval: time.Hour, CallsPerSecond: 100})
		w.uses = []contract.BucketUse{{Bucket: "bucket-1"}}
		for _, name := range []string{"team-a", "team-b"} {
			if err := w.Journal.SaveContract(t.Context(), &journal.Contract{ID: cosi.ContractID{Backend: "main", Contract: name}}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Test(t, func(t *testing.T) { w.run(t, 3*time.Hour) })
		slices.Sort(w.measured)
		if !slices.Equal(slices.Compact(slices.Clone(w.measured)), []string{"main.team-a/bucket-1", "main.team-b/bucket-1"}) || len(w.measured) != 6 {
			t.Errorf("%s: measured %q", mode, w.measured)
		}
	}
}

// Memory does not grow with the number of records.
func TestMemory(t *testing.T) {
	allocatedByPass := func(buckets int) uint64 {
		w := newWorld(t, buckets, config.Drift{Mode: config.DriftReport, Interval: time.Hour, CallsPerSecond: 1_000_000})
		w.Inspector = silent{}
		var most uint64
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			go Run(ctx, w.Config)
			for range 12 { // each tenth of an interval
				time.Sleep(6 * time.Minute)
				runtime.GC()
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc-min(before.HeapAlloc, now.HeapAlloc))
			}
			cancel()
			synctest.Wait()
		})
		return most
	}
	few, many := allocatedByPass(500), allocatedByPass(10_000)
	t.Logf("a pass holds up to %d KiB for 500 buckets and %d KiB for 10,000", few>>10, many>>10)
	if many > 256<<10 {
		t.Errorf("a pass holds %d KiB for 500 buckets and %d KiB for 10,000", few>>10, many>>10)
	}
}

type silent struct{ Inspector }

func (silent) Tend(context.Context, journal.Key) error { return nil }

func (silent) InspectBucket(context.Context, cosi.BucketID, bool) ([]provisioner.Finding, error) {
	return nil, nil
}

// Calls are counted where drift is looked for, and nowhere else.
func TestCounted(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	client := &http.Client{Transport: Counted(http.DefaultTransport)}
	get := func(ctx context.Context) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	ctx, n := count(t.Context())
	get(t.Context())
	get(ctx)
	get(ctx)
	if n.Load() != 2 {
		t.Errorf("%d calls counted", n.Load())
	}
}

func (w *world) Looked(string, error) {}
func (w *world) Measured(ctx context.Context, id cosi.ContractID, all []contract.BucketUse) {
	if _, ends := ctx.Deadline(); !ends {
		panic("it may take for as long as it likes, and nothing else is looked at")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.measured = append(w.measured, id.String()+"/"+all[0].Bucket)
}
func (w *world) Found(string, bool) { w.found.Add(1) }
func (w *world) Passed()            { w.passes.Add(1) }
