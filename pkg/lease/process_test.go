package lease

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
)

// A name is had by one living process at a time, and comes back with the directory.
func TestIdentity(t *testing.T) {
	t.Parallel()
	identity := func(dir, owner string) process {
		t.Helper()
		p, err := identify(Config{Dir: dir, Owner: owner})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.letGo)
		return p
	}
	here, there := t.TempDir(), t.TempDir()
	first := identity(here, "x")
	for name, other := range map[string]process{
		"another process in the directory": identity(here, "x"),
		"another directory":                identity(there, "x"),
		"another journal":                  identity(here, "y"),
		"no directory":                     identity("", "x"),
	} {
		if other.identity == first.identity {
			t.Errorf("%s: the same name %s", name, first.identity)
		}
	}
	for _, c := range []Config{{Dir: t.TempDir()}, {Dir: there, Owner: "z"}} { // beside the others, which go on
		before := identity(c.Dir, c.Owner)
		before.letGo()
		if again := identity(c.Dir, c.Owner); again.identity != before.identity {
			t.Errorf("a restarted process is %s, and was %s", again.identity, before.identity)
		}
	}
	if _, err := identify(Config{Dir: filepath.Join(here, "none")}); err == nil {
		t.Error("a directory that is not there names a process")
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	now := clock()
	first, begun := now(), time.Now()
	for now() == first {
	}
	if took, most := now()-first, time.Since(begun)+time.Second; took < 0 || took > most {
		t.Errorf("%s in at most %s", took, most)
	}
}

// Two drivers with their own names at a server in the network, in real time.
func TestOpen(t *testing.T) {
	t.Parallel()
	kube := kubefake.Start(t)
	open := func(dir string) *Lease {
		l, err := Open(t.Context(), kube.Config(), Config{
			Namespace: kubefake.Namespace, Owner: owner, Dir: dir, Taken: func(context.Context) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close(t.Context()) })
		return l
	}
	enter := func(l *Lease) {
		t.Helper()
		ctx, leave, err := l.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		if err := transport.May(ctx, transport.AttemptTimeout); err != nil {
			t.Error(err)
		}
	}
	dir := t.TempDir()
	a, b := open(dir), open(t.TempDir())
	enter(a)
	enter(b)
	enter(a)
	a.Close(t.Context())
	enter(b)
	if held := a.Held(); held {
		t.Error("a closed one is held")
	}
	again := open(dir)
	enter(again)
	if again.identity != a.identity {
		t.Errorf("a restarted process is %s, and was %s", again.identity, a.identity)
	}
}

// A call at the holder costs no call at the API server, and almost no time.
func BenchmarkEnter(b *testing.B) {
	l, err := Open(b.Context(), kubefake.Start(b).Config(), Config{
		Namespace: kubefake.Namespace, Owner: owner, Taken: func(context.Context) error { return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(b.Context())
	for name, enter := range map[string]func(context.Context) (context.Context, func(), error){"call": l.Enter, "idle": l.EnterIdle} {
		b.Run(name, func(b *testing.B) {
			if _, leave, err := l.Enter(b.Context()); err != nil {
				b.Fatal(err)
			} else {
				leave()
			}
			b.ReportAllocs()
			for b.Loop() {
				_, leave, err := enter(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				leave()
			}
		})
	}
	b.Run("attempt", func(b *testing.B) {
		ctx, leave, err := l.Enter(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer leave()
		for b.Loop() {
			if err := transport.May(ctx, transport.AttemptTimeout); err != nil {
				b.Fatal(err)
			}
		}
	})
}
