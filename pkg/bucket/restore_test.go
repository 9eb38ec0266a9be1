package bucket_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// refusing is a service with one marked bucket, of which it refuses to tell some parts.
func refusing(t *testing.T, parts ...string) *bucket.Engine {
	t.Helper()
	return at(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case slices.ContainsFunc(parts, q.Has):
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, "<Error><Code>AccessDenied</Code></Error>")
		case q.Has("tagging"):
			_, _ = fmt.Fprintf(w, "<Tagging><TagSet><Tag><Key>%s</Key><Value>o</Value></Tag></TagSet></Tagging>", cosi.OwnerTag)
		case q.Has("requestPayment"):
			_, _ = fmt.Fprint(w, "<RequestPaymentConfiguration><Payer>Requester</Payer></RequestPaymentConfiguration>")
		default:
			w.WriteHeader(http.StatusNotImplemented)
			_, _ = fmt.Fprint(w, "<Error><Code>NotImplemented</Code></Error>")
		}
	}))
}

// What is to go and cannot be read is not gone.
func TestRestoreDoesNotPassOverWhatItCannotRead(t *testing.T) {
	t.Parallel()
	before := params.Bucket{CORSOrigins: []string{"*"}}
	if _, err := refusing(t, "cors").Restore(t.Context(), "b", params.Bucket{}, before); !fault.Is(err, fault.PermissionDenied) {
		t.Errorf("it says %v", err)
	}
}

// A part of a bucket that the driver may not read keeps none of the others from being
// told, unless it is wanted.
func TestStateWithoutARight(t *testing.T) {
	t.Parallel()
	engine := refusing(t, "cors")
	state, err := engine.State(t.Context(), "b", params.Bucket{})
	if err != nil || state.Has["requestPayer"] != "Requester" {
		t.Errorf("it has %v, %v", state.Has, err)
	}
	if _, err := engine.State(t.Context(), "b", params.Bucket{CORSOrigins: []string{"*"}}); !fault.Is(err, fault.PermissionDenied) {
		t.Errorf("it says %v", err)
	}
}
