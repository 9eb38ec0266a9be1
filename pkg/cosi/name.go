// Package cosi is the vocabulary that the COSI API versions share: ids, names,
// access modes and the driver's marks. It knows no API version, no backend and
// no gRPC.
package cosi

import (
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// OwnerTag is the key of the S3 bucket tag that proves a bucket was made by
// this driver; its value is the driver's owner mark.
const OwnerTag = "contract-cosi-driver/owner"

// JournalTag is the key of the tag or label that a contract has beside its owner's
// mark; its value is the identity of the journal that signed it.
const JournalTag = "contract-cosi-driver/journal"

// SharedMark is the value of that tag where the buckets of several contracts
// lie in one account: the driver's mark and the contract's name.
func SharedMark(owner, contract string) string { return owner + "/" + contract }

// IdentityBytes is how long the identity of a journal is, which is written in
// lower-case hexadecimal digits.
const IdentityBytes = 8

// IsIdentity reports whether s can be the identity of a journal.
func IsIdentity(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 2*IdentityBytes && s == strings.ToLower(s)
}

// ContractSlot is the key slot that holds a contract's own key. No account may
// be called so.
const ContractSlot = "contract-administration"

// IsLabel reports whether s is a DNS label in lower case (RFC 1123, section 2.1).
func IsLabel(s string) bool {
	if s == "" || len(s) > 63 || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}

// CheckBucketName reports why S3 would refuse a bucket of this name (Amazon S3
// User Guide, "General purpose bucket naming rules"). The request's name is
// used as it is, because the v1alpha1 Secret shows it to the application as
// the bucket to use.
func CheckBucketName(name string) error {
	var why string
	switch {
	case name == "":
		why = "it is empty"
	case len(name) < 3 || len(name) > 63:
		why = "it must be 3 to 63 characters long"
	case !onlyBucketCharacters(name):
		why = "only lower-case letters, digits, dots and hyphens are allowed"
	case !isAlphanumeric(name[0]) || !isAlphanumeric(name[len(name)-1]):
		why = "it must begin and end with a letter or digit"
	case strings.Contains(name, ".."):
		why = "two dots may not stand together"
	case looksLikeAddress(name):
		why = "it looks like an IP address"
	}
	for _, reserved := range []string{"xn--", "sthree-", "amzn-s3-demo-"} {
		if why == "" && strings.HasPrefix(name, reserved) {
			why = "S3 reserves the prefix " + reserved
		}
	}
	for _, reserved := range []string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"} {
		if why == "" && strings.HasSuffix(name, reserved) {
			why = "S3 reserves the suffix " + reserved
		}
	}
	if why == "" {
		return nil
	}
	return fault.New(fault.InvalidArgument, "bucket name %q cannot be used with S3: %s; choose a BucketClass name or Bucket object name that keeps to S3's rules", clip(name), why)
}

// CheckAccountName reports why an access cannot have this name.
func CheckAccountName(name string) error {
	switch {
	case name == "":
		return fault.New(fault.InvalidArgument, "the access has no name")
	case name == ContractSlot:
		return fault.New(fault.InvalidArgument, "access name %q is reserved for the contract's own key", name)
	case !IsLabel(name):
		return fault.New(fault.InvalidArgument, "access name %q cannot be used: it must be 1 to 63 lower-case letters, digits and hyphens, and begin and end with a letter or digit", clip(name))
	}
	return nil
}

func isAlphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func onlyBucketCharacters(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && s[i] != '.' && s[i] != '-' {
			return false
		}
	}
	return true
}

func looksLikeAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}
