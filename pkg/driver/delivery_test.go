package driver

import (
	"context"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/delivery"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// What applications get is the backend's CA file as it is now, and nothing where the
// system's CAs are trusted.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/ca.crt"
	ca := authorities([]config.Backend{{Name: "own", Connection: transport.Config{CAFile: file}}, {Name: "public"}})
	if _, err := ca("own"); err == nil {
		t.Error("a file that is missing is read")
	}
	for _, want := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if have, err := ca("own"); err != nil || string(have) != want {
			t.Errorf("the CA is %q, %v; want %q", have, err, want)
		}
	}
	if have, err := ca("public"); err != nil || have != nil {
		t.Errorf("the CA is %q, %v", have, err)
	}
}

// tended are the records for which something was done.
type tended []string

func (t *tended) Tend(_ context.Context, key journal.Key) error {
	*t = append(*t, key.ID)
	return nil
}

func (*tended) Unformatted(context.Context) ([]cosi.AccountID, error) { return nil, nil }

// Of what drift's timer could not do, the queue of Secrets does what is due of accesses.
func TestAgain(t *testing.T) {
	t.Parallel()
	if again(nil) != nil {
		t.Error("without a right to write Secrets there is a queue")
	}
	synctest.Test(t, func(t *testing.T) {
		d, err := delivery.New(delivery.Config{Socket: "/none.sock"})
		if err != nil {
			t.Fatal(err)
		}
		later := again(d)
		for _, kind := range []journal.RecordKind{journal.Accounts, journal.Buckets} {
			later(journal.Key{Kind: kind, ID: "main.team." + string(kind)})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var p tended
		d.Run(ctx, &p, time.Second)
		if want := []string{"main.team." + string(journal.Accounts)}; !slices.Equal(p, want) {
			t.Errorf("done for %v, want %v", p, want)
		}
	})
}
