package deploy

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/container-object-storage-interface/client/apis"
	cosiv1alpha1 "sigs.k8s.io/container-object-storage-interface/client/apis/objectstorage/v1alpha1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	contractsv1alpha1 "github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contracts"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/test/guide"
)

const guideFile = root + "/deploy/README.md"

func guideText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(guideFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// quoted is a block that begins with the name of the file that it quotes.
var quoted = regexp.MustCompile("(?ms)^```yaml\n# (examples/\\S+)\n(.*?)^```$")

// Every manifest that the guide shows is a file, and every file is shown or
// named.
func TestGuideQuotes(t *testing.T) {
	have := guideText(t)
	want := quoted.ReplaceAllStringFunc(have, func(block string) string {
		name := quoted.FindStringSubmatch(block)[1]
		text, err := os.ReadFile(filepath.Join(root, "deploy", name))
		if err != nil {
			t.Error(err)
		}
		return "```yaml\n# " + name + "\n" + string(text) + "```"
	})
	if *update {
		if err := os.WriteFile(guideFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if have != want {
		t.Error("deploy/README.md quotes what is no longer so; run make generate")
	}
	if n, blocks := strings.Count(want, "```yaml\n"), len(quoted.FindAllString(want, -1)); n != blocks || n < 10 {
		t.Errorf("%d of %d blocks of YAML quote a file", blocks, n)
	}
	for name := range examples(t) {
		if !strings.Contains(want, "# "+name+"\n") {
			t.Errorf("the guide does not show %s", name)
		}
	}
}

// examples are the manifests, by their path below deploy.
func examples(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	dir := root + "/deploy"
	err := filepath.WalkDir(dir+"/examples", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(file)
		if name := strings.TrimPrefix(file, dir+"/"); len(documents(string(text))) > 0 && !strings.Contains(name, "/kustomize/") {
			out[name] = string(text)
		}
		return err
	})
	if err != nil || len(out) < 10 {
		t.Fatal(len(out), err)
	}
	return out
}

// The kinds of v1alpha2, as far as the examples use them; upstream publishes no
// module that has them.
type (
	bucketClassV2 struct {
		DriverName     string            `json:"driverName"`
		DeletionPolicy string            `json:"deletionPolicy"`
		Parameters     map[string]string `json:"parameters"`
	}
	categories[T any] struct {
		ObjectData     T `json:"objectData"`
		ObjectMetadata T `json:"objectMetadata"`
		BucketMetadata T `json:"bucketMetadata"`
	}
	accessClassV2 struct {
		DriverName         string               `json:"driverName"`
		AuthenticationType string               `json:"authenticationType"`
		Parameters         map[string]string    `json:"parameters"`
		MultiBucketAccess  string               `json:"multiBucketAccess"`
		Disallowed         categories[[]string] `json:"disallowedBucketAccessModes"` // since B2; a list before
	}
	bucketV2 struct {
		DriverName       string            `json:"driverName"`
		DeletionPolicy   string            `json:"deletionPolicy"`
		Parameters       map[string]string `json:"parameters"`
		Protocols        []string          `json:"protocols"`
		BucketClaimRef   map[string]string `json:"bucketClaimRef"`
		ExistingBucketID string            `json:"existingBucketID"`
	}
	claimV2 struct {
		BucketClassName    string   `json:"bucketClassName"`
		ExistingBucketName string   `json:"existingBucketName"`
		Protocols          []string `json:"protocols"`
	}
	accessV2 struct {
		BucketClaims []struct {
			BucketClaimName  string             `json:"bucketClaimName"`
			AccessMode       string             `json:"accessMode"`
			AccessModes      categories[string] `json:"accessModes"` // since B2, in its place
			AccessSecretName string             `json:"accessSecretName"`
		} `json:"bucketClaims"`
		BucketAccessClassName string `json:"bucketAccessClassName"`
		Protocol              string `json:"protocol"`
	}
)

func inSpec[T any]() any {
	return &struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]string `json:"metadata"`
		Spec       T                 `json:"spec"`
	}{}
}

// kinds makes an empty object of each kind that an example may be.
var kinds = map[string]func() any{
	"v1 Namespace":                             func() any { return &corev1.Namespace{} },
	"rbac.authorization.k8s.io/v1 Role":        func() any { return &rbacv1.Role{} },
	"rbac.authorization.k8s.io/v1 RoleBinding": func() any { return &rbacv1.RoleBinding{} },
	"batch/v1 CronJob":                         func() any { return &batchv1.CronJob{} },
	"apps/v1 Deployment":                       func() any { return &appsv1.Deployment{} },

	"contract-cosi.github.io/v1alpha1 ContractClass":  func() any { return &contractsv1alpha1.ContractClass{} },
	"contract-cosi.github.io/v1alpha1 Contract":       func() any { return &contractsv1alpha1.Contract{} },
	"contract-cosi.github.io/v1alpha1 BucketSettings": func() any { return &contractsv1alpha1.BucketSettings{} },

	"objectstorage.k8s.io/v1alpha1 BucketClass":       func() any { return &cosiv1alpha1.BucketClass{} },
	"objectstorage.k8s.io/v1alpha1 BucketAccessClass": func() any { return &cosiv1alpha1.BucketAccessClass{} },
	"objectstorage.k8s.io/v1alpha1 Bucket":            func() any { return &cosiv1alpha1.Bucket{} },
	"objectstorage.k8s.io/v1alpha1 BucketClaim":       func() any { return &cosiv1alpha1.BucketClaim{} },
	"objectstorage.k8s.io/v1alpha1 BucketAccess":      func() any { return &cosiv1alpha1.BucketAccess{} },

	"objectstorage.k8s.io/v1alpha2 BucketClass":       inSpec[bucketClassV2],
	"objectstorage.k8s.io/v1alpha2 BucketAccessClass": inSpec[accessClassV2],
	"objectstorage.k8s.io/v1alpha2 Bucket":            inSpec[bucketV2],
	"objectstorage.k8s.io/v1alpha2 BucketClaim":       inSpec[claimV2],
	"objectstorage.k8s.io/v1alpha2 BucketAccess":      inSpec[accessV2],
}

// example is an object of any kind, as the test below looks at it.
type example struct {
	APIVersion string
	Kind       string
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
	}
	classFields
	Spec struct {
		classFields
		BucketClassName, ExistingBucketName, BucketAccessClassName, ExistingBucketID string
	}
}

type classFields struct {
	DriverName string
	Parameters map[string]string
}

func (e example) version() string { return e.APIVersion[strings.LastIndex(e.APIVersion, "/")+1:] }

// Every example is an object that the API server takes, the classes are ones
// that the driver takes, and what they name is there: the contract in the
// values, the class in its version, the label on the namespace.
func TestExamples(t *testing.T) {
	t.Parallel()
	var objects []example
	for name, text := range examples(t) {
		for _, d := range documents(text) {
			var e example
			if err := yaml.Unmarshal([]byte(d), &e); err != nil {
				t.Fatal(err)
			}
			empty, known := kinds[e.APIVersion+" "+e.Kind]
			if !known {
				t.Errorf("%s: %s %s is unknown", name, e.APIVersion, e.Kind)
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(d), empty()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			objects = append(objects, e)
		}
	}
	there := map[string]bool{}
	labels := map[string]map[string]string{}
	named := map[string]string{}
	for _, e := range objects {
		if e.Kind == "BucketClass" {
			named[e.Metadata.Name] = e.Parameters["contract"] + e.Spec.Parameters["contract"]
		}
		there[e.version()+" "+e.Kind+" "+e.Metadata.Name] = true
		if e.Kind == "Namespace" {
			labels[e.Metadata.Name] = e.Metadata.Labels
		}
	}
	for _, e := range objects {
		name := e.version() + " " + e.Kind + " " + e.Metadata.Name
		s := e.Spec
		if driver := e.DriverName + s.DriverName; driver != "" && driver != driverName {
			t.Errorf("%s is of driver %s", name, driver)
		}
		given := e.Parameters
		if given == nil {
			given = s.Parameters
		}
		var err error
		switch e.Kind {
		case "BucketClass":
			_, err = params.ParseBucket(given)
			if c := given["contract"]; c != "first" && !slices.Contains(exampleContracts(t), c) {
				t.Errorf("%s names contract %s, which examples/values.yaml does not have", name, c)
			}
		case "BucketAccessClass":
			_, err = params.ParseAccess(given)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for kind, ref := range map[string]string{"BucketClass": s.BucketClassName, "BucketAccessClass": s.BucketAccessClassName, "Bucket": s.ExistingBucketName} {
			if ref != "" && !contracts.Reserved(ref) && !there[e.version()+" "+kind+" "+ref] {
				t.Errorf("%s names %s %s, which is not there", name, kind, ref)
			}
		}
		if c := s.BucketClassName; e.Kind == "BucketClaim" && c != "" && !contracts.Reserved(c) && labels[e.Metadata.Namespace][driverName+"/"+c] != named[c] {
			t.Errorf("%s: namespace %s is not allowed class %s", name, e.Metadata.Namespace, c)
		}
	}
}

func exampleValues(t *testing.T) values {
	t.Helper()
	text, err := os.ReadFile(root + "/deploy/examples/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := values{}
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func exampleContracts(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, c := range exampleValues(t)["config"].(values)["contracts"].([]any) {
		out = append(out, c.(values)["name"].(string))
	}
	return out
}

// Every kustomization can be built, and none takes the journal's namespace away when
// it is deleted.
func TestKustomizations(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"manifests/v1alpha1", "manifests/v1alpha2", "manifests/evaluation", "examples/kustomize"} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), root+"/deploy/"+dir)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		text, err := built.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{"all.yaml": string(text)}
		if has(files, "Namespace", namespace) || has(files, "Namespace", namespace+"-journal") {
			t.Errorf("%s has a namespace", dir)
		}
		if dir != "examples/kustomize" {
			continue
		}
		d := deployment(t, files)
		driver := container(t, d, "driver")
		if driver.Image != "registry.example.com/contract-cosi-driver:0.1.0" {
			t.Errorf("the overlay's image is %s", driver.Image)
		}
		for at, name := range map[string]string{"/etc/contract-cosi-driver/config": release + "-config-", "/etc/contract-cosi-driver/credentials/main": "main-"} {
			m, _ := mount(driver, at)
			if from := volume(d, m.Name).Secret; from == nil || !strings.HasPrefix(from.SecretName, name) || !has(files, "Secret", from.SecretName) {
				t.Errorf("the overlay mounts %+v at %s", from, at)
			}
		}
	}
	text, err := os.ReadFile(root + "/deploy/examples/kustomize/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := refused(strings.Replace(string(text), "/etc/contract-cosi-driver/credentials/main/token", token, 1)); err != nil {
		t.Error(err)
	}
}

// The container that reads v1alpha1's Secret writes what an SDK reads.
func TestBucketInfo(t *testing.T) {
	t.Parallel()
	d := object[appsv1.Deployment](t, map[string]string{"a.yaml": examples(t)["examples/tenant/application.yaml"]}, "Deployment", "photos")
	dir := t.TempDir()
	info, err := json.Marshal(cosiapi.BucketInfo{Spec: cosiapi.BucketInfoSpec{
		BucketName: "bucket-1", AuthenticationType: cosiv1alpha1.AuthenticationTypeKey, Protocols: []cosiv1alpha1.Protocol{"S3"},
		S3: &cosiapi.SecretS3{Endpoint: "https://s3.example.com:7070", Region: "us-east-1", AccessKeyID: "AK", AccessSecretKey: "a/b+c=d"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/BucketInfo", info, 0o600); err != nil {
		t.Fatal(err)
	}
	command := slices.Clone(d.Spec.Template.Spec.InitContainers[0].Command)
	for i := range command {
		command[i] = strings.NewReplacer("/secret/", dir+"/", "/bucket/", dir+"/").Replace(command[i])
	}
	if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for file, want := range map[string]string{
		"name": "bucket-1",
		"config": "[default]\nregion = us-east-1\nendpoint_url = https://s3.example.com:7070\naws_access_key_id = AK\n" +
			"aws_secret_access_key = a/b+c=d\ns3 =\n  addressing_style = path",
	} {
		if have, err := os.ReadFile(filepath.Join(dir, file)); err != nil || strings.TrimSpace(string(have)) != want {
			t.Errorf("%s is %q, %v; want %q", file, have, err, want)
		}
	}
}

// secrets are what v1alpha2's sidecar writes into a Secret, and what upstream's
// enhancement plans.
var secrets = map[string]map[string]string{
	"as it is": {
		"COSI_S3_BUCKET_ID": "b", "COSI_S3_ENDPOINT": "https://s3", "COSI_S3_REGION": "r", "COSI_S3_ADDRESSING_STYLE": "path",
		"COSI_S3_ACCESS_KEY_ID": "id", "COSI_S3_ACCESS_SECRET_KEY": "secret",
	},
	"as it is planned": {
		"COSI_PROTOCOL": "S3", "BUCKET_NAME": "b", "AWS_ENDPOINT_URL": "https://s3", "AWS_DEFAULT_REGION": "r", "AWS_S3_ADDRESSING_STYLE": "path",
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
	},
}

// The application finds its way by the keys of either, and by none at a Secret
// that is still empty.
func TestSecretKeys(t *testing.T) {
	t.Parallel()
	d := object[appsv1.Deployment](t, map[string]string{"a.yaml": examples(t)["examples/v1alpha2/application.yaml"]}, "Deployment", "photos")
	c := d.Spec.Template.Spec.Containers[0]
	if from := c.EnvFrom; len(from) != 1 || from[0].SecretRef.Name != "photos" || from[0].SecretRef.Optional != nil {
		t.Fatalf("the environment is from %v", from)
	}
	dir := t.TempDir()
	const aws = "#!/bin/sh\necho $4 $AWS_ENDPOINT_URL $AWS_REGION $AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY\nexit 1\n"
	if err := os.WriteFile(dir+"/aws", []byte(aws), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(secret map[string]string) (string, error) {
		cmd := exec.CommandContext(t.Context(), c.Command[0], append(slices.Clone(c.Command[1:]), c.Args...)...)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		for k, v := range secret {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	for name, secret := range secrets {
		if got, err := run(secret); err != nil || got != "s3://b/alive https://s3 r id secret" {
			t.Errorf("with the Secret %s: %q, %v", name, got, err)
		}
	}
	if got, err := run(nil); err == nil || got != "" {
		t.Errorf("with an empty Secret: %q, %v", got, err)
	}
}

// What the guide waits for is there when the status says so, by a boolean or by a
// condition, and not before.
func TestReadiness(t *testing.T) {
	t.Parallel()
	blocks, err := guide.Of(root, guide.Ready)
	if err != nil {
		t.Fatal(err)
	}
	var expressions []string
	for _, b := range blocks {
		for _, line := range b.Commands() {
			m := regexp.MustCompile(`^until kubectl .* -o jsonpath='([^']+)' \| grep -qi true; do sleep 1; done$`).FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("%s: %q is no line that waits", b, line)
			}
			expressions = append(expressions, m[1])
		}
	}
	for _, expression := range expressions {
		path := jsonpath.New("readiness").AllowMissingKeys(true)
		if err := path.Parse(expression); err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{
			`{}`:                              false,
			`{"status":{}}`:                   false,
			`{"status":{"readyToUse":false}}`: false,
			`{"status":{"readyToUse":true}}`:  true,
			`{"status":{"conditions":[{"type":"ResourcesValidated","status":"True"},{"type":"Provisioned","status":"False"}]}}`: false,
			`{"status":{"conditions":[{"type":"ProvisionFailed","status":"True"}]}}`:                                            false,
			`{"status":{"conditions":[{"type":"ResourcesValidated","status":"True"},{"type":"Provisioned","status":"True"}]}}`:  true,
			`{"status":{"readyToUse":true,"conditions":[{"type":"Provisioned","status":"True"}]}}`:                              true,
		} {
			var object any
			if err := json.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := path.Execute(&out, object); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			if got := strings.Contains(strings.ToLower(out.String()), "true"); got != want {
				t.Errorf("%s is ready: %v, want %v", text, got, want)
			}
		}
	}
}

// commands are the lines of the guide's sh blocks.
func commands(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, b := range guide.Parse(guideFile, guideText(t)) {
		if b.Language == "sh" {
			out = append(out, b.Commands()...)
		}
	}
	if len(out) < 20 {
		t.Fatalf("the guide has only %d commands", len(out))
	}
	return out
}

// The files that commands name are there, every example is in a command, and Helm takes the values that they
// give. README.md installs as the guide does.
func TestCommands(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(root + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^helm .*$`).FindAllString(string(readme), -1) {
		if !slices.Contains(commands(t), line) {
			t.Errorf("the guide does not say %q", line)
		}
	}
	for name := range examples(t) {
		if !slices.ContainsFunc(commands(t), func(line string) bool { return strings.Contains(line, "deploy/"+name) }) {
			t.Errorf("the guide does not apply %s", name)
		}
	}
	for _, line := range commands(t) {
		words := strings.Fields(strings.ReplaceAll(line, ";", " "))
		given := values{}
		for i, word := range words {
			if strings.HasPrefix(word, "deploy/") {
				if _, err := os.Stat(filepath.Join(root, word)); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
			switch word {
			case "--values":
				given = exampleValues(t)
			case "--set":
				if err := strvals.ParseInto(words[i+1], given); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			case "--namespace", "-n":
				if n := words[i+1]; n != namespace && n != journalNamespace && n != "first" && n != "blue" && n != "green" && n != "NAMESPACE" {
					t.Errorf("%s: namespace %s", line, n)
				}
			}
		}
		switch words[0] {
		case "helm":
			if words[1] == "uninstall" {
				continue
			}
			if words[2] != release || words[3] != "deploy/chart" {
				t.Errorf("%s: installs %s of %s", line, words[2], words[3])
			}
			if _, err := render(t, given); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		case "kubectl", "until", "sed", "git", "make", "docker":
		default:
			t.Errorf("%s: what is that?", line)
		}
	}
}

// upstream are texts of the guide that others say: the sidecar and the kubelet.
var upstream = []string{
	"BucketAccess can't be granted to Bucket not in Ready state",
	"Failed to fetch bucketClaim",
	"references non-existent secret key: token",
	"Unable to write event",
	"Resource kind objectstorage.k8s.io/v1alpha1, Kind=BucketClass not found. There can be a delay when a resource definition is first created",
}

// What the guide says one may see is what the driver and the policies say.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	said := append(literals(t), upstream...)
	for _, v := range []values{with(minimal(), "sidecar.secretNamespaces", []any{"blue"}), inVersion(minimal(), "v1alpha2")} {
		policies := mustRender(t, v)
		for _, name := range slices.Sorted(maps.Keys(policies)) {
			said = append(said, policies[name])
		}
	}
	_, section, _ := strings.Cut(guideText(t), "\n| what you see | cause | cure |\n|---|---|---|\n")
	messages, err := guide.Of(root, guide.Message)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range messages {
		_, shown, _ := strings.Cut(strings.TrimSpace(b.Text), ": ") // of which contract
		for part := range strings.SplitSeq(shown, "; ") {
			if !slices.ContainsFunc(said, func(text string) bool { return says(text, part) }) {
				t.Errorf("%s: the driver does not say %q", b, part)
			}
		}
	}
	seen := 0
	for line := range strings.Lines(section) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
			if !strings.Contains(m[1], " ") {
				continue // a value of the chart
			}
			seen++
			if !slices.ContainsFunc(said, func(text string) bool { return matches(text, m[1]) }) {
				t.Errorf("nobody says %q", m[1])
			}
		}
		if strings.Count(line, " | ") != 2 {
			t.Errorf("not three columns: %s", line)
		}
	}
	if seen < 18 {
		t.Errorf("the guide explains only %d texts", seen)
	}
}

// matches reports whether a text has the parts of a pattern in their order.
func matches(text, pattern string) bool {
	for part := range strings.SplitSeq(unquoted(pattern), "…") {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return true
}

// says reports whether a sentence is in a text, in which values are left out.
func says(text, sentence string) bool {
	for part := range strings.SplitSeq(text, "; ") {
		if part != "" && regexp.MustCompile("^"+strings.ReplaceAll(regexp.QuoteMeta(part), "…", `\S+`)+"$").MatchString(sentence) {
			return true
		}
	}
	return false
}

// unquoted: what is left out may be written with quotation marks or %q.
func unquoted(text string) string { return strings.ReplaceAll(text, `"…"`, "…") }

var verb = regexp.MustCompile(`%[a-z]`)

// literals are the strings in the driver's code; what is put together at one
// place is one.
func literals(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root+"/pkg", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					panic(fmt.Sprint(file, err))
				}
				out = append(out, unquoted(verb.ReplaceAllString(text, "…")))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
