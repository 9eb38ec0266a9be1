package filestore_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// BenchmarkManyRecords opens a journal of 10,000 buckets and 20,000 keys, and
// then writes one of them until the file is rewritten. It tells what the records
// take of the heap, and the longest that a call took before and while it was.
func BenchmarkManyRecords(b *testing.B) {
	path := filepath.Join(b.TempDir(), "journal.log")
	f := open(b, path)
	many(b, journal.New(f), 10_000)
	must(b, f.Close())
	for b.Loop() {
		before := heap()
		var rewrites atomic.Int32
		begun := time.Now()
		f, err := filestore.Open(b.Context(), path, func(operation string, err error) {
			if must(b, err); operation == "rewrite" {
				rewrites.Add(1)
			}
		})
		must(b, err)
		b.ReportMetric(float64(time.Since(begun).Milliseconds()), "ms/open")
		b.ReportMetric(heap()-before, "MiB")
		j := journal.New(f)
		filler := &journal.Bucket{ID: bucketID(0), Requested: params.Bucket{Policy: strings.Repeat("x", 20_000)}}
		must(b, j.SaveBucket(b.Context(), filler))
		longest := func(until func() bool) float64 {
			var longest time.Duration
			for !until() {
				begun := time.Now()
				must(b, j.SaveBucket(b.Context(), filler))
				longest = max(longest, time.Since(begun))
			}
			return float64(longest.Microseconds()) / 1000
		}
		calls := 0
		b.ReportMetric(longest(func() bool { calls++; return calls > 300 }), "ms/longest-call")
		b.ReportMetric(longest(func() bool { return rewrites.Load() > 0 }), "ms/longest-call-while-rewritten")
		must(b, j.Delete(b.Context(), filler))
		must(b, f.Close())
	}
}

// BenchmarkOpen opens journals of as many buckets, with two keys each, as one driver
// is made for, and of ten times that.
func BenchmarkOpen(b *testing.B) {
	for _, buckets := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("%d buckets", buckets), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "journal.log")
			f := open(b, path)
			many(b, journal.New(f), buckets)
			must(b, f.Close())
			for b.Loop() {
				before, begun := heap(), cpu(b)
				f, err := filestore.Open(b.Context(), path, nil)
				must(b, err)
				b.ReportMetric(float64((cpu(b) - begun).Milliseconds()), "cpu-ms/open")
				b.ReportMetric(heap()-before, "MiB")
				must(b, f.Close())
			}
		})
	}
}

// many writes buckets as a cluster has them, with two keys each, twenty under each
// contract.
func many(t testing.TB, j *journal.Journal, buckets int) {
	var group sync.WaitGroup
	const writers = 50
	for w := range writers {
		group.Go(func() {
			for i := w; i < buckets; i += writers {
				contract := cosi.ContractID{Backend: "main", Contract: fmt.Sprintf("team-%d", i%max(1, buckets/20))}
				spec := params.Bucket{Contract: contract.Contract, Region: "eu-central-1", Versioning: "enabled", BlockPublicAccess: []string{"all"}, OnDelete: params.Refuse}
				bucket := &journal.Bucket{
					ID: cosi.BucketID{ContractID: contract, Bucket: fmt.Sprintf("bucket-7f3c1e9a-4f0e-4b8d-9a51-%012d", i)}, Requested: spec, Effective: spec,
					Endpoint: cosi.Endpoint{Region: "eu-central-1", URL: "https://s3.eu-central-1.example.com"}, CreatedAt: time.Now(),
				}
				must(t, j.SaveBucket(t.Context(), bucket))
				for k := range 2 {
					grant := journal.Grant{Buckets: []journal.BucketAccess{{Bucket: bucket.ID.Bucket, Mode: cosi.ReadWrite}}}
					must(t, j.SaveAccount(t.Context(), &journal.Account{
						ID: cosi.AccountID{ContractID: contract, Account: fmt.Sprintf("ba-7f3c1e9a-4f0e-4b8d-9a51-%012d", 2*i+k)}, Effective: grant, Requested: grant, CreatedAt: time.Now(), KeyState: journal.KeyState{Phase: journal.Done, IssuedAt: time.Now(), Proposed: pair("AKIAIOSFODNN7EXAMPLE"), Issued: pair("AKIAIOSFODNN7EXAMPLE-wJalrXUtnFEMIK7MDENG")},
					}))
				}
			}
		})
	}
	group.Wait()
}

// cpu is the time that the processors have worked for this process.
func cpu(t testing.TB) time.Duration {
	var usage syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}
