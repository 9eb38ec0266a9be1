package cosi_test

import (
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

func TestCheckBucketName(t *testing.T) {
	for name, want := range map[string]string{
		"bucket-3f0e":             "",
		"a.b.c":                   "",
		"abc":                     "",
		strings.Repeat("a", 63):   "",
		"":                        "empty",
		"ab":                      "3 to 63",
		strings.Repeat("a", 64):   "3 to 63",
		"Bucket":                  "lower-case",
		"under_score":             "lower-case",
		"sla/sh":                  "lower-case",
		"naïve":                   "lower-case",
		"-abc":                    "begin and end",
		"abc.":                    "begin and end",
		"a..b":                    "two dots",
		"192.168.0.1":             "IP address",
		"xn--bucket":              "reserves the prefix",
		"bucket-s3alias":          "reserves the suffix",
		"bucket--ol-s3":           "reserves the suffix",
		"amzn-s3-demo-bucket":     "reserves the prefix",
		strings.Repeat("x", 1000): "3 to 63",
	} {
		err := cosi.CheckBucketName(name)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q is refused: %v", name, err)
		case want != "" && !fault.Is(err, fault.InvalidArgument):
			t.Errorf("%q: got %v, want InvalidArgument", name, err)
		case want != "" && !strings.Contains(err.Error(), want):
			t.Errorf("%q: message %q does not say %q", name, err, want)
		case err != nil && len(err.Error()) > 400:
			t.Errorf("%q: message of %d bytes repeats its input", name[:10], len(err.Error()))
		}
	}
}

func TestCheckAccountName(t *testing.T) {
	for name, ok := range map[string]bool{
		"ba-6b3f3c1e-98d0-4a65-a33c-0c5f7a0f3d52": true,
		"a":                     true,
		"":                      false,
		"with.dot":              false,
		"Upper":                 false,
		strings.Repeat("a", 64): false,
		cosi.ContractSlot:       false,
	} {
		if err := cosi.CheckAccountName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestForeignIDs(t *testing.T) {
	for _, id := range []string{
		"", "bucket", "a.b", "a.b.", ".b.bucket", "a..bucket", "a.b.Bucket", "region/label/true", "hel1:name",
		"q3:qumulo:%2Fpath", "A.b.bucket", strings.Repeat("a", 40) + "." + strings.Repeat("b", 40) + ".bucket",
	} {
		if _, err := cosi.ParseBucketID(id); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("bucket id %q: got %v, want InvalidArgument", id, err)
		}
		if _, err := cosi.ParseAccountID(id); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("account id %q: got %v, want InvalidArgument", id, err)
		}
	}
}

// Ids must round-trip and be legal in both API versions: at most 128 bytes in
// v1alpha1, [A-Za-z0-9.-] in v1alpha2.
func FuzzBucketID(f *testing.F) {
	f.Add("main.team-a.bucket-1")
	f.Add("main.team-a.a.b.c")
	f.Add("main.team-a.")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := cosi.ParseBucketID(s)
		if err != nil {
			return
		}
		checkID(t, s, id.String())
	})
}

func FuzzAccountID(f *testing.F) {
	f.Add("main.team-a.ba-1")
	f.Add("main.team-a.contract-administration")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := cosi.ParseAccountID(s)
		if err != nil {
			return
		}
		checkID(t, s, id.String())
	})
}

func checkID(t *testing.T, in, out string) {
	t.Helper()
	if in != out {
		t.Errorf("%q became %q", in, out)
	}
	if len(out) > 128 {
		t.Errorf("%q has %d bytes", out, len(out))
	}
	if i := strings.IndexFunc(out, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-')
	}); i >= 0 {
		t.Errorf("%q has an illegal character at %d", out, i)
	}
}
