package sanitytest_test

import (
	"os"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/fake"
	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/sanity"
	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/sanity/sanitytest"
)

func TestCorrectDriver(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "s") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, stop, err := fake.Start(dir, []string{"v1alpha1", "C2"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	sanitytest.Test(t, sanity.Config{Endpoint: d.Endpoint, S3: sanity.S3{Enabled: true}})
}
