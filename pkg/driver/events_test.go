package driver

import (
	"testing"

	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
)

func TestVersionOf(t *testing.T) {
	t.Parallel()
	for method, want := range map[string][2]string{
		"/cosi.v1alpha1.Provisioner/DriverCreateBucket":           {"v1alpha1", "CreateBucketFailed"},
		cosipb.Provisioner_DriverGrantBucketAccess_FullMethodName: {"v1alpha2", "GrantBucketAccessFailed"},
		"/": {"/", "Failed"},
	} {
		if version, reason := versionOf(method); version != want[0] || reason != want[1] {
			t.Errorf("%s: %s %s, want %s", method, version, reason, want)
		}
	}
}
