package params_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

const policy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::${bucket}/*"}]}`

func TestParseBucket(t *testing.T) {
	full := map[string]string{
		"contract": "team-a", "region": "eu-west-1", "policy": policy, "versioning": "Enabled",
		"tags": "stage=test, owner=a b", "onDelete": "empty",
		"grantRead": "uri=http://x/y, id=b,id=a,id=a", "grantFullControl": `id="c"`,
	}
	got, err := params.ParseBucket(full)
	if err != nil {
		t.Fatal(err)
	}
	want := params.Bucket{
		Contract: "team-a", Region: "eu-west-1", Policy: got.Policy, Versioning: "Enabled", OnDelete: params.Empty,
		Tags:   map[string]string{"stage": "test", "owner": "a b"},
		Grants: params.Grants{Read: []string{"id=a", "id=b", "uri=http://x/y"}, FullControl: []string{"id=c"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if p := got.PolicyFor("b1"); !strings.Contains(p, "arn:aws:s3:::b1/*") || strings.Contains(p, "${") {
		t.Errorf("policy for b1 is %s", p)
	}
	// What a repeated request is compared with must survive the journal.
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var back params.Bucket
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, got) {
		t.Errorf("after JSON: %+v (%v)", back, err)
	}
}

func TestParseBucketSameMeaningIsEqual(t *testing.T) {
	a, errA := params.ParseBucket(map[string]string{"contract": "c", "policy": policy, "tags": "a=1,b=2"})
	spaced := strings.ReplaceAll(strings.ReplaceAll(policy, ",", " ,\n "), `{"Version":"2012-10-17" ,`, `{ "Version" : "2012-10-17",`)
	b, errB := params.ParseBucket(map[string]string{"contract": "c", "policy": spaced, "tags": "b=2 , a=1", "onDelete": "refuse"})
	if errA != nil || errB != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%+v (%v)\n%+v (%v)", a, errA, b, errB)
	}
}

func TestParseReportsEveryFault(t *testing.T) {
	for name, c := range map[string]struct {
		in   map[string]string
		want []string
	}{
		"nothing":       {map[string]string{}, []string{"contract is missing"}},
		"near":          {map[string]string{"contract": "c", "Region": "x", "versionning": "Enabled"}, []string{`"Region" is unknown; did you mean region?`, `"versionning" is unknown; did you mean versioning?`}},
		"far":           {map[string]string{"contract": "c", "replicationFactor": "3"}, []string{`"replicationFactor" is unknown; known are abortUploadsAfterDays, acl`}},
		"all at once":   {map[string]string{"contract": "Team A", "acl": "open", "onDelete": "purge", "versioning": "on", "policy": "{", "tags": "x"}, []string{"contract:", "acl:", "onDelete:", "versioning:", "policy:", "tags:"}},
		"acl and grant": {map[string]string{"contract": "c", "acl": "private", "grantRead": "id=a"}, []string{"exclude each other"}},
		"grantee":       {map[string]string{"contract": "c", "grantWrite": "alice"}, []string{"grantWrite:", `"alice" is not id=`}},
		"reserved tag":  {map[string]string{"contract": "c", "tags": cosi.OwnerTag + "=me"}, []string{"reserved"}},
		"tag twice":     {map[string]string{"contract": "c", "tags": "a=1,a=2"}, []string{"twice"}},
		"policy array":  {map[string]string{"contract": "c", "policy": "[]"}, []string{"not a JSON object"}},
		"policy empty":  {map[string]string{"contract": "c", "policy": "{}"}, []string{"no Statement"}},
		"policy effect": {map[string]string{"contract": "c", "policy": `{"Statement":[{"Effect":"Maybe"}]}`}, []string{"neither Allow nor Deny"}},
		"policy lacks":  {map[string]string{"contract": "c", "policy": `{"Statement":{"Effect":"Deny","Principal":"*","NotAction":"x"}}`}, []string{"has no Resource"}},
		"policy tail":   {map[string]string{"contract": "c", "policy": policy + "{}"}, []string{"text after"}},
		"needs":         {map[string]string{"contract": "c", "corsMethods": "GET", "websiteError": "x"}, []string{"corsMethods needs corsOrigins", "websiteError needs websiteIndex"}},
		"excludes":      {map[string]string{"contract": "c", "expireAfterDays": "1", "lifecycle": "{}", "kmsKey": "k", "encryption": "AES256"}, []string{"lifecycle and expireAfterDays exclude", "kmsKey and encryption exclude"}},
		"days":          {map[string]string{"contract": "c", "expireAfterDays": "0", "abortUploadsAfterDays": "-1", "noncurrentExpireAfterDays": "1d"}, []string{"expireAfterDays:", "abortUploadsAfterDays:", "noncurrentExpireAfterDays:"}},
		"lock":          {map[string]string{"contract": "c", "objectLock": "GOVERNANCE"}, []string{"objectLock:", "COMPLIANCE with a number of days"}},
		"lifecycle":     {map[string]string{"contract": "c", "lifecycle": `{"Rules":[{"Status":"Enabled","Expire":{"Days":1}}]}`}, []string{"lifecycle:", `unknown field "Expire"`}},
		"idle rule":     {map[string]string{"contract": "c", "lifecycle": `{"Rules":[{"Status":"Enabled"}]}`}, []string{"Rules[0] says nothing to be done"}},
		"rule twice":    {map[string]string{"contract": "c", "lifecycle": `{"Rules":[{"ID":"a","Status":"Enabled","Expiration":{"Days":1}},{"ID":"a","Status":"Enabled","Expiration":{"Days":1}}]}`}, []string{"twice"}},
		"cors":          {map[string]string{"contract": "c", "cors": `{"CORSRules":[{"AllowedOrigins":["*"],"AllowedMethods":["PATCH"]}]}`}, []string{`"PATCH" is not one of`}},
		"origin":        {map[string]string{"contract": "c", "corsOrigins": "www.example.com"}, []string{"not an origin"}},
		"block":         {map[string]string{"contract": "c", "blockPublicAccess": "all,BlockPublicAcls"}, []string{"all and none stand alone"}},
		"lock is off":   {map[string]string{"contract": "c", "objectLock": "Enabled", "versioning": "Suspended"}, []string{"objectLock and versioning: Suspended contradict"}},
		"ACLs are off":  {map[string]string{"contract": "c", "grantRead": "id=a", "objectOwnership": "BucketOwnerEnforced"}, []string{"an ACL and objectOwnership: BucketOwnerEnforced contradict"}},
		"blocked ACL":   {map[string]string{"contract": "c", "acl": "public-read", "blockPublicAccess": "all"}, []string{"a public acl and blockPublicAccess: BlockPublicAcls contradict"}},
		"blocked too":   {map[string]string{"contract": "c", "policy": policy, "blockPublicAccess": "BlockPublicPolicy"}, []string{"a public policy"}},
		"policy member": {map[string]string{"contract": "c", "policy": strings.Replace(policy, `"Principal":"*"`, `"Principal":{"AWS":"nobody"},"principal":"*"`, 1)}, []string{`Statement[0] has "principal"; it may have Sid, Effect, Principal`}},
		"driver's Sid":  {map[string]string{"contract": "c", "policy": strings.Replace(policy, `"Effect"`, `"Sid":"ContractCosiX","Effect"`, 1)}, []string{"as those of the driver's own"}},
		"policy size":   {map[string]string{"contract": "c", "policy": strings.Repeat(" ", 21<<10)}, []string{"at most 20480"}},
	} {
		_, err := params.ParseBucket(c.in)
		if !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%s: got %v, want InvalidArgument", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
}

// Two ways to write the same document are equal, and a service's way of giving
// it back is a third.
func TestDocumentsInOneForm(t *testing.T) {
	for name, c := range map[string]struct {
		canonical func(string, bool) (string, error)
		class     string
		answers   []string
	}{
		"lifecycle": {params.CanonicalLifecycle,
			`{"Rules":[{"ID":"b","Status":"Enabled","Prefix":"x/","Expiration":{"Days":1}},{"ID":"a","Status":"Disabled","AbortIncompleteMultipartUpload":{"DaysAfterInitiation":2}}]}`,
			[]string{
				`{"Rules":[{"ID":"a","Status":"Disabled","Filter":{"Prefix":""},"AbortIncompleteMultipartUpload":{"DaysAfterInitiation":2}},{"ID":"b","Status":"Enabled","Filter":{"Prefix":"x/"},"Expiration":{"Days":1}}]}`,
				`{"ResultMetadata":{},"Rules":[{"ID":"b","Status":"Enabled","Filter":{"And":null,"Prefix":"x/","Tag":null},"Expiration":{"Date":null,"Days":1,"ExpiredObjectDeleteMarker":false},"Transitions":null},{"ID":"a","Status":"Disabled","Filter":{},"AbortIncompleteMultipartUpload":{"DaysAfterInitiation":2}}]}`,
			}},
		"cors": {params.CanonicalCORS,
			`{"CORSRules":[{"AllowedMethods":["PUT","GET"],"AllowedOrigins":["b","a","a"]}]}`,
			[]string{
				`{"CORSRules":[{"ID":null,"AllowedMethods":["GET","PUT"],"AllowedOrigins":["a","b"],"AllowedHeaders":null,"MaxAgeSeconds":0}]}`,
				`{"CORSRules":[{"AllowedMethods":["GET","PUT"],"AllowedOrigins":["a","b"],"MaxAgeSeconds":-1,"New":1}]}`,
			}},
	} {
		want, err := c.canonical(c.class, true)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, answer := range c.answers {
			if got, err := c.canonical(answer, false); err != nil || got != want {
				t.Errorf("%s: %s becomes\n%s (%v), want\n%s", name, answer, got, err, want)
			}
		}
	}
}

// The journal keeps a class under the names of its parameters, so that what
// differs can be named.
func TestFieldsAreParameters(t *testing.T) {
	known := map[string]bool{}
	for _, p := range params.Table() {
		known[string(p.Class)+"."+p.Name] = true
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[params.Bucket]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && !known["BucketClass."+name] {
			t.Errorf("%s is no parameter", name)
		}
		delete(known, "BucketClass."+name)
	}
	for name := range known {
		if strings.HasPrefix(name, "BucketClass.") {
			t.Errorf("%s is not kept", name)
		}
	}
}

// What is public is judged in pkg/policy; the parameters that are, are named.
func TestPublic(t *testing.T) {
	for name, c := range map[string]struct {
		in   map[string]string
		want string
	}{
		"nothing":       {nil, ""},
		"private":       {map[string]string{"acl": "private"}, ""},
		"canned":        {map[string]string{"acl": "authenticated-read"}, "acl"},
		"a group":       {map[string]string{"grantRead": "uri=http://acs.amazonaws.com/groups/global/AllUsers", "grantWrite": "id=a"}, "grantRead"},
		"quoted":        {map[string]string{"grantWriteACP": `uri="https://acs.amazonaws.com/groups/global/AllUsers"`}, "grantWriteACP"},
		"log delivery":  {map[string]string{"grantWrite": `uri="http://acs.amazonaws.com/groups/s3/LogDelivery"`}, ""},
		"policy":        {map[string]string{"policy": policy}, "policy"},
		"a caller":      {map[string]string{"policy": strings.Replace(policy, `"Principal":"*"`, `"Principal":{"AWS":["${contract}"]}`, 1)}, ""},
		"any name":      {map[string]string{"policy": strings.Replace(policy, `"Principal":"*"`, `"Principal":{"AWS":"arn:aws:iam:::user/${bucket}"}`, 1)}, "policy"},
		"in a network":  {map[string]string{"policy": strings.Replace(policy, `"Action"`, `"Condition":{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}},"Action"`, 1)}, ""},
		"any condition": {map[string]string{"policy": strings.Replace(policy, `"Action"`, `"Condition":{"Bool":{"aws:SecureTransport":"true"}},"Action"`, 1)}, "policy"},
		"denied":        {map[string]string{"policy": strings.Replace(policy, `Allow`, `Deny`, 1)}, ""},
	} {
		in := map[string]string{"contract": "c"}
		maps.Copy(in, c.in)
		got, err := params.ParseBucket(in)
		if err != nil || strings.Join(got.Public(), ",") != c.want {
			t.Errorf("%s: %v (%v), want %s", name, got.Public(), err, c.want)
		}
	}
}

// A region that the class leaves to the contract or the service is one too, and
// one that is not known is none that the guard allows.
func TestGuardRegions(t *testing.T) {
	guard := params.Guard{Regions: []string{"eu-1", "eu-2"}}
	for _, c := range []struct{ requested, region, says string }{
		{"eu-1", "eu-1", ""},
		{"", "eu-2", ""},
		{"us-1", "us-1", `guard.regions: "us-1" is not one of eu-1, eu-2`},
		{"", "us-1", `guard.regions: the class has no region, and the default, "us-1", is not one of eu-1, eu-2`},
		{"", "", `guard.regions: the class has no region, and the default, "", is not one of eu-1, eu-2`},
	} {
		got := guard.Bucket(nil, params.Bucket{Contract: "c", Region: c.requested}, c.region)
		if strings.Join(got, "|") != c.says {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := (params.Guard{}).Bucket(nil, params.Bucket{Contract: "c"}, ""); got != nil {
		t.Errorf("without regions: %q", got)
	}
}

// A guard's bound of a bucket has to be met by the class or the defaults.
func TestGuardOfQuotas(t *testing.T) {
	guard := params.Guard{MaxBucketBytes: "1Gi", MaxBucketObjects: "1000"}
	for _, c := range []struct {
		bytes, objects int64
		says           string
	}{
		{1 << 30, 1000, ""},
		{1 << 20, 1, ""},
		{1<<30 + 1024, 1001, "guard.maxBucketBytes: the BucketClass has to give a maxBytes of at most 1Gi|guard.maxBucketObjects: the BucketClass has to give a maxObjects of at most 1000"},
		{0, 7, "guard.maxBucketBytes: the BucketClass has to give a maxBytes of at most 1Gi"},
	} {
		got := guard.Bucket(nil, params.Bucket{Contract: "c", MaxBytes: c.bytes, MaxObjects: c.objects}, "")
		if strings.Join(got, "|") != c.says {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := guard.Check(params.Defaults{}); got != nil {
		t.Errorf("%q", got)
	}
	if got := strings.Join((params.Guard{MaxBucketBytes: "99999999Ti", MaxBucketObjects: "0"}).Check(params.Defaults{}), "|"); !strings.Contains(got, "maxBytes: ") || !strings.Contains(got, "maxObjects: ") {
		t.Errorf("%q", got)
	}
}

func TestQuotas(t *testing.T) {
	for value, want := range map[string]int64{"1024": 1024, "1Ki": 1024, "500Mi": 500 << 20, "10Gi": 10 << 30, "999999Ti": 999999 << 40, "999Pi": 999 << 50, "999999999999998976": 999999999999998976} {
		got, err := params.ParseBucket(map[string]string{"contract": "c", "maxBytes": value})
		if err != nil || got.MaxBytes != want {
			t.Errorf("%s: %d, %v; want %d", value, got.MaxBytes, err, want)
		}
		if with, err := got.With(map[string]string{"maxObjects": "7"}); err != nil || with.MaxBytes != want || with.MaxObjects != 7 {
			t.Errorf("%s with settings: %+v, %v", value, with, err)
		}
	}
	for _, value := range []string{"", "0", "1", "1000", "01Ki", "1000000Ti", "1000Pi", "1Ei", "1K", "1 Ki", "-1Ki", "1.5Gi", "9223372036854775807", "1ki"} {
		if _, err := params.ParseBucket(map[string]string{"contract": "c", "maxBytes": value}); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// A default gives way to what it cannot stand beside, on whichever side the rule
// is written, and with it goes what is nothing without it.
func TestUnder(t *testing.T) {
	type m = map[string]string
	for name, c := range map[string]struct {
		of                    params.Class
		defaults, class, want m
	}{
		"no defaults":     {params.BucketClass, nil, m{"contract": "c"}, m{"contract": "c"}},
		"both":            {params.BucketClass, m{"tags": "a=b"}, m{"contract": "c"}, m{"contract": "c", "tags": "a=b"}},
		"the class first": {params.BucketClass, m{"tags": "a=b"}, m{"tags": "c=d"}, m{"tags": "c=d"}},
		"excluded":        {params.BucketAccessClass, m{"prefix": "a"}, m{"prefixes": "b,c"}, m{"prefixes": "b,c"}},
		"excluding":       {params.BucketAccessClass, m{"prefixes": "b,c"}, m{"prefix": "a"}, m{"prefix": "a"}},
		"its company":     {params.BucketClass, m{"corsOrigins": "*", "corsMethods": "PUT"}, m{"cors": "{}"}, m{"cors": "{}"}},
		"stays":           {params.BucketClass, m{"corsMethods": "PUT"}, m{"corsOrigins": "*"}, m{"corsOrigins": "*", "corsMethods": "PUT"}},
	} {
		if got := c.of.Under(c.defaults, c.class); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestParseAccess(t *testing.T) {
	got, err := params.ParseAccess(nil)
	if err != nil || got.Mode != cosi.ReadWrite {
		t.Errorf("without parameters: %+v, %v", got, err)
	}
	got, err = params.ParseAccess(map[string]string{"access": "ReadOnly", "prefix": "in/", "sourceIP": "10.1.2.3/8, 192.0.2.1, 2001:db8::1/32,192.0.2.1"})
	want := params.Access{Mode: cosi.ReadOnly, Prefixes: []string{"in/"}, SourceIP: []string{"10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	_, err = params.ParseAccess(map[string]string{"access": "rw", "prefix": "*", "sourceIP": "localhost", "mode": "ReadOnly"})
	for _, want := range []string{"access:", "prefix:", "sourceIP:", `"mode" is unknown`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestRotationOfKeys(t *testing.T) {
	type m = map[string]string
	for _, c := range []struct {
		class       m
		every, kept time.Duration
		age         time.Duration
		fault       string
	}{
		{class: m{}},
		{class: m{"keyLife": "12h"}, age: 12 * time.Hour},
		{class: m{"keyRotation": "30d"}, every: 720 * time.Hour, kept: 24 * time.Hour, age: 744 * time.Hour},
		{class: m{"keyRotation": "1h"}, every: time.Hour, kept: 30 * time.Minute, age: 90 * time.Minute},
		{class: m{"keyRotation": "30d", "keyGrace": "2h", "keyLife": "60d"}, every: 720 * time.Hour, kept: 2 * time.Hour, age: 722 * time.Hour},
		{class: m{"keyRotation": "10s"}, fault: "is not a number of hours"},
		{class: m{"keyGrace": "1h"}, fault: "keyGrace needs keyRotation"},
		{class: m{"keyRotation": "12h", "keyGrace": "12h"}, fault: "shorter than keyRotation"},
		{class: m{"keyRotation": "12h", "keyGrace": "2h", "keyLife": "14h"}, fault: "keyLife has to be longer"},
	} {
		got, err := params.ParseAccess(c.class)
		if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%v: %v, want %q", c.class, err, c.fault)
		}
		if err == nil && (got.KeyRotation != c.every || got.KeyGrace != c.kept || got.Age() != c.age) {
			t.Errorf("%v: every %s, grace %s, age %s", c.class, got.KeyRotation, got.KeyGrace, got.Age())
		}
	}
	for _, c := range []struct {
		guard params.Guard
		class m
		broke string
	}{
		{params.Guard{RequireRotation: true}, m{"keyRotation": "30d"}, ""},
		{params.Guard{RequireRotation: true}, m{"keyLife": "1h"}, "guard.requireRotation"},
		{params.Guard{MaxKeyAge: "31d"}, m{"keyRotation": "30d"}, ""},
		{params.Guard{MaxKeyAge: "30d"}, m{"keyRotation": "30d"}, "guard.maxKeyAge"},
		{params.Guard{MaxKeyAge: "30d"}, m{"keyLife": "30d"}, ""},
		{params.Guard{MaxKeyAge: "30d"}, m{}, "guard.maxKeyAge"},
	} {
		access, err := params.ParseAccess(c.class)
		broken := c.guard.Access(c.class, c.class, access, nil, false)
		if err != nil || len(broken) > 0 != (c.broke != "") || c.broke != "" && !strings.HasPrefix(broken[0], c.broke) {
			t.Errorf("%+v, %v: %q, %v", c.guard, c.class, broken, err)
		}
	}
}

func FuzzParseBucket(f *testing.F) {
	f.Add("policy", policy)
	f.Add("tags", "a=b,c=d")
	f.Add("grantRead", `id="x"`)
	f.Add("grantRead", `id=" "`)
	f.Add("grantRead", "id=\"x\u00a0\"")
	f.Fuzz(func(t *testing.T, key, value string) {
		got, err := params.ParseBucket(map[string]string{"contract": "c", key: value})
		if err != nil {
			if !fault.Is(err, fault.InvalidArgument) {
				t.Errorf("%q=%q: %v", key, value, err)
			}
			return
		}
		text, err := json.Marshal(got)
		var back params.Bucket
		if err != nil || json.Unmarshal(text, &back) != nil {
			t.Errorf("%q=%q does not survive JSON: %v", key, value, err)
		}
		if back, err := params.ParseBucket(params.Given(got)); utf8.ValidString(value) && (err != nil || len(back.Differences(got)) > 0) {
			t.Errorf("%q=%q is read back as %+v: %v", key, value, back, err)
		}
	})
}

// What a class comes to is read back from what it says, and settings stand over it.
func TestWith(t *testing.T) {
	t.Parallel()
	class := map[string]string{
		"contract": "x", "grantRead": "id=a", "tags": "a=1,b=2", "blockPublicAccess": "none", "expireAfterDays": "3",
		"corsOrigins": "https://a.example.com", "corsMethods": "GET", "versioning": "Enabled", "onDelete": "empty",
	}
	b, err := params.ParseBucket(class)
	if err != nil {
		t.Fatal(err)
	}
	same, err := b.With(map[string]string{"requestPayer": "Requester"})
	if differing := b.Differences(same); err != nil || !slices.Equal(differing, []string{"requestPayer"}) {
		t.Errorf("what is not said differs: %v, %v", differing, err)
	}
	over, err := b.With(map[string]string{"acl": "private", "lifecycle": `{"Rules":[{"ID":"a","Status":"Enabled","Expiration":{"Days":9}}]}`, "cors": `{"CORSRules":[{"AllowedOrigins":["*"],"AllowedMethods":["GET"]}]}`, "tags": "c=3"})
	if err != nil {
		t.Fatal(err)
	}
	if over.ExpireAfterDays != 0 || over.CORSOrigins != nil || !over.Grants.None() || over.Tags["a"] != "" || over.Versioning != "Enabled" || over.OnDelete != params.Empty {
		t.Errorf("it comes to %+v", over)
	}
	both := over.Beside(b)
	if both.Tags["a"] != "1" || both.Tags["c"] != "3" || both.Grants.None() || both.ACL == "" {
		t.Errorf("both say %+v", both)
	}
	for _, c := range []struct{ name, value, says string }{
		{"policy", `{"Statement": `, "is not a JSON object"},
		{"objectLock", "sometimes", "objectLock"},
		{"colour", "red", "is unknown"},
	} {
		if err := params.CheckSettings(map[string]string{c.name: c.value}); err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "BucketSettings") {
			t.Errorf("%s %s: %v", c.name, c.value, err)
		}
	}
	if faults := (params.Guard{Parameters: []string{"cors"}, RefusePublic: true, Regions: []string{"a"}}).Settings(map[string]string{"acl": "public-read"}, params.Bucket{ACL: "public-read"}); len(faults) != 2 {
		t.Errorf("the guard says %v", faults)
	}
	// It tells a team what it can change itself.
	guard := params.Guard{Required: []string{"tags"}, MaxBucketBytes: "1Gi"}
	for by, faults := range map[params.Class][]string{
		params.BucketSettings: guard.Settings(nil, params.Bucket{MaxBytes: 2 << 30}), params.BucketClass: guard.Bucket(nil, params.Bucket{MaxBytes: 2 << 30}, ""),
	} {
		if want := fmt.Sprintf("guard.required: the %[1]s has to give tags|guard.maxBucketBytes: the %[1]s has to give a maxBytes of at most 1Gi", by); strings.Join(faults, "|") != want {
			t.Errorf("the guard says %v to the author of a %s", faults, by)
		}
	}
}

func FuzzParseAccess(f *testing.F) {
	f.Add("sourceIP", "10.0.0.0/8,::1")
	f.Add("prefix", "a/b")
	f.Fuzz(func(t *testing.T, key, value string) {
		if _, err := params.ParseAccess(map[string]string{key: value}); err != nil && !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%q=%q: %v", key, value, err)
		}
	})
}

func FuzzDocuments(f *testing.F) {
	f.Add(`{"Rules":[{"ID":"b","Status":"Enabled","Prefix":"x/","Expiration":{"Days":1}},{"Status":"Disabled","Filter":{"And":{"Tags":[{"Key":"b","Value":""},{"Key":"a","Value":"c"}]}},"Transitions":[{"Date":"2030-01-01T00:00:00Z","StorageClass":"X"}]}]}`)
	f.Add(`{"CORSRules":[{"AllowedMethods":["PUT","GET"],"AllowedOrigins":["b","a","a"],"MaxAgeSeconds":-3}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		for name, canonical := range map[string]func(string, bool) (string, error){"lifecycle": params.CanonicalLifecycle, "cors": params.CanonicalCORS} {
			for _, strict := range []bool{true, false} {
				once, err := canonical(text, strict)
				if err != nil {
					continue
				}
				if twice, err := canonical(once, true); err != nil || twice != once {
					t.Errorf("%s: %q is not stable: %q (%v)", name, once, twice, err)
				}
			}
		}
	})
}

// What a row says of other parameters is about parameters of the same class.
func TestRowsNameRows(t *testing.T) {
	t.Parallel()
	class := map[string]params.Class{}
	for _, p := range params.Table() {
		class[p.Name] = p.Class
	}
	for _, p := range params.Table() {
		for _, other := range append([]string{p.Needs, p.Satisfies}, p.Excludes...) {
			if other != "" && class[other] != p.Class {
				t.Errorf("%s speaks of %s, which is no parameter of %s", p.Name, other, p.Class)
			}
		}
	}
}

// What comes over the socket may be long, and a message about it is an event's
// text.
func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]string {
		out := map[string]string{"contract": "team-a"}
		for i := range n - 1 {
			out[fmt.Sprintf("unknown-%06d-%s", i, strings.Repeat("x", 100))] = "y"
		}
		return out
	}
	for name, c := range map[string]struct {
		in   map[string]string
		says []string
	}{
		"three":          {many(4), []string{"unknown-000000", "unknown-000002"}},
		"many":           {many(256), []string{"unknown-000009", "and 245 more"}},
		"too many":       {many(200_000), []string{"200000 parameters; at most 256 are read"}},
		"a long value":   {map[string]string{"contract": strings.Repeat("x", 1<<20)}, []string{"contract: 1048576 bytes; at most 65536 are read"}},
		"a long list":    {map[string]string{"contract": "team-a", "grantRead": strings.Repeat("x,", 1<<15)}, []string{"grantRead: ", " more"}},
		"a long key":     {map[string]string{"contract": "team-a", strings.Repeat("x", 1<<20): "y"}, []string{"xxx"}},
		"not one of ten": {many(257), []string{"257 parameters"}},
	} {
		_, err := params.ParseBucket(c.in)
		if !fault.Is(err, fault.InvalidArgument) || len(err.Error()) > 8000 {
			t.Errorf("%s: %s of %d bytes: %.200s", name, fault.KindOf(err), len(err.Error()), err)
			continue
		}
		for _, want := range c.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
	if _, err := params.ParseAccess(many(200_000)); !fault.Is(err, fault.InvalidArgument) || len(err.Error()) > 8000 {
		t.Errorf("an access: %s of %d bytes", fault.KindOf(err), len(err.Error()))
	}
}
