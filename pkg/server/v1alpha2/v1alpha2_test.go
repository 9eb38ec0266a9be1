package v1alpha2

import (
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
)

// The sidecar never repeats a call that ended with one of these.
func TestNothingThatHealsIsTerminal(t *testing.T) {
	t.Parallel()
	terminal := []codes.Code{codes.InvalidArgument, codes.AlreadyExists, codes.Unimplemented, codes.OutOfRange}
	final := []fault.Kind{fault.InvalidArgument, fault.Unsupported, fault.Mismatch, fault.OutOfRange}
	all := append([]fault.Kind{
		fault.NotFound, fault.Conflict, fault.FailedPrecondition, fault.LimitExceeded, fault.PermissionDenied,
		fault.Pending, fault.RateLimited, fault.Unavailable, fault.Canceled, fault.Internal,
	}, final...)
	tables := Tables()
	if len(tables) != 8 {
		t.Errorf("%d tables, want one for each RPC that can fail", len(tables))
	}
	for method, table := range tables {
		for _, kind := range all {
			code, ok := table[kind]
			if !ok {
				t.Errorf("%s: %s has no code", method, kind)
			}
			if slices.Contains(terminal, code) && !slices.Contains(final, kind) {
				t.Errorf("%s: %s is answered with %s, which is for good", method, kind, code)
			}
		}
		if len(table) != len(all) {
			t.Errorf("%s has %d kinds, want %d", method, len(table), len(all))
		}
	}
}

// singleBucket is a service whose keys reach one bucket each. No call of it is
// made: what it cannot do is known before.
type singleBucket struct{ contract.Provider }

func (singleBucket) Capabilities() contract.Capabilities {
	return contract.Capabilities{ScopeBy: contract.ScopeByKey}
}

// serverOf is a server whose backend is such a service.
func serverOf(t *testing.T, g config.Generation) *Server {
	t.Helper()
	store, err := filestore.Open(t.Context(), filepath.Join(t.TempDir(), "journal.log"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return New("driver.example.com", g, provisioner.New(provisioner.Config{
		Journal:  journal.New(store),
		Backends: map[string]site.Backend{"main": {Service: contract.NewService("main", "cluster", nil, singleBucket{})}},
		Terms:    func(string) (config.Terms, bool) { return config.Terms{Backend: "main"}, true },
	}))
}

func TestSeveralBucketsWhereAKeyHasOne(t *testing.T) {
	t.Parallel()
	s := serverOf(t, config.Auto)
	grant := func(buckets ...string) codes.Code {
		req := &cosipb.DriverGrantBucketAccessRequestB2{
			Account: "ba-1", Protocol: &cosipb.ObjectProtocol{Type: cosipb.ObjectProtocol_S3},
			AuthenticationType: &cosipb.AuthenticationType{Type: cosipb.AuthenticationType_KEY},
		}
		for _, b := range buckets {
			req.Buckets = append(req.Buckets, &cosipb.AccessedBucketB2{
				BucketId: "main.team." + b, ObjectDataAccessMode: &cosipb.AccessModeB2{Mode: cosipb.AccessModeB2_Mode(cosipb.AccessMode_READ_ONLY)},
			})
		}
		_, err := s.grantBucketAccess(t.Context(), req)
		return status.Code(Tables()[cosipb.Provisioner_DriverGrantBucketAccess_FullMethodName].Status(err))
	}
	if got := grant("first", "second"); got != codes.OutOfRange {
		t.Errorf("two buckets: %s, want OutOfRange", got)
	}
	if got := grant("first"); got != codes.NotFound { // the bucket, not the number
		t.Errorf("one bucket: %s, want NotFound", got)
	}
}
