package reload_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/reload"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

var errNonsense = errors.New("nonsense")

func parse(texts [][]byte) (string, error) {
	if string(texts[0]) == "nonsense" {
		return "", errNonsense
	}
	return string(texts[0]), nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	// As Kubernetes does: a reader finds the one or the other, whole.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if _, err := reload.Open(nil, parse, path); err == nil {
		t.Error("a file that is not there was opened")
	}
	write(t, path, "nonsense")
	if _, err := reload.Open(nil, parse, path); !errors.Is(err, errNonsense) {
		t.Errorf("nonsense was opened: %v", err)
	}
	write(t, path, "one")
	var heard []error
	f, err := reload.Open(func(err error) { heard = append(heard, err) }, parse, path)
	if err != nil || f.Get() != "one" {
		t.Fatalf("got %q, %v", f.Get(), err)
	}
	write(t, path, "two")
	poll.Until(t, "the change is seen", func() bool { return f.Get() == "two" })
	write(t, path, "nonsense")
	poll.Until(t, "nonsense is reported", func() bool { _ = f.Get(); return len(heard) == 2 })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if f.Get() != "two" {
		t.Errorf("the value is lost: %q", f.Get())
	}
	write(t, path, "three")
	poll.Until(t, "the end of trouble is seen", func() bool { return f.Get() == "three" })
	if len(heard) != 3 || heard[0] != nil || !errors.Is(heard[1], errNonsense) || heard[2] != nil {
		t.Errorf("heard %v, want each change once", heard)
	}
}
