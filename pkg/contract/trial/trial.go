// Package trial finds out, before a driver is deployed, whether a storage
// service does what the driver will ask of it: it signs a contract, makes a
// bucket, gives out a key that may read and write in it, uses that key, and
// takes all of it back.
package trial

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Service is what is tried.
type Service struct {
	*contract.Service
	// Engine returns what makes buckets with a contract's own key, and marks them.
	Engine func(at cosi.Endpoint, key secret.KeyPair, mark string) *bucket.Engine
	// Contract is the name of the contract to sign, which is cancelled afterwards.
	Contract string
	// HTTP carries what an application would ask.
	HTTP *http.Client
}

// Step is one thing that was tried.
type Step struct {
	What string
	// Err is why it failed, nil if it did not.
	Err error
}

// Run tries what it can, in order: the first failure ends it. What was made is
// taken back in any case.
func Run(ctx context.Context, s Service) []Step {
	r := &run{Service: s, ctx: ctx}
	r.all()
	return r.steps
}

type run struct {
	Service
	ctx   context.Context //nolint:containedctx // of one trial, which ends with it
	steps []Step
}

// step does one thing, and reports whether to go on.
func (r *run) step(what string, do func() error) bool {
	err := do()
	r.steps = append(r.steps, Step{what, err})
	return err == nil
}

// undoTimeout bounds the taking back.
const undoTimeout = 30 * time.Second

// undo does one thing even if the trial was given up. It is a step too: what
// cannot be taken back has to be told.
func (r *run) undo(what string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), undoTimeout)
	defer cancel()
	r.step(what, func() error { return until(ctx, func() error { return do(ctx) }) })
}

// until repeats what is pending.
func until(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !fault.Is(err, fault.Pending) {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return err
		}
	}
}

func (r *run) all() {
	if !r.step("find a contract that is not there", func() error {
		_, err := r.GetContract(r.ctx, r.Contract)
		switch {
		case err == nil:
			return fault.New(fault.FailedPrecondition, "contract %s is there; the trial leaves it alone", r.Contract)
		case fault.Is(err, fault.NotFound):
			return nil
		}
		return err
	}) {
		return
	}
	var c contract.Contract
	signed := r.step("sign a contract", func() error {
		return until(r.ctx, func() (err error) {
			c, err = r.EnsureContract(r.ctx, contract.Spec{Name: r.Contract, Display: "trial of contract-cosi-driver"})
			switch {
			case err == nil && c.State == contract.StatePending:
				return fault.New(fault.Pending, "contract %s is pending", r.Contract)
			case err == nil && c.State != contract.StateActive:
				return fault.New(fault.FailedPrecondition, "contract %s is %s", r.Contract, c.State)
			case err == nil && len(c.Endpoints) == 0:
				return fault.New(fault.FailedPrecondition, "contract %s has no S3 endpoint", r.Contract)
			}
			return err
		})
	})
	defer r.undo("cancel the contract", func(ctx context.Context) error { return r.DeleteContract(ctx, r.Contract) })
	if !signed {
		return
	}
	var own secret.KeyPair
	if !r.step("issue the contract's own key", func() (err error) {
		own, err = r.IssueKey(r.ctx, contract.IssueKeyRequest{Contract: r.Contract, Slot: cosi.ContractSlot, Proposed: keys.Propose()})
		return err
	}) {
		return
	}
	engine := r.Engine(c.Endpoints[0], own, r.Contract)
	name, neighbour := "trial-"+strings.ToLower(rand.Text()[:16]), "trial-"+strings.ToLower(rand.Text()[:16])
	made := r.step("make buckets with the driver's tag", func() error {
		return errors.Join(engine.Create(r.ctx, name, params.Bucket{}), engine.Create(r.ctx, neighbour, params.Bucket{}))
	})
	defer r.undo("delete the buckets", func(ctx context.Context) error {
		_, err := engine.Empty(ctx, name, params.Bucket{})
		return errors.Join(err, engine.Delete(ctx, name), engine.Delete(ctx, neighbour))
	})
	if made {
		r.key(c.Endpoints[0], name, neighbour)
	}
}

// key tries a key to one bucket.
func (r *run) key(at cosi.Endpoint, name, neighbour string) {
	const slot = "trial"
	var pair secret.KeyPair
	issued := r.step("issue a key to one bucket", func() (err error) {
		pair, err = r.IssueKey(r.ctx, contract.IssueKeyRequest{
			Contract: r.Contract, Slot: slot, Proposed: keys.Propose(),
			Scope: &contract.Scope{Buckets: []contract.BucketScope{{Bucket: name, Mode: cosi.ReadWrite}}},
		})
		return err
	})
	app := r.application(at, pair)
	revoke := func(ctx context.Context) error {
		return r.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: r.Contract, Slot: slot})
	}
	if issued {
		r.step("write, read and list with the key", func() error {
			return errors.Join(r.put(app, name), r.get(app, name), r.list(app, name))
		})
		if r.Capabilities().ScopeBy != contract.ScopeByNone {
			r.step("be refused the neighbouring bucket", func() error { return refusal(r.list(app, neighbour)) })
		}
	}
	r.undo("revoke the key", revoke)
	if issued {
		r.step("be refused with the revoked key", func() error {
			deadline := time.Now().Add(r.Capabilities().Settles)
			for {
				err := refusal(r.list(app, name))
				if err == nil || time.Now().After(deadline) {
					return err
				}
				select {
				case <-r.ctx.Done():
					return err
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
}

func (r *run) application(at cosi.Endpoint, pair secret.KeyPair) *s3.Client {
	return signed.S3(at, pair, r.HTTP)
}

const object = "trial"

func (r *run) put(c *s3.Client, name string) error {
	_, err := c.PutObject(r.ctx, &s3.PutObjectInput{Bucket: &name, Key: aws.String(object), Body: bytes.NewReader([]byte(object))})
	return plain("write", err)
}

func (r *run) get(c *s3.Client, name string) error {
	out, err := c.GetObject(r.ctx, &s3.GetObjectInput{Bucket: &name, Key: aws.String(object)})
	if err == nil {
		err = out.Body.Close()
	}
	return plain("read", err)
}

func (r *run) list(c *s3.Client, name string) error {
	_, err := c.ListObjectsV2(r.ctx, &s3.ListObjectsV2Input{Bucket: &name})
	return plain("list", err)
}

// plain is an error of the SDK without what differs each time.
func plain(what string, err error) error {
	switch code := signed.Code(err); {
	case err == nil:
		return nil
	case code != "":
		return fault.Wrap(fault.PermissionDenied, err, "the storage refused to %s (%s)", what, code)
	}
	return fault.NoAnswer(err, "", "the storage")
}

// refusal turns a refusal into success, and all else into a failure.
func refusal(err error) error {
	switch {
	case err == nil:
		return fault.New(fault.Internal, "the storage allowed what it has to refuse")
	case fault.Is(err, fault.PermissionDenied):
		return nil
	}
	return err
}
