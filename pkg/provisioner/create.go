package provisioner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
)

// Bucket is a bucket that an application can be given access to.
type Bucket struct {
	ID       cosi.BucketID
	Endpoint cosi.Endpoint
}

// CreateBucket makes a bucket as its class says, under the contract that the
// class names, which is signed if need be. It makes all of it or nothing.
// Repeated, it returns the same bucket; with other parameters, Mismatch.
func (p *Provisioner) CreateBucket(ctx context.Context, name string, parameters map[string]string) (Bucket, error) {
	class, id, terms, err := p.checkCreate(name, parameters)
	if err != nil {
		return Bucket{}, err
	}
	b, err := p.createBucket(ctx, id, class, terms)
	if keys.Refused(err) && !fault.Is(err, fault.Conflict) { // the contract may have been signed for this bucket alone
		p.cancelUnused(ctx, id.ContractID, p.begin)
	}
	return b, err
}

// GenerateBucketID returns the id that [Provisioner.CreateBucket] gives a bucket of
// this name. It is a function of the request and the configuration: nothing is
// made or written, and no service is asked.
func (p *Provisioner) GenerateBucketID(name string, parameters map[string]string) (cosi.BucketID, error) {
	_, id, _, err := p.checkCreate(name, parameters)
	return id, err
}

// Generated tells a bucket's id from its name, which may have dots too: an id names
// a backend of the driver's, or the contract that the class leads to.
func (p *Provisioner) Generated(s string, parameters map[string]string) (cosi.BucketID, bool) {
	id, err := cosi.ParseBucketID(s)
	if err != nil {
		return id, false
	}
	_, ours := p.backends[id.Backend]
	terms, known := p.terms(parameters["contract"])
	return id, ours || known && terms.ContractFor(id.Bucket) == id.Contract
}

// CreateGenerated is [Provisioner.CreateBucket] for a bucket whose id was generated,
// and is kept by the COSI object: another one cannot be made in its place.
func (p *Provisioner) CreateGenerated(ctx context.Context, id cosi.BucketID, parameters map[string]string) (Bucket, error) {
	now, err := p.GenerateBucketID(id.Bucket, parameters)
	if err == nil && now != id {
		err = fault.New(fault.FailedPrecondition, "bucket %s cannot be made: by its class and the configuration it would be %s; restore the contract's backend in the configuration, or make a new BucketClaim", id, now)
	}
	if err != nil {
		return Bucket{}, err
	}
	return p.CreateBucket(ctx, id.Bucket, parameters)
}

func (p *Provisioner) createBucket(ctx context.Context, id cosi.BucketID, class bucketClass, terms config.Terms) (Bucket, error) {
	ctx, call, err := p.begin(ctx, lock.Shared("contract", id.ContractID), lock.Exclusive("bucket", id))
	if err != nil {
		return Bucket{}, err
	}
	defer call.end()
	record, err := p.journal.Bucket(ctx, id)
	if err == nil {
		return p.createdBefore(ctx, record, class)
	}
	if !fault.Is(err, fault.NotFound) {
		return Bucket{}, err
	}
	if err := p.claimed(ctx, id, terms); err != nil {
		return Bucket{}, err
	}
	spec := class.effective
	release, err := p.guardBucket(ctx, id, terms, class, spec.Region)
	if err != nil {
		return Bucket{}, fault.In(err, "bucket %s", id)
	}
	defer release()
	open := func(ctx context.Context) (*site.Site, error) {
		return p.sites.Open(ctx, id.ContractID, terms, spec.Region)
	}
	var at cosi.Endpoint
	err = p.sites.Do(ctx, open, func(s *site.Site) (err error) {
		if at, err = p.region(ctx, &s, spec.Region); err != nil {
			return err
		}
		if err := refusal(terms, terms.Guard.Bucket(class.given, spec, at.Region)); err != nil { // the contract was signed with another default
			return fault.In(err, "bucket %s", id)
		}
		if err = s.In(at).Create(ctx, id.Bucket, spec); err != nil {
			p.undoCreate(ctx, s.In(at), id, err)
			err = p.withLimit(ctx, id.ContractID, terms, err)
		}
		return fault.In(err, "bucket %s", id)
	})
	if err != nil {
		return Bucket{}, err
	}
	// Should it not be recorded, the bucket's mark lets a repeat carry on.
	record = &journal.Bucket{ID: id, Requested: class.requested, Effective: spec, Endpoint: at, CreatedAt: time.Now().UTC()}
	if err := p.journal.SaveBucket(ctx, record); err != nil {
		return Bucket{}, err
	}
	p.alive.add(bucketKey(id))
	klog.FromContext(ctx).V(4).Info("Bucket created", "bucket", id)
	return Bucket{ID: id, Endpoint: at}, nil
}

// claimed refuses a bucket whose claim is in another namespace than the one that the
// contract is for.
func (p *Provisioner) claimed(ctx context.Context, id cosi.BucketID, terms config.Terms) error {
	if terms.Namespace == "" {
		return nil
	}
	namespace, err := p.claims.Namespace(ctx, id.Bucket)
	if err != nil {
		return fault.In(err, "bucket %s", id)
	}
	if namespace != terms.Namespace {
		return fault.New(fault.FailedPrecondition, "bucket %s is claimed in namespace %s, and contract %s is for namespace %s alone; use a class of a Contract in the claim's own namespace", id, namespace, terms.Listed, terms.Namespace)
	}
	return nil
}

// withLimit adds to a refusal of one bucket more how many there are, and may be
// as far as the contract's terms say.
func (p *Provisioner) withLimit(ctx context.Context, id cosi.ContractID, terms config.Terms, err error) error {
	have, _, usageErr := p.journal.Usage(ctx, id)
	if !fault.Is(err, fault.LimitExceeded) || usageErr != nil {
		return err
	}
	most := "its plan has the limit"
	if q := terms.Quota.MaxBuckets; q != nil {
		most = fmt.Sprintf("quota.maxBuckets of its terms is %d", *q)
	}
	return fault.Wrap(fault.LimitExceeded, err, "%s (contract %s has %d buckets of this driver; %s)", err, id.Contract, have, most)
}

// region returns the endpoint of a region of a contract, and looks again if the
// service did not have it when the contract was opened.
func (p *Provisioner) region(ctx context.Context, s **site.Site, region string) (cosi.Endpoint, error) {
	at, ok := (*s).Region(region)
	if !ok {
		again, err := p.sites.Refresh(ctx, *s)
		if err != nil {
			return at, err
		}
		*s = again
		if at, ok = again.Region(region); !ok {
			return at, site.NoRegion(again.ID, region, again.Endpoints)
		}
	}
	return at, complete(at, (*s).ID)
}

// complete refuses an endpoint that applications could not be told. In v1alpha2
// an answer without it is terminal, and what was made for it is never taken back.
func complete(e cosi.Endpoint, id cosi.ContractID) error {
	if e.Region == "" || e.URL == "" {
		return fault.New(fault.Unavailable, "contract %s has an S3 endpoint without a region or an address; ask the storage service's operator", id)
	}
	return nil
}

// createdBefore answers a repeated create, if the bucket was made for the same
// class.
func (p *Provisioner) createdBefore(ctx context.Context, record *journal.Bucket, class bucketClass) (Bucket, error) {
	if record.Adopted {
		return Bucket{}, fault.New(fault.Mismatch, "bucket %s was not made by this driver but adopted; refer to it as an existing bucket", record.ID)
	}
	if record.Emptying != nil {
		return Bucket{}, fault.New(fault.Unavailable, "bucket %s is being emptied for its deletion; the call is retried until it is gone", record.ID)
	}
	if record.Unclassed { // the bucket itself says what its class was
		looked, err := p.asDescribed(ctx, record, class.requested)
		if err != nil || !looked {
			return p.bucketOf(record), err
		}
		record.Requested, record.Effective, record.Unclassed = class.requested, class.requested, false
		if err := p.journal.SaveBucket(ctx, record); err != nil {
			return Bucket{}, err
		}
	}
	if differing := record.Requested.Differences(class.requested); len(differing) > 0 {
		return Bucket{}, fault.New(fault.Mismatch, "bucket %s exists and was made with other parameters: %s differ; use another name, or a BucketClass with the parameters it was made with", record.ID, strings.Join(differing, ", "))
	}
	spec := class.effective
	if record.Settings != nil {
		var err error
		if spec, err = class.effective.With(record.Settings.Parameters); err != nil { // with the defaults of today, which is for the settings' own controller to tell
			spec = record.Effective
		}
	}
	return p.bucketOf(record), p.restoreBucket(ctx, record, spec)
}

func (p *Provisioner) bucketOf(record *journal.Bucket) Bucket {
	return Bucket{ID: record.ID, Endpoint: p.sites.Current(record.ID.ContractID, record.Endpoint)}
}

// checkCreate reports all that can be wrong with a request before anything is made.
func (p *Provisioner) checkCreate(name string, parameters map[string]string) (bucketClass, cosi.BucketID, config.Terms, error) {
	terms, known := p.terms(parameters["contract"])
	class, err := classUnder(terms, parameters)
	spec := class.requested
	err = join(cosi.CheckBucketName(name), err)
	if !known && spec.Contract != "" {
		err = join(err, noContract(spec.Contract))
	}
	if known && terms.Listed != spec.Contract {
		err = join(err, fault.New(fault.FailedPrecondition, "contract %q belongs to one bucket; use a BucketClass that names contract %q, which signs one for each", spec.Contract, terms.Listed))
	}
	id := cosi.BucketID{ContractID: cosi.ContractID{Backend: terms.Backend, Contract: terms.ContractFor(name)}, Bucket: name}
	return class, id, terms, err
}

// noContract is for a name that the configuration does not have. It may get it,
// so the call may succeed later.
func noContract(name string) error {
	return fault.New(fault.FailedPrecondition, "contract %q is not in the driver's configuration, and no accepted Contract has it; ask the platform's operator to add it, or use another BucketClass", name)
}

// undoCreate takes back what a failed create has made, so that no bucket is
// left that no one will ever ask to delete: the v0.2.2 sidecar deletes only
// what was made without an error. What cannot be undone carries the driver's
// mark, and the next attempt carries on from it.
func (p *Provisioner) undoCreate(ctx context.Context, engine *bucket.Engine, id cosi.BucketID, cause error) {
	switch fault.KindOf(cause) {
	case fault.Conflict, fault.Mismatch: // it was there before
		return
	case fault.Pending: // the next attempt finds it further on
		return
	}
	ctx, cancel := undoing(ctx)
	defer cancel()
	ours, err := engine.Ours(ctx, id.Bucket)
	if err == nil && ours {
		err = engine.Delete(ctx, id.Bucket)
	}
	if fault.IgnoreNotFound(err) != nil {
		klog.FromContext(ctx).V(2).Info("A failed create could not be undone; the next attempt carries on", "bucket", id, "cause", cause, "err", err)
	}
}

// restoreBucket writes what a bucket has lost of what it was made with, brings
// it to what its class means with the contract's defaults of today, and
// re-creates one that is gone. A sidecar that starts repeats the calls for all
// that is live, and each is the question whether the thing is still there. What
// cannot be checked now is answered from the journal: a running application has
// its Secret, and a service that is down is no reason to report it broken.
func (p *Provisioner) restoreBucket(ctx context.Context, record *journal.Bucket, spec params.Bucket) error {
	err := p.bring(ctx, record, spec, record.Settings)
	if fault.Is(err, fault.NotFound) {
		if err = p.recreate(ctx, record, spec); err == nil {
			p.alive.add(bucketKey(record.ID))
			err = p.arrived(ctx, record)
		}
	}
	if fault.Passing(err) {
		klog.FromContext(ctx).Info("A bucket could not be checked; answering from the journal", "bucket", record.ID, "reason", err)
		return nil
	}
	return err
}

// bring brings a bucket to spec, by its class and settings. What it had before is
// recorded as leaving until it is gone, so that no crash and no other change
// between leaves a part of it. What the service refuses is taken back.
func (p *Provisioner) bring(ctx context.Context, record *journal.Bucket, spec params.Bucket, settings *journal.Settings) error {
	before, had := record.Effective, record.Settings
	changes := len(before.Differences(spec)) > 0
	if err := p.leave(ctx, record, spec, settings); err != nil {
		return err
	}
	err := p.restore(ctx, record, changes)
	gone := had != nil && settings != nil && len(settings.Parameters) == 0 // and never brought back
	if err != nil && changes && !gone && !fault.Passing(err) && !fault.Is(err, fault.NotFound) {
		ctx, cancel := undoing(ctx)
		defer cancel()
		if undoErr := errors.Join(p.leave(ctx, record, before, had), p.restore(ctx, record, true)); undoErr != nil {
			klog.FromContext(ctx).V(2).Info("A change that was refused could not be taken back yet", "bucket", record.ID, "reason", undoErr)
		}
	}
	return err
}

// leave records that a bucket is to be as spec says from now on.
func (p *Provisioner) leave(ctx context.Context, record *journal.Bucket, spec params.Bucket, settings *journal.Settings) error {
	changes := len(record.Effective.Differences(spec)) > 0
	if !changes && reflect.DeepEqual(record.Settings, settings) {
		return nil
	}
	if changes {
		leaving := record.Effective
		if record.Leaving != nil {
			leaving = leaving.Beside(*record.Leaving)
		}
		record.Leaving = &leaving
	}
	record.Effective, record.Settings = spec, settings
	return p.journal.SaveBucket(ctx, record)
}

// restore makes a bucket as its record says; wanted tells that what differs is no one's
// doing behind the driver's back.
func (p *Provisioner) restore(ctx context.Context, record *journal.Bucket, wanted bool) error {
	log := klog.FromContext(ctx).WithValues("bucket", record.ID)
	leaving := record.Effective
	if record.Leaving != nil {
		leaving, wanted = *record.Leaving, true
	}
	err := p.withBucket(ctx, record, func(ctx context.Context, engine *bucket.Engine) error {
		written, err := engine.Restore(ctx, record.ID.Bucket, record.Effective, leaving)
		for _, what := range written {
			if wanted {
				log.Info("A bucket was brought to its contract's defaults or its settings", "what", what)
				continue
			}
			p.recorder.Repaired(what)
			log.Info("Something was taken from a bucket behind the driver's back; restored", "what", what)
		}
		return err
	})
	if fault.Is(err, fault.InvalidArgument) || fault.Is(err, fault.Unsupported) { // not the class, which the service has taken
		return fault.As(fault.FailedPrecondition, err)
	}
	if err != nil {
		return err
	}
	p.alive.add(bucketKey(record.ID))
	return p.arrived(ctx, record)
}

// arrived records that nothing is left of what a bucket had before.
func (p *Provisioner) arrived(ctx context.Context, record *journal.Bucket) error {
	if record.Leaving == nil {
		return nil
	}
	record.Leaving = nil
	return p.journal.SaveBucket(ctx, record)
}

// recreate makes a bucket that is gone again, empty, as spec says.
func (p *Provisioner) recreate(ctx context.Context, record *journal.Bucket, spec params.Bucket) error {
	klog.FromContext(ctx).Info("A bucket was deleted behind the driver's back, with all that it held; re-creating it", "what", "bucket", "bucket", record.ID)
	err := p.sites.Do(ctx, p.finder(record.ID.ContractID), func(s *site.Site) error {
		return fault.In(s.In(record.Endpoint).Create(ctx, record.ID.Bucket, spec), "bucket %s", record.ID)
	})
	if err == nil {
		p.recorder.Repaired("bucket")
	}
	return err
}

// finder is how the contract of something that was made before is opened.
func (p *Provisioner) finder(id cosi.ContractID) func(context.Context) (*site.Site, error) {
	return func(ctx context.Context) (*site.Site, error) { return p.sites.Find(ctx, id) }
}

// asDescribed reports, as NotFound, that a bucket is gone, and as Mismatch that
// it is not as spec says; looked tells whether it could be checked. Nothing is
// changed: an object that refers to an existing bucket wants it as it is.
func (p *Provisioner) asDescribed(ctx context.Context, record *journal.Bucket, spec params.Bucket) (looked bool, err error) {
	looked, err = p.look(ctx, record, func(ctx context.Context, engine *bucket.Engine) error {
		mark, err := engine.Mark(ctx, record.ID.Bucket)
		if err != nil {
			return err
		}
		if !p.stillOurs(record, mark) {
			return fault.New(fault.Conflict, "it no longer has the tag %s that it had; restore the tag, or delete the bucket", cosi.OwnerTag)
		}
		return sameAs(ctx, engine, record.ID.Bucket, spec)
	})
	return looked, err
}

// sameAs reports, as a Mismatch, how an existing bucket differs from what is said
// of it.
func sameAs(ctx context.Context, engine *bucket.Engine, name string, spec params.Bucket) error {
	differing, err := engine.Differences(ctx, name, spec)
	if err == nil && len(differing) > 0 {
		return fault.New(fault.Mismatch, "it is not as its parameters say: %s differ; change the bucket, or use a class without these parameters", strings.Join(differing, ", "))
	}
	return err
}

// stillOurs reports whether a recorded bucket has the mark that it had: the
// driver's, or none if it was adopted. Another one's is never ours.
func (p *Provisioner) stillOurs(record *journal.Bucket, mark string) bool {
	return mark == p.backends[record.ID.Backend].Mark(record.ID.Contract) || mark == "" && record.Adopted
}

// look runs do at a recorded bucket, to read it. A service that does not answer is no
// error: looked is false then.
func (p *Provisioner) look(ctx context.Context, record *journal.Bucket, do func(context.Context, *bucket.Engine) error) (looked bool, err error) {
	err = p.withBucket(ctx, record, do)
	if fault.Passing(err) {
		klog.FromContext(ctx).Info("A bucket could not be checked; answering from the journal", "bucket", record.ID, "reason", err)
		return false, nil
	}
	if fault.Is(err, fault.InvalidArgument) || fault.Is(err, fault.Unsupported) { // the service has taken it before
		err = fault.As(fault.FailedPrecondition, err)
	}
	return true, err
}

// withBucket runs do at a recorded bucket; see [site.ErrGone] for one whose
// contract is gone.
func (p *Provisioner) withBucket(ctx context.Context, record *journal.Bucket, do func(context.Context, *bucket.Engine) error) error {
	id := record.ID
	return p.sites.Look(ctx, record.Endpoint.URL, func(ctx context.Context) error {
		return p.sites.Do(ctx, p.sites.MustFind(id.ContractID), func(s *site.Site) error {
			return fault.In(do(ctx, s.In(record.Endpoint)), "bucket %s", id)
		})
	})
}
