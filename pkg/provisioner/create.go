package provisioner

import (
	"context"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
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
	spec := class.applied
	wanted := []request{shared("contract", id.ContractID), exclusive("bucket", id)}
	unlock, err := p.locks.acquire(ctx, append(wanted, room("buckets", id.ContractID, terms.Guard.MaxBuckets)...)...)
	if err != nil {
		return Bucket{}, err
	}
	defer unlock()

	record, err := p.Journal.Bucket(ctx, id)
	if err == nil {
		return p.createdBefore(ctx, record, class)
	}
	if !fault.Is(err, fault.NotFound) {
		return Bucket{}, err
	}
	region, err := p.effectiveRegion(ctx, id.ContractID, terms, spec.Region)
	if err != nil {
		return Bucket{}, err
	}
	if err := p.guardBucket(ctx, id.ContractID, terms, class, region); err != nil {
		return Bucket{}, fault.In(err, "bucket %s", id)
	}
	endpoints, err := p.openContract(ctx, id.ContractID, terms, spec.Region)
	if err != nil {
		return Bucket{}, err
	}
	endpoint, err := regionOf(endpoints, spec.Region, id.ContractID)
	if err != nil {
		return Bucket{}, err
	}
	if region != "" && region != endpoint.Region { // the contract was signed with another default
		if err := p.guardBucket(ctx, id.ContractID, terms, class, endpoint.Region); err != nil {
			return Bucket{}, fault.In(err, "bucket %s", id)
		}
	}
	engine, err := p.engine(ctx, id.ContractID, endpoint)
	if err != nil {
		return Bucket{}, err
	}
	if err := engine.Create(ctx, id.Bucket, spec); err != nil {
		p.undoCreate(ctx, engine, id, err)
		return Bucket{}, p.explain(ctx, id.ContractID, engine, fault.In(err, "bucket %s", id))
	}
	err = p.Journal.SaveBucket(ctx, &journal.Bucket{ID: id, Spec: class.asked, Applied: spec, Endpoint: endpoint, CreatedAt: time.Now().UTC()})
	switch {
	case fault.Is(err, fault.Mismatch): // another process has just recorded it
		record, err := p.Journal.Bucket(ctx, id)
		if err != nil {
			return Bucket{}, err
		}
		return p.bucketOf(record), matches(record, class.asked)
	case err != nil: // whether it is recorded is not known; the bucket's mark lets a repeat carry on
		return Bucket{}, err
	}
	klog.FromContext(ctx).V(4).Info("Bucket made", "bucket", id)
	return Bucket{ID: id, Endpoint: endpoint}, nil
}

// createdBefore answers a repeated create, if the bucket was made for the same
// class.
func (p *Provisioner) createdBefore(ctx context.Context, record *journal.Bucket, class bucketClass) (Bucket, error) {
	if record.Adopted {
		return Bucket{}, fault.New(fault.Mismatch, "bucket %s was not made by this driver but adopted; refer to it as an existing bucket", record.ID)
	}
	if record.Emptying != nil {
		return Bucket{}, fault.New(fault.Unavailable, "bucket %s is being emptied for its deletion; repeat the call when it is gone", record.ID)
	}
	if record.Unclassed { // the bucket itself says what its class was
		looked, err := p.stillThere(ctx, record, class.asked)
		if err != nil || !looked {
			return p.bucketOf(record), err
		}
		record.Spec, record.Applied, record.Unclassed = class.asked, class.asked, false
		if err := p.Journal.SaveBucket(ctx, record); err != nil {
			return Bucket{}, fasterElsewhere(err)
		}
	}
	if err := matches(record, class.asked); err != nil {
		return Bucket{}, err
	}
	return p.bucketOf(record), p.restoreBucket(ctx, record, class.applied)
}

// matches reports, as a Mismatch, how a bucket was asked for otherwise.
func matches(record *journal.Bucket, spec params.Bucket) error {
	if differing := record.Spec.Differences(spec); len(differing) > 0 {
		return fault.New(fault.Mismatch, "bucket %s exists and was made with other parameters: %s differ; delete the bucket or restore its class", record.ID, strings.Join(differing, ", "))
	}
	return nil
}

func (p *Provisioner) bucketOf(record *journal.Bucket) Bucket {
	return Bucket{ID: record.ID, Endpoint: p.current(record.ID.ContractID, record.Endpoint)}
}

// checkCreate reports all that can be wrong with a request before anything is made.
func (p *Provisioner) checkCreate(name string, parameters map[string]string) (bucketClass, cosi.BucketID, config.Terms, error) {
	terms, known := p.Terms(parameters["contract"])
	class, err := classUnder(terms, parameters)
	spec := class.asked
	err = join(cosi.CheckBucketName(name), err)
	if !known && spec.Contract != "" {
		err = join(err, noContract(spec.Contract))
	}
	if known && terms.Listed != spec.Contract {
		err = join(err, fault.New(fault.FailedPrecondition, "contract %q belongs to one bucket; let the class name contract %q, which signs one for each", spec.Contract, terms.Listed))
	}
	id := cosi.BucketID{ContractID: cosi.ContractID{Backend: terms.Backend, Contract: terms.ContractFor(name)}, Bucket: name}
	return class, id, terms, err
}

// noContract is for a name that the configuration does not have. It may get it,
// so the call may succeed later.
func noContract(name string) error {
	return fault.New(fault.FailedPrecondition, "contract %q is not in the driver's configuration; ask the platform's operator to add it, or correct the class", name)
}

func regionOf(endpoints []cosi.Endpoint, region string, id cosi.ContractID) (cosi.Endpoint, error) {
	names := make([]string, len(endpoints))
	for i, e := range endpoints {
		if region == "" || e.Region == region {
			return e, complete(e, id)
		}
		names[i] = e.Region
	}
	if len(endpoints) == 0 {
		return cosi.Endpoint{}, fault.New(fault.Unavailable, "contract %s has no S3 endpoint yet", id)
	}
	return cosi.Endpoint{}, fault.New(fault.InvalidArgument, "BucketClass parameters: region: %q is not a region of contract %s, which has %s", region, id, strings.Join(names, ", "))
}

// complete refuses an endpoint that applications could not be told. In v1alpha2
// an answer without it is for good, and what was made for it is never taken back.
func complete(e cosi.Endpoint, id cosi.ContractID) error {
	if e.Region == "" || e.URL == "" {
		return fault.New(fault.Unavailable, "contract %s has an S3 endpoint without a region or an address; ask the storage service's operator", id)
	}
	return nil
}

// undoCreate takes back what a failed create has made, so that no bucket is
// left that nobody will ever ask to delete: the v0.2.2 sidecar deletes only
// what was made without an error. What cannot be undone carries the driver's
// mark, and the next attempt carries on from it.
func (p *Provisioner) undoCreate(ctx context.Context, engine *bucket.Engine, id cosi.BucketID, cause error) {
	if fault.Is(cause, fault.Conflict) { // it is somebody else's
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	// Another process may have made and recorded it meanwhile. One that does so
	// between this look and the deletion loses an empty bucket, which the next
	// repeat of its call makes anew.
	if _, err := p.Journal.Fresh().Bucket(ctx, id); !fault.Is(err, fault.NotFound) {
		return
	}
	ours, err := engine.Ours(ctx, id.Bucket)
	if err == nil && ours {
		err = engine.Delete(ctx, id.Bucket)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		klog.FromContext(ctx).V(2).Info("A failed create could not be undone; the next attempt carries on", "bucket", id, "cause", cause, "err", err)
	}
}
