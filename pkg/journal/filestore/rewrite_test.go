package filestore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// filler returns a record that takes some bytes.
func filler(n, size int) *journal.Bucket {
	return &journal.Bucket{ID: bucketID(n), Requested: params.Bucket{Policy: strings.Repeat("x", size)}}
}

// A log is rewritten when most of it is outdated, while calls go on. All that was
// acknowledged is there afterwards, in the version it was last given.
func TestRewrittenWhileCallsGoOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.log")
	var rewrites atomic.Int32
	f, err := filestore.Open(t.Context(), path, func(operation string, err error) {
		if must(t, err); operation == "rewrite" {
			rewrites.Add(1)
		}
	})
	must(t, err)
	j := journal.New(f)
	const writers = 8
	var last [writers]int
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			changed, gone := filler(w, 30_000), filler(writers+w, 10)
			for ; rewrites.Load() < 3; last[w]++ {
				changed.Requested.Region = fmt.Sprint(last[w])
				must(t, j.SaveBucket(t.Context(), changed))
				must(t, j.SaveBucket(t.Context(), gone))
				must(t, j.Delete(t.Context(), gone))
				gone = filler(writers+w, 10)
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // a second driver, which never gets in
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if second, err := filestore.Open(context.Background(), path, nil); err == nil {
				t.Error("a second process has opened the journal")
				_ = second.Close()
			} else if !strings.Contains(err.Error(), "in use by another process") {
				t.Error(err)
			}
		}
	}()
	group.Wait()
	close(stop)
	<-stopped
	must(t, f.Close())
	if info, err := os.Stat(path); err != nil || info.Size() > 20<<20 {
		t.Errorf("the file has %d bytes (%v)", info.Size(), err)
	}
	j = journal.New(open(t, path))
	for w := range writers {
		if b, err := j.Bucket(t.Context(), bucketID(w)); err != nil || b.Requested.Region != fmt.Sprint(last[w]-1) {
			t.Errorf("writer %d: %v, want change %d", w, err, last[w]-1)
		}
	}
	if n, err := j.Count(t.Context(), journal.Buckets); n != writers || err != nil {
		t.Errorf("%d buckets (%v), want %d", n, err, writers)
	}
	expectNoDrafts(t, path)
}

// While calls wait for a rewrite, little is copied into room that is there, however
// much there is and was written meanwhile. One that calls write faster than it can
// follow them ends all the same.
func TestLittleIsLeftToCopy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, during int }{
		"idle": {5, 0}, "one change": {5, 1}, "more": {5, 20}, "much": {50, 300}, "no room for three": {50, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "journal.log")
			f := open(t, path)
			j := journal.New(f)
			for i := range c.before {
				must(t, j.SaveBucket(t.Context(), filler(i, 20_000)))
			}
			left, grows, err := f.Approach(func() {
				for i := range c.during {
					must(t, j.SaveBucket(t.Context(), filler(c.before+i, 20_000)))
				}
			})
			if left > filestore.MostBehind || grows != 0 || err != nil {
				t.Errorf("calls wait until %d bytes are copied and the file has grown by %d (%v)", left, grows, err)
			}
			f.Settle()
			expectNoDrafts(t, path)
		})
	}
	f := open(t, filepath.Join(t.TempDir(), "journal.log"))
	stop := f.KeepBusy(filestore.MostBehind + 1)
	err := f.Rewrite()
	stop()
	must(t, err)
}

func expectNoDrafts(t *testing.T, path string) {
	t.Helper()
	if left, _ := filepath.Glob(path + ".new-*"); len(left) > 0 {
		t.Errorf("drafts are left: %s", left)
	}
}

// A rewrite that fails is counted, logged once, shown by Check, and tried again
// when what is outdated has doubled or Check is asked later. Calls go on.
func TestRewriteThatFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.log")
	var output bytes.Buffer // klog writes a line at a time, under a lock
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&output))))
	var failed, done atomic.Int32
	f, err := filestore.Open(ctx, path, func(operation string, err error) {
		switch {
		case operation == "rewrite" && err != nil:
			failed.Add(1)
		case operation == "rewrite":
			done.Add(1)
		default:
			must(t, err)
		}
	})
	must(t, err)
	must(t, os.Link(path, path+".link")) // what is in the way
	j := journal.New(f)
	b := filler(0, 1<<20)
	for range 20 { // MiB; rewrites are due beyond 8, and if that fails at 16
		must(t, j.SaveBucket(t.Context(), b))
		f.Settle()
	}
	if n := failed.Load(); n < 1 || n > 2 {
		t.Errorf("%d rewrites were tried, want at most 2", n)
	}
	// Check tries again, but not each time.
	must(t, os.Remove(path+".link"))
	before := failed.Load()
	for range 10 {
		if err := f.Check(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), path+" cannot be rewritten without what is outdated (has another name") {
			t.Fatalf("check says %v", err)
		}
	}
	f.Settle()
	if failed.Load() != before || done.Load() != 0 {
		t.Error("each check has tried a rewrite")
	}
	f.Later()
	if err := f.Check(t.Context()); err == nil {
		t.Error("check says that all is well before it was rewritten")
	}
	f.Settle()
	must(t, f.Check(t.Context()))
	if info, err := os.Stat(path); err != nil || info.Size() > 8<<20 {
		t.Errorf("the file has %d bytes (%v)", info.Size(), err)
	}
	must(t, j.SaveBucket(t.Context(), b))
	must(t, f.Close())
	for line, want := range map[string]int{"cannot be rewritten without what is outdated, and grows": 1, "file was rewritten": 1} {
		if n := strings.Count(output.String(), line); n != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", line, n, want, output.String())
		}
	}
	if _, err := journal.New(open(t, path)).Bucket(t.Context(), b.ID); err != nil {
		t.Error(err)
	}
}

// A rewrite that runs out of room on the way, or that may not replace the file,
// leaves all as it was.
func TestRewriteWithoutRoom(t *testing.T) { mountingChild(t, "no-room") }

// leave fills a disk up with a file, except for some bytes.
func leave(dir, ballast string, room int) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return err
	}
	return os.WriteFile(ballast, make([]byte, int(disk.Bavail)*int(disk.Bsize)-room), 0o600)
}

func noRoomChild(dir string) int {
	err := func() error {
		if err := smallDisk(dir, "16m"); err != nil {
			return err
		}
		path, ballast := filepath.Join(dir, "journal.log"), filepath.Join(dir, "ballast")
		ctx := context.Background()
		f, err := filestore.Open(ctx, path, nil)
		if err != nil {
			return err
		}
		j := journal.New(f)
		written := 0
		write := func() error {
			written++
			return j.SaveBucket(ctx, filler(written, 20_000))
		}
		for written < 100 && err == nil {
			err = write()
		}
		if err != nil {
			return err
		}
		fails := func(why string) error {
			rewrite := f.Rewrite()
			if !fault.Is(rewrite, fault.Unavailable) || !strings.Contains(rewrite.Error(), "cannot be rewritten without what is outdated ("+why+")") {
				return fmt.Errorf("a rewrite: %w", rewrite)
			}
			if check := f.Check(ctx); !errors.Is(check, rewrite) {
				return fmt.Errorf("check says %w", check)
			}
			if left, _ := filepath.Glob(path + ".new-*"); len(left) > 0 {
				return fmt.Errorf("drafts are left: %s", left)
			}
			return write()
		}
		for _, room := range []int{0, 10_000, 1 << 20, 3 << 19} { // of more than 2 MiB that it needs
			if err := leave(dir, ballast, room); err != nil {
				return err
			}
			if err := fails("no space left on device"); err != nil {
				return fmt.Errorf("with %d bytes left: %w", room, err)
			}
			if err := os.Remove(ballast); err != nil {
				return err
			}
		}
		// What a draft takes is not missed by calls, for which there is room.
		for range 8 {
			if err := leave(dir, ballast, 1100<<10); err != nil { // the file grows by 1 MiB
				return err
			}
			begin, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for range begin {
					_ = f.Rewrite()
				}
			}()
			for i := 0; i < 50 && err == nil; i++ {
				select {
				case begin <- struct{}{}:
				default: // one is under way
				}
				b := filler(0, 20_000)
				err = errors.Join(j.SaveBucket(ctx, b), j.Delete(ctx, b))
			}
			close(begin)
			<-stopped
			if err := errors.Join(err, os.Remove(ballast)); err != nil {
				return fmt.Errorf("beside rewrites that fail: %w", err)
			}
		}
		// A file that is mounted by itself cannot be replaced.
		if err := syscall.Mount(path, path, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		if err := fails("device or resource busy"); err != nil {
			return err
		}
		if err := syscall.Unmount(path, 0); err != nil {
			return err
		}
		f.Later()
		_ = f.Check(ctx)
		if err := errors.Join(f.Rewrite(), f.Check(ctx), write(), f.Close()); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
		if f, err = filestore.Open(ctx, path, nil); err != nil {
			return err
		}
		if n, err := journal.New(f).Count(ctx, journal.Buckets); n != written || err != nil {
			return fmt.Errorf("%d of %d records are there (%w)", n, written, err)
		}
		return nil
	}()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// A journal that is closed while it is rewritten is whole.
func TestClosedWhileRewritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.log")
	for i := range 20 {
		f := open(t, path)
		must(t, journal.New(f).SaveBucket(t.Context(), filler(i, 1000)))
		var group sync.WaitGroup
		group.Go(func() { _ = f.Rewrite() })
		must(t, f.Close())
		group.Wait()
	}
	if n, err := journal.New(open(t, path)).Count(t.Context(), journal.Buckets); n != 20 || err != nil {
		t.Errorf("%d buckets, %v", n, err)
	}
	expectNoDrafts(t, path)
}

// The write that shows whether the disk takes writes leaves nothing behind.
func TestProbeLeavesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.log")
	f := open(t, path)
	j := journal.New(f)
	fill(t, j, 2)
	sequence := func() uint64 { // of the frames
		b, err := j.Bucket(t.Context(), bucketID(0))
		must(t, err)
		must(t, j.SaveBucket(t.Context(), b))
		e, err := f.Get(t.Context(), journal.Key{Kind: journal.Buckets, ID: b.ID.String()})
		must(t, err)
		return e.Version >> 16
	}
	before := sequence()
	f.Break()
	size := firstBuildEnd(t, path)
	must(t, f.Check(t.Context()))
	probed := firstBuildEnd(t, path)
	if probed-size < 64<<10 {
		t.Errorf("check has written %d bytes", probed-size)
	}
	must(t, f.Check(t.Context()))
	if firstBuildEnd(t, path) != probed {
		t.Error("a second check has written as well")
	}
	if n := sequence() - before; n != 2 {
		t.Errorf("check has written %d frames, want 1: between two of them a process can be killed", n-1)
	}
	for key := range firstBuild(t, path) {
		if key.Kind == journal.Probe {
			t.Errorf("%s is left behind", key)
		}
	}
	// Whatever a kill leaves of it.
	must(t, f.Close())
	text, err := os.ReadFile(path)
	must(t, err)
	for at := size; at < probed; at = at/4096*4096 + 4096 { // pages go to the file one after the other
		cut := append(bytes.Clone(text[:at]), make([]byte, len(text)-int(at))...)
		must(t, os.WriteFile(path, cut, 0o600))
		f := open(t, path)
		var out strings.Builder
		if n, err := journal.Export(t.Context(), f, "owner", &out); n != 5 || err != nil || strings.Contains(out.String(), "probe") {
			t.Fatalf("cut at %d: %d entries, %v", at, n, err)
		}
		must(t, f.Close())
	}
}

// writerChild changes and deletes records and rewrites the file as fast as it
// can, and says what it has been told is written, until it is killed.
func writerChild(path string) int {
	f, err := filestore.Open(context.Background(), path, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	go func() {
		for {
			_ = f.Rewrite()
		}
	}()
	j := journal.New(f)
	for n := 0; ; n++ {
		b := filler(n, 2000)
		err := j.SaveBucket(context.Background(), b)
		if n%3 == 0 {
			err = errors.Join(err, j.Delete(context.Background(), b))
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(n)
	}
}

// A process that is killed at any moment of a rewrite loses nothing that it was
// told is written, and what it leaves is cleaned up.
func TestKilledWhileRewriting(t *testing.T) {
	t.Parallel()
	for round := range 12 {
		path := filepath.Join(t.TempDir(), "journal.log")
		self, err := os.Executable()
		must(t, err)
		cmd := exec.CommandContext(t.Context(), self, path)
		cmd.Env = append(os.Environ(), "JOURNAL_TEST_CHILD=write")
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		said := -1
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n := -1
			if _, err := fmt.Sscan(lines.Text(), &n); err != nil {
				t.Fatal(lines.Text())
			}
			if said = n; said == 20+7*round {
				_ = cmd.Process.Kill() // and what it has said until then is read
			}
		}
		_ = cmd.Wait()
		j := journal.New(open(t, path))
		for n := range said + 1 {
			_, err := j.Bucket(t.Context(), bucketID(n))
			if n%3 == 0 && !fault.Is(err, fault.NotFound) || n%3 != 0 && err != nil {
				t.Errorf("round %d, record %d of %d: %v", round, n, said, err)
			}
		}
		expectNoDrafts(t, path)
	}
}
