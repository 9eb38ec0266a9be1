package gateway

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/versity/versitygw/auth"
)

func nothing() use { return use{} }

func unlimited(string) (*int64, bool) { return nil, true }

func made(t *testing.T, b *Buckets, bucket, owner string) *entry {
	t.Helper()
	e, err := b.reserve(bucket, owner, unlimited)
	if err != nil {
		t.Fatal(err)
	}
	b.settle(e, true)
	return e
}

func TestKeysThatNobodyChangesTakeNoMemory(t *testing.T) {
	e := made(t, newBuckets(), "bucket", "owner")
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for j := range 100 {
				h, err := e.hold(strings.Repeat("k", 1+(i+j)%3), nothing)
				if err != nil {
					t.Error(err)
					return
				}
				h.pause()
				if err := h.resume(); err != nil {
					t.Error(err)
				}
				h.pause()
				h.pause()
			}
		})
	}
	writers.Wait()
	if len(e.turns) > 0 {
		t.Errorf("%d keys are remembered", len(e.turns))
	}
}

func TestHoldEndsWithTheBucket(t *testing.T) {
	b := newBuckets()
	e := made(t, b, "bucket", "owner")
	h, err := e.hold("key", nothing)
	if err != nil {
		t.Fatal(err)
	}
	h.pause()
	if err := e.alone(); err != nil {
		t.Fatal(err)
	}
	b.settle(e, false)
	made(t, b, "bucket", "owner")
	if h.resume() == nil {
		t.Error("the hold went over to the next bucket of the name")
	}
	if _, err := e.hold("key", nothing); err == nil {
		t.Error("a bucket that is gone was held")
	}
	if e.alone() == nil {
		t.Error("a bucket that is gone was held alone")
	}
	if n := b.Count("owner"); n != 1 {
		t.Errorf("%d buckets, want 1", n)
	}
}

// A request that was judged by one contract's ACL must not reach the bucket of
// the same name that another contract has made since.
func TestRequestForABucketThatWentToAnother(t *testing.T) {
	l := &ledger{buckets: newBuckets()}
	made(t, l.buckets, "bucket", "new")
	for owner, found := range map[string]bool{"old": false, "new": true} {
		ctx := context.WithValue(t.Context(), "parsed-acl", auth.ACL{Owner: owner}) //nolint:staticcheck,revive // the gateway's key
		if _, err := l.find(ctx, "bucket"); (err == nil) != found {
			t.Errorf("judged by the ACL of %s: %v", owner, err)
		}
	}
}
