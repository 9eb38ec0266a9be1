package provisioner

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
)

// AdoptBucket adopts a bucket that exists. One that the driver made is found
// again; one that someone else created is adopted if the contract's terms allow
// it. Nothing about the bucket is changed: parameters that are given are
// compared with it, and Mismatch names those that differ. NotFound if there is
// no such bucket, or no longer.
func (p *Provisioner) AdoptBucket(ctx context.Context, bucketID string, parameters map[string]string) (Bucket, error) {
	id, spec, terms, err := p.checkAdopt(bucketID, parameters)
	if err != nil {
		return Bucket{}, err
	}
	ctx, call, err := p.begin(ctx, adoptLocks(id)...)
	if err != nil {
		return Bucket{}, err
	}
	defer call.end()
	record, err := p.journal.Bucket(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return p.adopt(ctx, id, bucketClass{given: parameters, requested: spec, effective: spec}, terms)
	}
	if err != nil {
		return Bucket{}, err
	}
	if spec.Region != "" && spec.Region != record.Endpoint.Region {
		return Bucket{}, fault.New(fault.Mismatch, "bucket %s is in region %s; correct the parameters, or leave the region out", id, record.Endpoint.Region)
	}
	looked, err := p.asDescribed(ctx, record, spec)
	if err != nil {
		return Bucket{}, absentIsGone(err)
	}
	if looked && record.Adopted && len(record.Requested.Differences(spec)) > 0 { // another object adopts it, on its own terms
		record.Requested, record.Effective = spec, spec
		if err := p.journal.SaveBucket(ctx, record); err != nil {
			return Bucket{}, err
		}
	}
	return p.bucketOf(record), nil
}

// adoptLocks are what an adoption holds: a bucket that several contracts reach
// is adopted under one of them.
func adoptLocks(id cosi.BucketID) []lock.Request {
	return []lock.Request{
		lock.Shared("contract", id.ContractID), lock.Exclusive("bucket", id),
		lock.Exclusive("adoption", cosi.ContractID{Backend: id.Backend, Contract: id.Bucket}),
	}
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
	terms, known := p.terms(id.Contract)
	if spec.Contract != id.Contract && (!known || spec.Contract != terms.Listed) {
		return id, spec, config.Terms{}, fault.New(fault.InvalidArgument, "bucket %s is under contract %q and its parameters name %q; let them name the first", id, id.Contract, spec.Contract)
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

// takeOnAll adopts those buckets of a grant that the journal does not know: in
// v1alpha1 a grant is the first that a driver hears of an existing bucket, and
// after the loss of a journal it may be the first that it hears of its own.
func (p *Provisioner) takeOnAll(ctx context.Context, id cosi.AccountID, grant journal.Grant) error {
	terms, known := p.termsOf(id.ContractID)
	for _, b := range grant.Buckets {
		bucketID := bucketIDOf(id, b)
		_, err := p.journal.Bucket(ctx, bucketID)
		if fault.Is(err, fault.NotFound) {
			if !known || terms.ContractFor(b.Bucket) != id.Contract {
				return notThere(bucketID)
			}
			err = p.takeOn(ctx, bucketID, terms)
			if err != nil && !fault.Passing(err) && !terms.AdoptBuckets && !errors.Is(err, contract.ErrOtherJournal) { // whatever is there, it is not ours
				err = notThere(bucketID)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Provisioner) takeOn(ctx context.Context, id cosi.BucketID, terms config.Terms) error {
	ctx, call, err := p.begin(ctx, adoptLocks(id)...)
	if err != nil {
		return err
	}
	defer call.end()
	if _, err := p.journal.Bucket(ctx, id); !fault.Is(err, fault.NotFound) {
		return err
	}
	spec := params.Bucket{Contract: terms.Listed, OnDelete: params.Refuse}
	_, err = p.adopt(ctx, id, bucketClass{requested: spec, effective: spec}, terms)
	return err
}

// adopt records a bucket that the journal does not know.
func (p *Provisioner) adopt(ctx context.Context, id cosi.BucketID, class bucketClass, terms config.Terms) (Bucket, error) {
	spec := class.requested
	out := Bucket{ID: id}
	// A contract is not signed for the sake of a bucket that cannot be there.
	absent := fault.New(fault.NotFound, "bucket %s does not exist", id)
	err := p.sites.Do(ctx, p.finder(id.ContractID), func(s *site.Site) error {
		endpoints := s.Endpoints
		if spec.Region != "" {
			at, err := p.region(ctx, &s, spec.Region)
			if err != nil {
				return err
			}
			endpoints = []cosi.Endpoint{at}
		}
		for _, at := range endpoints {
			err := p.adoptAt(ctx, s, at, id, class, terms)
			if out.Endpoint = at; !fault.Is(err, fault.NotFound) {
				return err
			}
		}
		return absent
	})
	if fault.Is(err, fault.NotFound) { // the bucket, or its contract
		err = absent
	}
	return out, err
}

// adoptAt is adopt in one region; NotFound if the bucket is not there.
func (p *Provisioner) adoptAt(ctx context.Context, s *site.Site, at cosi.Endpoint, id cosi.BucketID, class bucketClass, terms config.Terms) error {
	if err := complete(at, id.ContractID); err != nil {
		return err
	}
	engine := s.In(at)
	mark, err := engine.Mark(ctx, id.Bucket)
	switch {
	case err != nil:
		return fault.In(err, "bucket %s", id)
	case mark != "" && mark != s.Mark(id.Contract):
		return fault.New(fault.Conflict, "bucket %s carries the mark of another driver or contract (tag %s); it is not adopted: remove the tag if that one is done with it", id, cosi.OwnerTag)
	case mark == "":
		if err := p.mayAdopt(ctx, s, id, terms); err != nil {
			return err
		}
		release, err := p.guardBucket(ctx, id, terms, class, at.Region)
		if err != nil {
			return fault.In(err, "bucket %s", id)
		}
		defer release()
	}
	if err := sameAs(ctx, engine, id.Bucket, class.requested); err != nil {
		return fault.In(err, "bucket %s", id)
	}
	record := &journal.Bucket{
		ID: id, Requested: class.requested, Effective: class.requested, Adopted: mark == "", Unclassed: mark != "", Endpoint: at, CreatedAt: time.Now().UTC(),
	}
	if err := p.journal.SaveBucket(ctx, record); err != nil {
		return err
	}
	p.alive.add(bucketKey(id))
	klog.FromContext(ctx).Info("Bucket adopted", "bucket", id, "made-by-this-driver", !record.Adopted)
	return nil
}

// mayAdopt refuses a bucket without a mark that the contract's terms do not let
// be adopted, or that another contract of the same account has adopted: it would
// have two who may delete it.
func (p *Provisioner) mayAdopt(ctx context.Context, s *site.Site, id cosi.BucketID, terms config.Terms) error {
	if !terms.AdoptBuckets {
		return fault.New(fault.FailedPrecondition, "bucket %s was not made by this driver, and contract %s does not let its buckets be adopted; set adoptBuckets in the contract's terms", id, id.ContractID)
	}
	if !s.Capabilities().SharedBuckets {
		return nil
	}
	return p.journal.EachContract(ctx, func(other cosi.ContractID) error {
		if other.Backend != id.Backend || other == id.ContractID {
			return nil
		}
		_, err := p.journal.Bucket(ctx, cosi.BucketID{ContractID: other, Bucket: id.Bucket})
		if err == nil {
			err = fault.New(fault.Conflict, "bucket %s is adopted under contract %s already; refer to it by that contract", id, other)
		}
		return fault.IgnoreNotFound(err)
	})
}

// absentIsGone is for an answer in which a contract that is gone and a bucket that
// is gone are the same.
func absentIsGone(err error) error {
	if isGone(err) {
		return fault.As(fault.NotFound, err)
	}
	return err
}
