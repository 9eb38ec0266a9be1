package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// TestMain lets the test binary be a process of its own, for what only another
// process can show: a full disk, a file that its user may not write.
func TestMain(m *testing.M) {
	switch os.Getenv("JOURNAL_TEST_CHILD") {
	case "full-disk":
		os.Exit(fullDiskChild(os.Args[1]))
	case "no-room":
		os.Exit(noRoomChild(os.Args[1]))
	case "write":
		os.Exit(writerChild(os.Args[1]))
	case "open":
		if _, err := filestore.Open(context.Background(), os.Args[1], nil); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(t testing.TB, path string) *filestore.Store {
	t.Helper()
	f, err := filestore.Open(context.Background(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

var contractID = cosi.ContractID{Backend: "main", Contract: "team-a"}

func bucketID(n int) cosi.BucketID {
	return cosi.BucketID{ContractID: contractID, Bucket: fmt.Sprintf("bucket-%d", n)}
}

func accountID(n int) cosi.AccountID {
	return cosi.AccountID{ContractID: contractID, Account: fmt.Sprintf("ba-%d", n)}
}

// fill writes a contract, n buckets and an access to each.
func fill(t testing.TB, j *journal.Journal, n int) {
	t.Helper()
	must(t, j.SaveContract(t.Context(), &journal.Contract{ID: contractID, KeyState: journal.KeyState{Phase: journal.Done, Issued: pair("contract")}}))
	for i := range n {
		must(t, j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(i), Requested: params.Bucket{Contract: "team-a", OnDelete: params.Refuse}}))
		must(t, j.SaveAccount(t.Context(), &journal.Account{ID: accountID(i),
			Effective: journal.Grant{Buckets: []journal.BucketAccess{{Bucket: bucketID(i).Bucket, Mode: cosi.ReadWrite}}}, KeyState: journal.KeyState{Phase: journal.Done, Issued: pair(fmt.Sprint(i))},
		}))
	}
}

// expect checks that all of fill is there.
func expect(t testing.TB, j *journal.Journal, n int) {
	t.Helper()
	if c, err := j.Contract(t.Context(), contractID); err != nil || !reflect.DeepEqual(c.Issued, pair("contract")) {
		t.Fatalf("contract: %v", err)
	}
	for i := range n {
		if _, err := j.Bucket(t.Context(), bucketID(i)); err != nil {
			t.Fatal(err)
		}
		a, err := j.Account(t.Context(), accountID(i))
		if err != nil || a.Issued.SecretAccessKey.Reveal() != "secret-"+fmt.Sprint(i) {
			t.Fatalf("account %d: %v", i, err)
		}
	}
}

func pair(id string) secret.KeyPair {
	return secret.KeyPair{AccessKeyID: id, SecretAccessKey: secret.New("secret-" + id)}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRecordsSurviveReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.log")
	f := open(t, path)
	fill(t, journal.New(f), 5)
	must(t, f.Close())
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v (%v)", info.Mode(), err)
	}
	again := open(t, path)
	j := journal.New(again)
	expect(t, j, 5)
	for kind, want := range map[journal.RecordKind]int{journal.Contracts: 1, journal.Buckets: 5, journal.Accounts: 5} {
		if n, _ := j.Count(t.Context(), kind); n != want {
			t.Errorf("%d records of kind %s, want %d", n, kind, want)
		}
	}
}

func TestDeleteIsAllOrNone(t *testing.T) {
	j := journal.New(open(t, filepath.Join(t.TempDir(), "journal.log")))
	fill(t, j, 2)
	a, err := j.Account(t.Context(), accountID(0))
	must(t, err)
	outdated, err := j.Account(t.Context(), accountID(1))
	must(t, err)
	newer := *outdated
	must(t, j.SaveAccount(t.Context(), &newer))
	if err := j.Delete(t.Context(), a, outdated); !errors.Is(err, journal.ErrOvertaken) {
		t.Fatalf("got %v", err)
	}
	if _, err := j.Account(t.Context(), accountID(0)); err != nil {
		t.Errorf("one of two was deleted: %v", err)
	}
}

// Sixteen writers add one each to the same record until all have got through
// thirty times: compare-and-swap loses none and the group commit mixes none up.
func TestConcurrentWriters(t *testing.T) {
	j := journal.New(open(t, filepath.Join(t.TempDir(), "journal.log")))
	must(t, j.SaveContract(t.Context(), &journal.Contract{ID: contractID, KeyState: journal.KeyState{Phase: journal.Intent, Proposed: pair("")}}))
	var group sync.WaitGroup
	for w := range 16 {
		group.Go(func() {
			for i := range 30 {
				must(t, j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(w*100 + i)}))
				for {
					c, err := j.Contract(t.Context(), contractID)
					must(t, err)
					c.Proposed.AccessKeyID += "x"
					err = j.SaveContract(t.Context(), c)
					if err == nil {
						break
					}
					if !errors.Is(err, journal.ErrOvertaken) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	c, err := j.Contract(t.Context(), contractID)
	must(t, err)
	if n := len(c.Proposed.AccessKeyID); n != 16*30 {
		t.Errorf("%d increments, want %d", n, 16*30)
	}
	if n, _ := j.Count(t.Context(), journal.Buckets); n != 16*30 {
		t.Errorf("%d buckets, want %d", n, 16*30)
	}
}

func TestClosedJournalRefusesWrites(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "journal.log"))
	j := journal.New(f)
	must(t, f.Close())
	if err := j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(1)}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.log")
	open(t, path)
	_, err := filestore.Open(context.Background(), path, nil)
	if !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("got %v", err)
	}
}

// Whatever is done to the file: either it is refused with a clear error and
// left as it is, or nothing is missing.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.log")
	f := open(t, path)
	const n = 40
	fill(t, journal.New(f), n)
	must(t, f.Close())
	good, err := os.ReadFile(path)
	must(t, err)

	damages := map[string][]byte{"empty": {}, "text": []byte(strings.Repeat("not a journal ", 5000)), "zeroes": make([]byte, len(good))}
	for _, size := range []int{1, 47, 100, 4095, 4096, 8192, 12288, len(good) / 2, len(good) - 4096, len(good) - 1} {
		damages[fmt.Sprintf("cut to %d", size)] = good[:size]
	}
	r := rand.New(rand.NewPCG(1, 2))
	flip := func(at int) {
		bad := bytes.Clone(good)
		bad[at] ^= 0x55
		damages[fmt.Sprintf("byte %d", at)] = bad
	}
	used := len(bytes.TrimRight(good, "\x00"))
	for at := range 60 { // the head
		flip(at)
	}
	for range 600 { // the frames
		flip(4096 + r.IntN(used-4096))
	}
	for at := used - 40; at < used+40; at++ { // around the end
		flip(at)
	}
	// A sector of zeros. In the last frame it would be what a power cut leaves of
	// a write that no caller was told of.
	for at := 0; at < used-1024; at += 512 {
		bad := bytes.Clone(good)
		copy(bad[at:min(at+512, used)], make([]byte, 512))
		damages[fmt.Sprintf("sector %d", at/512)] = bad
	}
	refused := 0
	for name, bad := range damages {
		target := filepath.Join(dir, "damaged.db")
		must(t, os.WriteFile(target, bad, 0o600))
		f, err := filestore.Open(t.Context(), target, nil)
		if err == nil {
			expect(t, journal.New(f), n)
			must(t, f.Close())
			continue
		}
		refused++
		if !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), target) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := os.ReadFile(target); !bytes.Equal(after, bad) {
			t.Errorf("%s: the refused file was changed", name)
		}
	}
	t.Logf("%d of %d damages refused, the others touched nothing that is in use", refused, len(damages))
	if unnoticed := len(damages) - refused; unnoticed > 60 {
		t.Errorf("%d of %d damages were not noticed", unnoticed, len(damages))
	}
}

// child runs this test binary again as another process.
func child(t *testing.T, what, path string, attributes *syscall.SysProcAttr) (string, error) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, path)
	cmd.Env = append(os.Environ(), "JOURNAL_TEST_CHILD="+what)
	cmd.SysProcAttr = attributes
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestFileThatMayNotBeWritten(t *testing.T) {
	dir, err := os.MkdirTemp("", "journal") // t.TempDir's parents are closed to others
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "journal.log")
	f := open(t, path)
	fill(t, journal.New(f), 3)
	must(t, f.Close())
	must(t, os.Chmod(path, 0o444))
	var attributes *syscall.SysProcAttr
	if os.Getuid() == 0 { // root may write everything
		attributes = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		self, err := os.Executable()
		must(t, err)
		for d := filepath.Dir(self); d != "/"; d = filepath.Dir(d) {
			if info, err := os.Stat(d); err == nil && strings.HasPrefix(d, os.TempDir()+"/") {
				must(t, os.Chmod(d, info.Mode().Perm()|0o055))
			}
		}
	}
	out, err := child(t, "open", path, attributes)
	if err == nil || !strings.Contains(out, "cannot be opened for reading and writing") || !strings.Contains(out, "permission denied") {
		t.Errorf("got %q, %v", out, err)
	}
	must(t, os.Chmod(path, 0o600))
	expect(t, journal.New(open(t, path)), 3)
}

// fullDiskChild fills a small file system with records until a write fails,
// and shows that what was acknowledged is there and that it goes on once there
// is room. It runs in a mount namespace of its own.
func fullDiskChild(dir string) int {
	err := func() error {
		if err := smallDisk(dir, "2600k"); err != nil {
			return err
		}
		ballast := filepath.Join(dir, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 1200<<10), 0o600); err != nil {
			return err
		}
		path := filepath.Join(dir, "journal.log")
		f, err := filestore.Open(context.Background(), path, nil)
		if err != nil {
			return err
		}
		j, ctx := journal.New(f), context.Background()
		written := 0
		for ; err == nil && written < 100000; written++ {
			err = j.SaveBucket(ctx, &journal.Bucket{ID: bucketID(written)})
		}
		written--
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "no space left on device") {
			return fmt.Errorf("a full disk gave: %v", err)
		}
		if err := j.Check(ctx); err == nil {
			return errors.New("the journal says it is well while the disk is full")
		}
		for i := range written {
			if _, err := j.Bucket(ctx, bucketID(i)); err != nil {
				return fmt.Errorf("record %d of %d is lost: %w", i, written, err)
			}
		}
		if err := os.Remove(ballast); err != nil {
			return err
		}
		if err := j.Check(ctx); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
		if err := j.SaveBucket(ctx, &journal.Bucket{ID: bucketID(written)}); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
		if err := f.Close(); err != nil {
			return err
		}
		again, err := filestore.Open(context.Background(), path, nil)
		if err != nil {
			return fmt.Errorf("after reopening: %w", err)
		}
		for i := range written + 1 {
			if _, err := journal.New(again).Bucket(ctx, bucketID(i)); err != nil {
				return fmt.Errorf("after reopening, record %d: %w", i, err)
			}
		}
		if written < 100 {
			return fmt.Errorf("only %d records fitted", written)
		}
		fmt.Println("records before the disk was full:", written)
		return nil
	}()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func TestFullDisk(t *testing.T) { mountingChild(t, "full-disk") }

// mountingChild runs this test binary as a process that may mount.
func mountingChild(t *testing.T, what string) {
	t.Helper()
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := child(t, what, t.TempDir(), attributes)
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Log(out)
}

// smallDisk mounts a small file system, for this process alone.
func smallDisk(dir, size string) error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	return nil
}

// A closed journal can be opened at once, while programs are being started:
// until it runs, a child has copies of all open files.
func TestReopenedWhileProgramsStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.log")
	var starting sync.WaitGroup
	t.Cleanup(starting.Wait)
	for range 4 {
		starting.Go(func() {
			for range 100 {
				_ = exec.CommandContext(t.Context(), "true").Run()
			}
		})
	}
	for range 200 {
		store, err := filestore.Open(context.Background(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What a record takes of the heap is bounded: so is what a driver with ten thousand
// buckets takes (make scale). Not in parallel, so that nothing else allocates.
func TestMemoryOfRecords(t *testing.T) {
	const buckets, most = 1000, 1200 // bytes
	path := filepath.Join(t.TempDir(), "journal.log")
	f := open(t, path)
	many(t, journal.New(f), buckets)
	must(t, f.Close())
	before := heap()
	f = open(t, path)
	after := heap()
	must(t, f.Close())
	if each := (after - before) * (1 << 20) / (3 * buckets); each > most {
		t.Errorf("a record takes %.0f bytes of the heap, want at most %d", each, most)
	}
}
