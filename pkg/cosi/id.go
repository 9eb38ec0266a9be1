package cosi

import (
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// MaxPrefix is the longest "<backend>.<contract>" an id can carry, in bytes:
// v1alpha1 limits strings to 128 bytes (its spec.md, "Size Limits"), of which
// the longest bucket or account name takes 63 and the dot before it one.
const MaxPrefix = 64

// ContractID names a contract at one of the driver's backends.
type ContractID struct {
	Backend  string // a backend of the driver's configuration, a DNS label
	Contract string // the contract's name, a DNS label
}

// BucketID names a bucket. It is a pure function of the request that makes the
// bucket, so a repeated request, a restarted driver and a later API version
// all arrive at the same id, and Delete needs nothing but the id.
type BucketID struct {
	ContractID
	Bucket string // the S3 bucket's name
}

// AccountID names what one access holds: one principal and its key.
type AccountID struct {
	ContractID
	Account string // the name of the access, a DNS label
}

// String returns "<backend>.<contract>".
func (c ContractID) String() string { return c.Backend + "." + c.Contract }

// String returns the id as the COSI objects store it.
func (b BucketID) String() string { return b.ContractID.String() + "." + b.Bucket }

// String returns the id as the COSI objects store it.
func (a AccountID) String() string { return a.ContractID.String() + "." + a.Account }

// ParseContractID is the inverse of [ContractID.String].
func ParseContractID(s string) (ContractID, error) {
	contract, _, ok := split(s + ".")
	if !ok {
		return ContractID{}, fault.New(fault.InvalidArgument, "contract %q is not of the form <backend>.<contract>", clip(s))
	}
	return contract, nil
}

// ParseBucketID is the inverse of [BucketID.String]. Anything it does not
// understand was made by another driver: InvalidArgument, so that this
// driver's sidecar never takes another driver's finalizer off.
func ParseBucketID(s string) (BucketID, error) {
	contract, name, ok := split(s)
	if !ok || CheckBucketName(name) != nil {
		return BucketID{}, fault.New(fault.InvalidArgument, "bucket id %q is not one of this driver's: it gives ids of the form <backend>.<contract>.<bucket>", clip(s))
	}
	return BucketID{ContractID: contract, Bucket: name}, nil
}

// ParseAccountID is the inverse of [AccountID.String]; see [ParseBucketID].
func ParseAccountID(s string) (AccountID, error) {
	contract, name, ok := split(s)
	if !ok || CheckAccountName(name) != nil {
		return AccountID{}, fault.New(fault.InvalidArgument, "account id %q is not one of this driver's: it gives ids of the form <backend>.<contract>.<account>", clip(s))
	}
	return AccountID{ContractID: contract, Account: name}, nil
}

func split(s string) (ContractID, string, bool) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) != 3 || !IsLabel(parts[0]) || !IsLabel(parts[1]) || len(parts[0])+1+len(parts[1]) > MaxPrefix {
		return ContractID{}, "", false
	}
	return ContractID{Backend: parts[0], Contract: parts[1]}, parts[2], true
}

// clip keeps a foreign text short enough for a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
