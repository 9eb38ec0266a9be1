package contracttest

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// fill puts an object of some KiB.
func (t *tenant) fill(bucket, key string, kib int) error {
	_, err := t.client(t.key).PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(make([]byte, kib<<10))})
	return err
}

// full checks that a write was refused because the bucket has no room for it.
func (e *env) full(what string, err error) {
	e.Helper()
	var answer smithy.APIError
	if !errors.As(err, &answer) || answer.ErrorCode() != "QuotaExceeded" {
		e.Errorf("%s: got %v, want QuotaExceeded", what, err)
	}
}

// testBucketQuota bounds single buckets, where the service can, and sees that a
// class which asks for it is refused by name where it cannot.
func testBucketQuota(e *env) {
	t := e.sign()
	b := t.bucket()
	bounder, _ := e.Provider.(contract.Bounder) // the portable type is one for every provider
	_, can := e.bare.(contract.Bounder)
	if can != e.Provider.Capabilities().BucketBounds {
		e.Errorf("the capability is %t, and the provider a Bounder: %t", !can, can)
	}
	if !can {
		e.kind("bounding a bucket", bounder.BoundBucket(e.Context(), t.Name, b, contract.Bounds{MaxObjects: 1}), fault.Unsupported)
		_, err := bounder.BucketUse(e.Context(), t.Name, b)
		e.kind("a bucket's use", err, fault.Unsupported)
		_, err = bounder.BucketUses(e.Context(), t.Name)
		e.kind("the use of all buckets", err, fault.Unsupported)
		err = t.engine.Create(e.Context(), t.bucketName(), params.Bucket{Contract: t.Name, MaxBytes: 1 << 20})
		e.kind("a class with maxBytes", err, fault.Unsupported)
		if err != nil && !strings.Contains(err.Error(), "no quota (maxBytes)") {
			e.Errorf("%q does not name the parameter", err)
		}
		return
	}
	bound := func(to contract.Bounds) {
		e.Helper()
		e.must(bounder.BoundBucket(e.Context(), t.Name, b, to))
		have, err := bounder.BucketUse(e.Context(), t.Name, b)
		e.must(err)
		if have.Bucket != b || have.Bounds != to {
			e.Errorf("bounds %+v of bucket %s, want %+v of %s", have.Bounds, have.Bucket, to, b)
		}
	}
	holds := func(what string, objects, kib int64) {
		e.Helper()
		have, err := bounder.BucketUse(e.Context(), t.Name, b)
		e.must(err)
		if have.Objects == nil || have.Bytes == nil || *have.Objects != objects || *have.Bytes != kib<<10 {
			e.Errorf("%s: the service counts %v objects of %v bytes, want %d of %d", what, deref(have.Objects), deref(have.Bytes), objects, kib<<10)
		}
	}
	holds("at first", 0, 0)
	bound(contract.Bounds{})
	bound(contract.Bounds{MaxObjects: 2})
	e.allowed("the first of two", t.fill(b, "a", 8))
	e.allowed("the second of two", t.fill(b, "b", 8))
	e.full("the third of two", t.fill(b, "c", 8))
	holds("full of objects", 2, 16)
	e.must(e.remove(t.client(t.key), b, "b"))
	e.eventually("another in place of one that went", func() error { return t.fill(b, "c", 8) })

	bound(contract.Bounds{MaxBytes: 64 << 10})
	e.allowed("within its bytes", t.fill(b, "d", 40))
	e.full("beyond its bytes", t.fill(b, "e", 40))
	e.allowed("the rest", t.fill(b, "e", 8))
	holds("full of bytes", 4, 64)

	// Less than it holds: what is there stays, and can be read and deleted.
	bound(contract.Bounds{MaxBytes: 4 << 10, MaxObjects: 1})
	e.full("into a bucket that is over its bounds", t.fill(b, "f", 1))
	holds("over its bounds", 4, 64)
	e.allowed("list", e.list(t.client(t.key), b, ""))
	e.must(e.remove(t.client(t.key), b, "d"))
	holds("after a delete", 3, 24)

	most := contract.Bounds{MaxBytes: 999 << 50, MaxObjects: 999_999_999_999_999_999}
	bound(most)
	e.allowed("below the largest bounds", t.fill(b, "f", 8))
	bound(contract.Bounds{MaxBytes: 1 << 10})
	bound(contract.Bounds{}) // and none that is left of an earlier one
	e.allowed("without bounds", t.fill(b, "g", 80))

	other := t.bucket()
	all, err := bounder.BucketUses(e.Context(), t.Name)
	e.must(err)
	slices.SortFunc(all, func(x, y contract.BucketUse) int { return strings.Compare(x.Bucket, y.Bucket) })
	want := []string{b, other}
	slices.Sort(want)
	var names []string
	for _, u := range all {
		names = append(names, u.Bucket)
		if u.Bucket == b && (deref(u.Objects) != 5 || deref(u.Bytes) != 112<<10) {
			e.Errorf("in the list the bucket has %d objects of %d bytes", deref(u.Objects), deref(u.Bytes))
		}
	}
	if !slices.Equal(names, want) {
		e.Errorf("buckets %q, want %q", names, want)
	}

	// What is not the contract's is not there for it.
	neighbour := e.sign()
	_, err = bounder.BucketUse(e.Context(), neighbour.Name, b)
	e.kind("the use of a neighbour's bucket", err, fault.NotFound)
	e.kind("bounding a neighbour's bucket", bounder.BoundBucket(e.Context(), neighbour.Name, b, contract.Bounds{MaxObjects: 1}), fault.NotFound)
	e.kind("bounding no bucket", bounder.BoundBucket(e.Context(), t.Name, label("b"), contract.Bounds{MaxObjects: 1}), fault.NotFound)
	bound(contract.Bounds{})

	// An answer that is lost, in either direction, leaves one state.
	for n := 1; n <= 2; n++ {
		e.Lose(n)
		to := contract.Bounds{MaxObjects: int64(10 + n)}
		e.must(repeated(func() error { return bounder.BoundBucket(e.Context(), t.Name, b, to) }))
		e.Lose(0)
		have, err := bounder.BucketUse(e.Context(), t.Name, b)
		e.must(err)
		if have.Bounds != to {
			e.Errorf("after a lost answer: %+v, want %+v", have.Bounds, to)
		}
	}
}

func deref(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}
