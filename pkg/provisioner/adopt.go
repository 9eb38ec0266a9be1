package provisioner

import (
	"context"
	"maps"
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

// AdoptBucket takes on a bucket that exists. One that the driver made is found
// again; one that somebody else made is adopted if the contract's terms allow
// it. Nothing about the bucket is changed: parameters that are given are
// compared with it, and Mismatch names those that differ. NotFound if there is
// no such bucket, or none any more.
func (p *Provisioner) AdoptBucket(ctx context.Context, bucketID string, parameters map[string]string) (Bucket, error) {
	id, spec, terms, err := p.checkAdopt(bucketID, parameters)
	if err != nil {
		return Bucket{}, err
	}
	wanted := []request{shared("contract", id.ContractID), exclusive("bucket", id)}
	unlock, err := p.locks.acquire(ctx, append(wanted, room("buckets", id.ContractID, terms.Guard.MaxBuckets)...)...)
	if err != nil {
		return Bucket{}, err
	}
	defer unlock()

	record, err := p.Journal.Bucket(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return p.adopt(ctx, id, bucketClass{given: parameters, asked: spec, applied: spec}, terms)
	}
	if err != nil {
		return Bucket{}, err
	}
	if spec.Region != "" && spec.Region != record.Endpoint.Region {
		return Bucket{}, fault.New(fault.Mismatch, "bucket %s is in region %s; correct the parameters, or leave the region out", id, record.Endpoint.Region)
	}
	looked, err := p.stillThere(ctx, record, spec)
	if err != nil {
		return Bucket{}, err
	}
	if looked && record.Adopted && len(record.Spec.Differences(spec)) > 0 { // another object takes it on, on its own terms
		record.Spec, record.Applied = spec, spec
		if err := p.Journal.SaveBucket(ctx, record); err != nil {
			return Bucket{}, fasterElsewhere(err)
		}
	}
	return p.bucketOf(record), nil
}

// checkAdopt reports all that can be wrong with a request before anything is
// looked at. The id names the contract, so the parameters need not.
func (p *Provisioner) checkAdopt(bucketID string, parameters map[string]string) (cosi.BucketID, params.Bucket, config.Terms, error) {
	id, _, err := p.parseBucket(bucketID)
	if err != nil {
		return id, params.Bucket{}, config.Terms{}, err
	}
	given := map[string]string{"contract": id.Contract}
	maps.Copy(given, parameters)
	spec, err := params.ParseBucket(given)
	if err != nil {
		return id, spec, config.Terms{}, err
	}
	terms, known := p.Terms(id.Contract)
	if spec.Contract != id.Contract && (!known || spec.Contract != terms.Listed) {
		return id, spec, config.Terms{}, fault.New(fault.InvalidArgument, "bucket %s is under contract %q and its parameters name %q", id, id.Contract, spec.Contract)
	}
	if !known {
		return id, spec, terms, noContract(id.Contract)
	}
	if terms.ContractFor(id.Bucket) != id.Contract {
		return id, spec, terms, fault.New(fault.InvalidArgument, "bucket %s cannot be under contract %q: contract %q signs one for each bucket, and that of this bucket is %q", id, id.Contract, terms.Listed, terms.ContractFor(id.Bucket))
	}
	spec.Contract = terms.Listed
	if terms.Backend != id.Backend {
		return id, spec, terms, fault.New(fault.FailedPrecondition, "bucket %s is at backend %s, and the driver's configuration has contract %q at backend %s", id, id.Backend, id.Contract, terms.Backend)
	}
	return id, spec, terms, nil
}

// adopt records a bucket that the journal does not know.
func (p *Provisioner) adopt(ctx context.Context, id cosi.BucketID, class bucketClass, terms config.Terms) (Bucket, error) {
	spec := class.asked
	notThere := fault.New(fault.NotFound, "bucket %s does not exist", id)
	// A contract is not signed for the sake of a bucket that cannot be there.
	if _, err := p.signed(ctx, id.ContractID); fault.Is(err, fault.NotFound) {
		return Bucket{}, notThere
	} else if err != nil {
		return Bucket{}, err
	}
	endpoints, err := p.openContract(ctx, id.ContractID, terms, spec.Region)
	if err != nil {
		return Bucket{}, err
	}
	first, err := regionOf(endpoints, spec.Region, id.ContractID)
	if err != nil {
		return Bucket{}, err
	}
	if spec.Region != "" {
		endpoints = []cosi.Endpoint{first}
	}
	for _, endpoint := range endpoints {
		b, err := p.adoptAt(ctx, id, class, terms, endpoint)
		if !fault.Is(err, fault.NotFound) {
			return b, err
		}
	}
	return Bucket{}, notThere
}

// adoptAt is adopt in one region; NotFound if the bucket is not there.
func (p *Provisioner) adoptAt(ctx context.Context, id cosi.BucketID, class bucketClass, terms config.Terms, endpoint cosi.Endpoint) (Bucket, error) {
	if err := complete(endpoint, id.ContractID); err != nil {
		return Bucket{}, err
	}
	engine, err := p.engine(ctx, id.ContractID, endpoint)
	if err != nil {
		return Bucket{}, err
	}
	mark, err := engine.Mark(ctx, id.Bucket)
	switch {
	case err != nil:
		return Bucket{}, p.explain(ctx, id.ContractID, engine, fault.In(err, "bucket %s", id))
	case mark != "" && mark != p.markOf(id.ContractID):
		return Bucket{}, fault.New(fault.Conflict, "bucket %s carries the mark of another driver or contract (tag %s); it is not adopted: remove the tag if that one is done with it", id, cosi.OwnerTag)
	case mark == "" && !terms.AdoptBuckets:
		return Bucket{}, fault.New(fault.FailedPrecondition, "bucket %s was not made by this driver, and contract %s does not let its buckets be adopted; set adoptBuckets in the contract's terms", id, id.ContractID)
	}
	if mark == "" {
		if err := p.guardBucket(ctx, id.ContractID, terms, class, endpoint.Region); err != nil {
			return Bucket{}, fault.In(err, "bucket %s", id)
		}
	}
	spec := class.asked
	if err := asItsParametersSay(ctx, engine, id.Bucket, spec); err != nil {
		return Bucket{}, p.explain(ctx, id.ContractID, engine, fault.In(err, "bucket %s", id))
	}
	record := &journal.Bucket{ID: id, Spec: spec, Applied: spec, Adopted: mark == "", Unclassed: mark != "", Endpoint: endpoint, CreatedAt: time.Now().UTC()}
	err = p.Journal.SaveBucket(ctx, record)
	if fault.Is(err, fault.Mismatch) { // another call has just adopted it
		if record, err = p.Journal.Bucket(ctx, id); err == nil {
			return p.bucketOf(record), nil
		}
	}
	if err != nil {
		return Bucket{}, err
	}
	klog.FromContext(ctx).Info("Bucket adopted", "bucket", id, "made-by-this-driver", !record.Adopted)
	return p.bucketOf(record), nil
}

// asItsParametersSay reports, as a Mismatch, how an existing bucket differs from
// what is said of it.
func asItsParametersSay(ctx context.Context, engine *bucket.Engine, name string, spec params.Bucket) error {
	differing, err := engine.Differences(ctx, name, spec)
	if err == nil && len(differing) > 0 {
		return fault.New(fault.Mismatch, "it is not as its parameters say: %s differ; change the bucket, or leave these parameters out", strings.Join(differing, ", "))
	}
	return err
}

// adoptAll adopts those buckets of a grant that the journal does not know, where
// the contract's terms allow it: in v1alpha1 a grant is the first that a driver
// hears of an existing bucket. Otherwise the grant fails as it would have.
func (p *Provisioner) adoptAll(ctx context.Context, id cosi.AccountID, grant journal.Grant, notFound error) error {
	terms, known := p.Terms(id.Contract)
	if !known || terms.Backend != id.Backend || !terms.AdoptBuckets {
		return notFound
	}
	for _, b := range grant.Buckets {
		bucketID := bucketIDOf(id, b)
		_, err := p.Journal.Bucket(ctx, bucketID)
		if fault.Is(err, fault.NotFound) {
			_, err = p.adopt(ctx, bucketID, bucketClass{asked: params.Bucket{Contract: terms.Listed, OnDelete: params.Refuse}}, terms)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
