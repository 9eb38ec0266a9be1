// Package provisioner holds the driver's use cases: make a bucket under a
// contract, give an application a key to it, take the key back, delete the
// bucket. They are written once, for every storage service and every version
// of the COSI API.
//
// Each call is safe to repeat, at any time and after any crash. That rests on
// three things: ids are pure functions of the request; a key's intent is in the
// journal before a service is asked for it, and every result before the caller
// is answered; and what a service does can be repeated, is undone, or carries
// the driver's mark. The locks of this package are not among them. They keep
// two calls of one process from doing the same work twice.
package provisioner

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Backend is one storage service.
type Backend struct {
	// Provider makes contracts and keys there.
	Provider contract.Provider
	// Engine returns what makes buckets there with a contract's own key, and
	// marks them.
	Engine func(at cosi.Endpoint, key secret.KeyPair, mark string) *bucket.Engine
}

// Config makes a Provisioner.
type Config struct {
	// Owner is the driver's mark on everything it makes.
	Owner string
	// Backends are the storage services by name.
	Backends map[string]Backend
	// Terms returns what a contract is signed for; false if no class may name it.
	Terms func(contract string) (config.Terms, bool)
	// Journal remembers.
	Journal *journal.Journal
	// Repaired hears of what was lost behind the driver's back and made anew.
	Repaired func(what string)
	// Changed hears of what became of a contract.
	Changed func(ContractChange)
	// Rotated hears of the steps of rotations.
	Rotated func(RotationStep)
}

// Provisioner carries out the use cases.
type Provisioner struct {
	Config
	locks      locks
	background sync.WaitGroup // what is done after a call was answered

	mu        sync.Mutex
	contracts map[cosi.ContractID][]cosi.Endpoint // those known to be active, with their regions
	ensured   map[cosi.ContractID]bool            // those brought to their terms by this process
	engines   map[engineKey]*bucket.Engine
	silent    map[string]time.Time // until when a backend that did not answer is not looked at
}

// engineKey tells engines apart; a new key of a contract makes a new engine.
type engineKey struct {
	contract    cosi.ContractID
	endpoint    cosi.Endpoint
	accessKeyID string
}

// New returns a Provisioner; no call is made.
func New(c Config) *Provisioner {
	return &Provisioner{
		Config:    c,
		contracts: map[cosi.ContractID][]cosi.Endpoint{},
		ensured:   map[cosi.ContractID]bool{},
		engines:   map[engineKey]*bucket.Engine{},
		silent:    map[string]time.Time{},
	}
}

// Wait waits for what is still done after calls were answered. It is bounded,
// and no call may come any more.
func (p *Provisioner) Wait() { p.background.Wait() }

// undoTimeout bounds what is done after a call has failed or been given up.
const undoTimeout = 5 * time.Second

// join makes one fault of several of the same kind.
func join(faults ...error) error {
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	if len(faults) < 2 {
		return errors.Join(faults...)
	}
	texts := make([]string, len(faults))
	for i, err := range faults {
		texts[i] = err.Error()
	}
	return fault.Wrap(fault.KindOf(faults[0]), faults[0], "%s", strings.Join(texts, "; "))
}

func (p *Provisioner) parseBucket(s string) (cosi.BucketID, Backend, error) {
	id, err := cosi.ParseBucketID(s)
	if err != nil {
		return id, Backend{}, err
	}
	backend, ok := p.Backends[id.Backend]
	if !ok {
		return id, backend, fault.New(fault.InvalidArgument, "bucket id %q names backend %q, which is not this driver's", s, id.Backend)
	}
	return id, backend, nil
}

// Check reports why the driver could not serve a call now: the journal or a
// backend that cannot be reached. It names each that is away.
func (p *Provisioner) Check(ctx context.Context) error {
	errs := []error{p.Journal.Check(ctx)}
	for _, name := range slices.Sorted(maps.Keys(p.Backends)) {
		err := p.Backends[name].Provider.Check(ctx)
		errs = append(errs, fault.In(err, "backend %s", name))
	}
	return join(errs...)
}

func bucketIDOf(id cosi.AccountID, b journal.BucketAccess) cosi.BucketID {
	return cosi.BucketID{ContractID: id.ContractID, Bucket: b.Bucket}
}

// propose returns a random pair. Its id is a DNS label that no other will have.
func propose() secret.KeyPair {
	return secret.KeyPair{
		AccessKeyID:     "ck" + strings.ToLower(rand.Text()),
		SecretAccessKey: secret.New(rand.Text() + rand.Text()),
	}
}

// wasProposed reports whether a name can be one of propose's.
func wasProposed(name string) bool {
	rest, ok := strings.CutPrefix(name, "ck")
	return ok && len(rest) == len(rand.Text()) && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// fasterElsewhere turns a lost race into a fault that heals by repeating.
func fasterElsewhere(err error) error {
	if fault.Is(err, fault.Mismatch) {
		return fault.Wrap(fault.Unavailable, err, "%s by another process; repeat the call", err)
	}
	return err
}

// sure reads a record. Where the journal seems to have none, another process
// may just have written it, so it is asked again for certain: what follows from
// "there is none" cannot be taken back.
func sure[ID, Record any](ctx context.Context, j *journal.Journal, read func(*journal.Journal, context.Context, ID) (Record, error), id ID) (Record, error) {
	record, err := read(j, ctx, id)
	if fault.Is(err, fault.NotFound) {
		return read(j.Fresh(), ctx, id)
	}
	return record, err
}
