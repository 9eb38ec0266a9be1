package driver

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/secrets"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lease"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// leaveTimeout bounds giving the Lease back at the end.
const leaveTimeout = 5 * time.Second

// OpenJournal opens the journal where the configuration says it is, for
// reading. m counts what it does.
func OpenJournal(ctx context.Context, c *config.Config, m *metrics.Metrics) (journal.Store, error) {
	if c.Journal.Secrets != nil {
		return openSecrets(ctx, c, m)
	}
	if _, err := os.Stat(c.Journal.File); errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Info("There is no journal yet; beginning one. If this driver has run before, stop it and restore its journal", "file", c.Journal.File)
	}
	return filestore.OpenEncrypted(ctx, c.Journal.File, c.Journal.KeyFile, m.JournalWrite)
}

func openSecrets(ctx context.Context, c *config.Config, m *metrics.Metrics) (*secrets.Store, error) {
	at := c.Journal.Secrets
	return secrets.Open(ctx, at.Kubeconfig, secrets.Config{Namespace: at.Namespace, Owner: c.Driver.Owner, Wrote: m.JournalWrite, Called: m.JournalCall})
}

// writable is a journal with the right to change it, and what it tells of. A
// journal in a file has one process, which always has the right.
type writable struct {
	journal.Store
	lease *lease.Lease // nil for a journal in a file
}

// openWritable opens the journal for a process whose socket is in dir, "" if it
// has none. taken is called whenever this process has got the right to change
// things from another.
func openWritable(ctx context.Context, c *config.Config, m *metrics.Metrics, dir string, taken func()) (*writable, error) {
	if c.Journal.Secrets == nil {
		store, err := OpenJournal(ctx, c, m)
		return &writable{Store: store}, err
	}
	store, err := openSecrets(ctx, c, m)
	if err != nil {
		return nil, err
	}
	at, err := kube.Connect(c.Journal.Secrets.Kubeconfig)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	l, err := lease.Open(ctx, at, lease.Config{
		Namespace: c.Journal.Secrets.Namespace, Owner: c.Driver.Owner, Dir: dir,
		Taken: func(ctx context.Context) error {
			if err := store.Reload(ctx); err != nil {
				return err
			}
			taken()
			return nil
		},
		Changed: func(change lease.Change) { m.LeaseChanged(string(change)) },
		Called:  m.LeaseCall,
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	m.Writer(l.Held)
	return &writable{Store: store, lease: l}, nil
}

// Enter implements provisioner.Writer.
func (w *writable) Enter(ctx context.Context) (context.Context, func(), error) {
	if w.lease == nil {
		return ctx, func() {}, nil
	}
	return w.lease.Enter(ctx)
}

// EnterIdle implements provisioner.Writer.
func (w *writable) EnterIdle(ctx context.Context) (context.Context, func(), error) {
	if w.lease == nil {
		return ctx, func() {}, nil
	}
	return w.lease.EnterIdle(ctx)
}

// Close gives the right back, when nothing that had it is in progress,
// and closes the journal.
func (w *writable) Close() error {
	if w.lease != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout) //nolint:forbidigo // io.Closer has none
		defer cancel()
		w.lease.Close(ctx)
	}
	return w.Store.Close()
}

// Import takes entries that an export has written into the configuration's
// journal. It returns how many it took in and how many were there already.
func Import(ctx context.Context, c *config.Config, export io.Reader) (imported, same int, err error) {
	w, err := openWritable(ctx, c, metrics.New(), "", func() {})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	ctx, leave, err := w.Enter(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	return journal.Import(ctx, w.Store, c.Driver.Owner, export)
}
