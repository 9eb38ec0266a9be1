package policy_test

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

var update = flag.Bool("update", false, "write the golden files")

// foreign has what the driver has never heard of, and a number that a float
// would spoil.
const foreign = `{"Version":"2008-10-17","Id":"theirs","X":12345678901234567890,"Statement":[{"Sid":"Theirs","Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"r","Condition":{"Odd<Operator>":{"k":1.10}},"New":[1]},{"Effect":"Allow","Principal":{"AWS":"a"},"Action":"s3:GetObject","Resource":"r"}]}`

func parse(t *testing.T, text string) *policy.Document {
	t.Helper()
	d, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEditsLoseNothing(t *testing.T) {
	t.Parallel()
	d := parse(t, foreign)
	owner := policy.AWS().Owner("b", "tenant")
	d.Set("2012-10-17", owner)
	d.Set("2012-10-17", owner)
	if !d.Has(owner) || strings.Count(d.String(), owner.Sid) != 1 {
		t.Errorf("got %s", d)
	}
	for _, part := range []string{`"Version":"2008-10-17"`, `"Id":"theirs"`, `"X":12345678901234567890`, `"Odd<Operator>":{"k":1.10}`, `"New":[1]`} {
		if !strings.Contains(d.String(), part) {
			t.Errorf("%s is lost in %s", part, d)
		}
	}
	if !d.Remove(policy.Own) || d.Remove(policy.Own) {
		t.Error("the driver's statement was not removed once")
	}
	var got, want any
	if json.Unmarshal([]byte(d.String()), &got) != nil || json.Unmarshal([]byte(foreign), &want) != nil {
		t.Fatal(d)
	}
	if a, b := d.String(), parse(t, foreign).String(); a != b {
		t.Errorf("after an edit and its undoing:\n%s\nwant\n%s", a, b)
	}
	again := parse(t, "")
	again.Take(parse(t, foreign), func(sid string) bool { return !policy.Own(sid) })
	if again.Empty() {
		t.Error("nothing was taken")
	}
}

func TestALoneStatement(t *testing.T) {
	t.Parallel()
	d := parse(t, `{"Statement":{"Sid":"One","Effect":"Allow"}}`)
	d.Set("v", policy.Statement{Sid: "Two", Effect: "Deny"})
	if got := d.String(); !strings.Contains(got, `"Sid":"One"`) || !strings.Contains(got, `"Sid":"Two"`) || !strings.Contains(got, `"Version":"v"`) {
		t.Errorf("got %s", got)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "[]", "null", `{"Statement":1}`, `{"Statement":[1]}`, `{"Statement":[null]}`, "{} {}"} {
		if _, err := policy.Parse(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// A service may write a list of one as the one, and reorder lists.
func TestHasForgivesForm(t *testing.T) {
	t.Parallel()
	s := policy.Statement{Sid: "S", Effect: "Allow", Action: []string{"a", "b"}, Resource: []string{"r"}}
	if !parse(t, `{"Statement":[{"Resource":"r","Action":["b","a"],"Effect":"Allow","Sid":"S"}]}`).Has(s) {
		t.Error("the same in another form is not found")
	}
	if parse(t, `{"Statement":[{"Resource":"r","Action":["b"],"Effect":"Allow","Sid":"S"}]}`).Has(s) {
		t.Error("another statement with the Sid is taken for it")
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	buckets := []cosi.BucketScope{
		{Bucket: "a", Prefix: "in/", Mode: cosi.ReadWrite}, {Bucket: "b", Prefix: "in/", Mode: cosi.ReadOnly}, {Bucket: "c", Prefix: "in/", Mode: cosi.ReadOnly},
	}
	sources := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	statements, err := policy.AWS().Allow("S", buckets, sources, "p")
	if err != nil {
		t.Fatal(err)
	}
	var sids []string
	for _, s := range statements {
		sids = append(sids, s.Sid)
		if got := s.Condition["IpAddress"]["aws:SourceIp"]; !slices.Equal(got, []string{"192.0.2.0/24", "2001:db8::/32"}) {
			t.Errorf("%s: addresses %q", s.Sid, got)
		}
		if got := s.Condition["StringLike"]["s3:prefix"]; strings.HasPrefix(s.Sid, "SList") != (len(got) == 1) {
			t.Errorf("%s: prefix %q", s.Sid, got)
		}
	}
	if want := []string{"SBucketReadOnly", "SBucketReadWrite", "SListReadOnly", "SListReadWrite", "SObjectsReadOnly", "SObjectsReadWrite"}; !slices.Equal(sids, want) {
		t.Errorf("got %q, want %q", sids, want)
	}

	bare := policy.Dialect{Version: "v", ActionPrefix: "x:", ResourcePrefix: "r:", PrincipalKey: "P"}
	if _, err := bare.Allow("S", buckets, sources); !fault.Is(err, fault.FailedPrecondition) {
		t.Errorf("addresses without a key for them: %v", err)
	}
	if _, err := bare.Allow("S", buckets, nil); !fault.Is(err, fault.FailedPrecondition) {
		t.Errorf("a prefix without a key for it: %v", err)
	}
	for _, prefix := range []string{"a*", "a?", "${aws:username}"} {
		if _, err := policy.AWS().Allow("S", []cosi.BucketScope{{Bucket: "a", Prefix: prefix, Mode: cosi.ReadOnly}}, nil); !fault.Is(err, fault.FailedPrecondition) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
}

// The policy that a service of another dialect publishes as its example, in the
// dialect that stands for it in the configuration: what it says beside the
// driver's statements stays.
func TestAnotherDialect(t *testing.T) {
	t.Parallel()
	d := policy.Dialect{
		Version: "2008-10-17", ActionPrefix: "dag:", ResourcePrefix: "grn:iijgio:dag:::", PrincipalKey: "IIJGIO", SourceAddressKey: "iijgio:SourceIp",
	}
	example, err := os.ReadFile("testdata/dag.json")
	if err != nil {
		t.Fatal(err)
	}
	doc := parse(t, string(example))
	statements, err := d.Allow("ContractCosi00", []cosi.BucketScope{{Bucket: "bucket", Mode: cosi.ReadOnly}},
		[]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, "1-22-333-4444")
	if err != nil {
		t.Fatal(err)
	}
	doc.Set(d.Version, statements...)
	var pretty strings.Builder
	encoder := json.NewEncoder(&pretty)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(json.RawMessage(doc.String())); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/dag.edited.json"
	if *update {
		if err := os.WriteFile(golden, []byte(pretty.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if pretty.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", pretty.String(), want)
	}
}

// s3Actions are all actions of Amazon S3 on objects (Service Authorization
// Reference), and those on buckets that a pattern or a mode could be taken to mean.
var s3Actions = []string{
	"AbortMultipartUpload", "BypassGovernanceRetention", "DeleteObject", "DeleteObjectTagging", "DeleteObjectVersion", "DeleteObjectVersionTagging",
	"GetObject", "GetObjectAcl", "GetObjectAttributes", "GetObjectLegalHold", "GetObjectRetention", "GetObjectTagging", "GetObjectTorrent",
	"GetObjectVersion", "GetObjectVersionAcl", "GetObjectVersionAttributes", "GetObjectVersionForReplication", "GetObjectVersionTagging", "GetObjectVersionTorrent",
	"InitiateReplication", "ListMultipartUploadParts", "ObjectOwnerOverrideToBucketOwner", "PutObject", "PutObjectAcl", "PutObjectLegalHold", "PutObjectRetention",
	"PutObjectTagging", "PutObjectVersionAcl", "PutObjectVersionTagging", "ReplicateDelete", "ReplicateObject", "ReplicateTags", "RestoreObject",
	"GetBucketLocation", "ListBucket", "ListBucketMultipartUploads", "ListBucketVersions", "GetBucketObjectLockConfiguration", "PutBucketTagging", "GetBucketTagging",
	"GetBucketAcl", "PutBucketAcl", "GetBucketCORS", "PutBucketCORS", "GetBucketPolicy", "PutBucketPolicy", "DeleteBucketPolicy", "GetBucketPolicyStatus",
	"GetBucketVersioning", "PutBucketVersioning", "GetLifecycleConfiguration", "PutLifecycleConfiguration", "DeleteBucket", "PutBucketOwnershipControls",
	"GetBucketPublicAccessBlock", "PutBucketPublicAccessBlock", "PutBucketObjectLockConfiguration", "PutBucketNotification", "PutEncryptionConfiguration",
}

// everyMode are scopes with each mode of each category beside each of the others.
func everyMode(bucket, prefix string) []cosi.BucketScope {
	var out []cosi.BucketScope
	modes := []cosi.AccessMode{cosi.ReadOnly, cosi.ReadWrite, cosi.WriteOnly, ""}
	for _, mode := range modes[:3] {
		for _, object := range modes {
			for _, whole := range modes {
				out = append(out, cosi.BucketScope{Bucket: bucket, Prefix: prefix, Mode: mode, Metadata: cosi.Metadata{ObjectMetadata: object, BucketMetadata: whole}})
			}
		}
	}
	return out
}

// What the statements of a mode match is what the mode means: all of it, and of
// all that S3 has nothing else.
func TestActionsOfModes(t *testing.T) {
	t.Parallel()
	unknown := policy.AWS()
	unknown.Unknown = []string{"s3:GetObjectAttributes"}
	for name, d := range map[string]policy.Dialect{"AWS": policy.AWS(), "without one": unknown} {
		for _, scope := range everyMode("b", "") {
			statements, err := d.Allow("S", []cosi.BucketScope{scope}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, action := range s3Actions {
				want := scope.Mode.Allows("s3:"+action, scope.Metadata) && !slices.Contains(d.Unknown, "s3:"+action)
				if got := slices.ContainsFunc(statements, func(s policy.Statement) bool {
					return slices.ContainsFunc(s.Action, func(pattern string) bool {
						matches, err := path.Match(pattern, "s3:"+action)
						return err == nil && matches
					})
				}); got != want {
					t.Errorf("%s: %s%s allows %s: %v, want %v", name, scope.Mode, scope.Label(), action, got, want)
				}
			}
		}
	}
	for _, a := range cosi.Actions() {
		if !slices.Contains(s3Actions, strings.TrimPrefix(a.Name, "s3:")) {
			t.Errorf("%s is no action of S3", a.Name)
		}
	}
}

// Each statement has a Sid of its own, or one would take the place of another.
func TestAllowSids(t *testing.T) {
	t.Parallel()
	var buckets []cosi.BucketScope
	for _, prefix := range []string{"", "a/", "b/"} {
		buckets = append(buckets, everyMode("b", prefix)...)
	}
	statements, err := policy.AWS().Allow("S", buckets, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range statements {
		if seen[s.Sid] {
			t.Errorf("two statements have the Sid %s", s.Sid)
		}
		seen[s.Sid] = true
	}
}

func FuzzParse(f *testing.F) {
	f.Add(foreign)
	f.Add(`{"Statement":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := policy.Parse(text)
		if err != nil {
			return
		}
		once := d.String()
		if d, err = policy.Parse(once); err != nil || d.String() != once {
			t.Errorf("%q became %q, then %v", text, once, err)
		}
	})
}

// What a service writes otherwise says the same; what it says otherwise does not.
func TestSame(t *testing.T) {
	t.Parallel()
	const written = `{"Version":"2012-10-17","Statement":[{"Sid":"a","Effect":"Allow","Action":["s3:GetObject","s3:PutObject"],"Resource":["r"]}]}`
	for text, want := range map[string]bool{
		written: true,
		`{"Statement":{"Resource":"r","Action":["s3:PutObject","s3:GetObject"],"Effect":"Allow","Sid":"a"},"Version":"2012-10-17"}`: true,
		strings.Replace(written, "Allow", "Deny", 1):                 false,
		strings.Replace(written, "s3:PutObject", "s3:*", 1):          false,
		strings.Replace(written, "2012-10-17", "2008-10-17", 1):      false,
		strings.Replace(written, "}]}", `},{"Effect":"Allow"}]}`, 1): false,
		strings.Replace(written, `"Sid"`, `"Condition":{},"Sid"`, 1): false,
		"":  false,
		"x": false,
	} {
		if policy.Same(text, written) != want {
			t.Errorf("%s says the same as what was written: %v, want %v", text, !want, want)
		}
	}
}

// Of several faults the same one is told each time: a status has it.
func TestTheSameFaultIsTold(t *testing.T) {
	t.Parallel()
	const text = `{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*","Condition":{"a":1,"b":1,"c":1,"d":1,"e":1}}}`
	for range 50 {
		if _, err := policy.Canonical(text); err == nil || !strings.Contains(err.Error(), `Condition["a"]`) {
			t.Fatalf("it says %v", err)
		}
	}
}
