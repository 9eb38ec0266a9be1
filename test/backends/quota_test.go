package backends

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// bounds are the types of services that bound single buckets.
var bounds = map[string]bool{"rgw": true, "contractapi": true}

// A class with a quota is kept at a service that has such bounds, with what the bucket
// holds in the metrics, and refused by name at any other.
func TestQuotaOfABucket(t *testing.T) {
	t.Parallel()
	eachStorage(t, func(t *testing.T, s *harness.Storage) {
		r := run(t, s, func(text string) string { return text + "drift: {mode: repair, interval: 1s, callsPerSecond: 1000}\n" })
		l := r.life()
		l.class = map[string]string{"maxBytes": "64Ki", "maxObjects": "2"}
		err := l.create()
		if !bounds[s.Type] {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "the storage has no quota (maxBytes, maxObjects); leave it out of the class") {
				t.Errorf("got %v", err)
			}
			return
		}
		must(t, err)
		must(t, l.create())
		must(t, l.grant())
		put := func(key string, size int) error {
			_, err := l.client().PutObject(l.Context(), &s3.PutObjectInput{Bucket: &l.bucket, Key: &key, Body: strings.NewReader(strings.Repeat("x", size))})
			return err
		}
		full := func(what string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "QuotaExceeded") {
				t.Errorf("%s: %v", what, err)
			}
		}
		full("too large", put("large", 65<<10))
		must(t, put("a", 4096))
		must(t, put("b", 4096))
		full("one too many", put("c", 1))
		sample := func(name, value string) string {
			return "\ncontract_cosi_bucket_" + name + `{backend="main",bucket="` + l.bucket + `",claim="",contract="` + l.contract + `",namespace=""} ` + value + "\n"
		}
		for name, value := range map[string]string{"bytes": "8192", "objects": "2", "max_bytes": "65536", "max_objects": "2"} {
			r.until(name, func() bool { return strings.Contains(r.page("/metrics"), sample(name, value)) })
		}
		for _, key := range []string{"a", "b"} {
			_, err := l.client().DeleteObject(l.Context(), &s3.DeleteObjectInput{Bucket: &l.bucket, Key: &key})
			must(t, err)
		}
		must(t, l.revoke())
		must(t, l.delete())
		r.until("the bucket is gone", func() bool { return !strings.Contains(r.page("/metrics"), `bucket="`+l.bucket+`"`) })
	})
}

// What an operator changes of a quota at the gateway is reported, or brought back.
func TestRGWQuotaDrift(t *testing.T) {
	t.Parallel()
	for mode, repaired := range map[string]string{"report": "false", "repair": "true"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := run(t, storages["rgw"], func(text string) string {
				return text + "drift: {mode: " + mode + ", interval: 1s, callsPerSecond: 1000}\n"
			})
			l := r.life()
			l.class = map[string]string{"maxBytes": "1Ti", "maxObjects": "1000"}
			must(t, l.create())
			_, err := ceph.Admin(t.Context(), "quota", "set", "--quota-scope=bucket", "--bucket="+tenantOf(l.contract)+"/"+l.bucket, "--max-objects=5")
			must(t, err)
			sample := `contract_cosi_drift_findings_total{repaired="` + repaired + `",what="quota"}`
			r.until(sample, func() bool { return !strings.Contains(r.page("/metrics"), sample+" 0\n") })
			have, err := provide(t, ceph.URL, administrator(), "us-east-1").BucketUse(t.Context(), l.contract, l.bucket)
			must(t, err)
			if want := map[string]int64{"report": 5, "repair": 1000}[mode]; have.MaxObjects != want || have.MaxBytes != 1<<40 {
				t.Errorf("bounds %+v", have.Bounds)
			}
			must(t, l.delete())
		})
	}
}
