package driver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// What the file says is taken over as soon as it can be, also when it is not the
// file that was at fault; and a refusal is told once, not at every look.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, token := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "token")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		t.Helper()
		if err := os.Remove(token); err != nil {
			t.Fatal(err)
		}
	}
	with := func(contract string) string {
		return fmt.Sprintf(`
driver: {name: d.example.com, owner: o}
journal: {file: /j}
backends: [{name: main, type: contractapi, contractapi: {url: "https://c", tokenFile: %s}}]
contracts: [{name: %s, backend: main}]
`, token, contract)
	}
	write(token, "token")
	write(file, with("a"))
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Load(file, Types())
		if err != nil {
			t.Fatal(err)
		}
		current := newLive(c)
		outcomes := make(chan string, 10)
		var logs bytes.Buffer
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&logs)))))
		defer cancel()
		go current.follow(ctx, file, func(*config.Config) error { return nil }, func(o string) { outcomes <- o }, func(_, _ *config.Config) {})
		// After each change the file is looked at several times.
		for _, step := range []struct {
			name string
			do   func()
			want []string
			has  string // the contract that is known then
		}{
			{"nothing has changed", func() {}, nil, "a"},
			{"a changed file without its secret", func() { remove(); write(file, with("b")) }, []string{metrics.Refused}, "a"},
			{"the secret is there", func() { write(token, "token") }, []string{metrics.Taken}, "b"},
			{"the secret goes, and the file stays", func() { remove() }, nil, "b"},
			{"a faulty file", func() { write(token, "token"); write(file, with("C")) }, []string{metrics.Refused}, "b"},
			{"the same file, with another fault", func() { remove() }, []string{metrics.Refused}, "b"},
			{"the file that is in effect", func() { write(token, "token"); write(file, with("b")) }, nil, "b"},
			{"the faulty one again", func() { write(file, with("C")) }, []string{metrics.Refused}, "b"},
			{"one for another start", func() { write(file, strings.Replace(with("d"), "https://c", "https://d", 1)) }, []string{metrics.NextStart}, "b"},
			{"a sound one", func() { write(file, with("d")) }, []string{metrics.Taken}, "d"},
		} {
			step.do()
			<-time.After(5 * lookAgain)
			synctest.Wait()
			var seen []string
			for len(outcomes) > 0 {
				seen = append(seen, <-outcomes)
			}
			if _, has := current.terms(step.has); !has || !slices.Equal(seen, step.want) {
				t.Errorf("%s: seen %v, want %v; contract %s is known: %v", step.name, seen, step.want, step.has, has)
			}
		}
		if n := strings.Count(logs.String(), "is not taken over"); n != 4 {
			t.Errorf("%d refusals are logged:\n%s", n, logs.String())
		}
	})
}
