package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server/code"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// versions are the documents of the protocol, with what they document.
var versions = map[string]struct {
	file   protoreflect.FileDescriptor
	tables map[string]code.Table
}{
	"v1alpha1": {(&cosiproto.DriverGetInfoRequest{}).ProtoReflect().Descriptor().ParentFile(), v1alpha1.Tables()},
	"v1alpha2": {cosipb.File_cosi_v1alpha2_proto, v1alpha2.Tables()},
}

var (
	heading = regexp.MustCompile(`(?m)^## (.+)$`)
	codeRow = regexp.MustCompile(`(?m)^\| ([A-Z][A-Za-z]+) \|`)
	field   = regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\|$")
)

// elsewhere are fields that a caller may send and that the messages which the
// driver links do not have: those of a later release, and of later generations.
var elsewhere = map[string]map[string]protoreflect.MessageDescriptor{
	"v1alpha1 DriverDeleteBucket request":       {"delete_context": nil},
	"v1alpha1 DriverRevokeBucketAccess request": {"revoke_access_context": nil},
	"v1alpha2 DriverGrantBucketAccess request": {
		"buckets[].object_data_access_mode":     (&cosipb.DriverGrantBucketAccessRequestB2{}).ProtoReflect().Descriptor(),
		"buckets[].object_metadata_access_mode": (&cosipb.DriverGrantBucketAccessRequestB2{}).ProtoReflect().Descriptor(),
		"buckets[].bucket_metadata_access_mode": (&cosipb.DriverGrantBucketAccessRequestB2{}).ProtoReflect().Descriptor(),
	},
}

// typeOf is the type of the field at a path, as a proto file writes it; "" if
// there is no such field.
func typeOf(m protoreflect.MessageDescriptor, path string) string {
	first, rest, nested := strings.Cut(path, ".")
	name, many := strings.CutSuffix(first, "[]")
	f := m.Fields().ByName(protoreflect.Name(name))
	if f == nil || nested && many != (f.IsList() || f.IsMap()) {
		return ""
	}
	single := func(f protoreflect.FieldDescriptor) string {
		switch {
		case f.Message() != nil:
			return string(f.Message().Name())
		case f.Enum() != nil:
			return string(f.Enum().Name())
		}
		return f.Kind().String()
	}
	switch {
	case nested && f.IsMap():
		return typeOf(f.MapValue().Message(), rest)
	case nested && f.Message() != nil:
		return typeOf(f.Message(), rest)
	case nested:
		return ""
	case f.IsMap():
		return "map<" + single(f.MapKey()) + ", " + single(f.MapValue()) + ">"
	case f.IsList():
		return "repeated " + single(f)
	}
	return single(f)
}

// holdFields compares a table of a section with a message: each of the message's
// fields has a row, and each row the type of its field, a source and an effect.
func holdFields(t *testing.T, of, text, head string, m protoreflect.MessageDescriptor) {
	t.Helper()
	_, table, _ := strings.Cut(text, "\n| "+head+" | type | source | effect |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]bool{}
	for _, row := range field.FindAllStringSubmatch(table, -1) {
		rows[row[1]] = true
		later, is := elsewhere[of+" "+head][row[1]]
		want := typeOf(m, row[1])
		if is && later != nil {
			want = typeOf(later, row[1])
		} else if is {
			want = "map<string, string>"
		}
		if row[2] != want {
			t.Errorf("%s: the %s's %s is documented as %q and is %q", of, head, row[1], row[2], want)
		}
	}
	for i := range m.Fields().Len() {
		if name := string(m.Fields().Get(i).Name()); !rows[name] {
			t.Errorf("%s: the %s's field %s has no row", of, head, name)
		}
	}
	if n := strings.Count(table, "\n| `"); n != len(rows) {
		t.Errorf("%s: %d rows on the %s, %d can be read", of, n, head, len(rows))
	}
}

// sections cuts a document at its headings of the second level.
func sections(text string) map[string]string {
	out := map[string]string{}
	at := heading.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		out[text[m[2]:m[3]]] = text[m[1]:end]
	}
	return out
}

func firstColumn(pattern *regexp.Regexp, text string) []string {
	var out []string
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// The documents name exactly the codes that each RPC can answer, and all fields
// of its request and answer with their types.
func TestCodesAndFields(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	read := func(name string) map[string]string {
		text, err := os.ReadFile(filepath.Join(root, "proto-docs", name))
		must(t, err)
		return sections(string(text))
	}
	common := firstColumn(codeRow, read("README.md")["Codes"])
	for version, v := range versions {
		documented := read(version + ".md")
		for i := range v.file.Services().Len() {
			service := v.file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				text, ok := documented[string(m.Name())]
				if !ok {
					t.Errorf("%s.md has no section on %s", version, m.Name())
					continue
				}
				holdFields(t, version+" "+string(m.Name()), text, "request", m.Input())
				holdFields(t, version+" "+string(m.Name()), text, "answer", m.Output())
				table, fails := v.tables["/"+string(service.FullName())+"/"+string(m.Name())]
				if !fails {
					continue // DriverGetInfo asks no service
				}
				var want []string
				for _, c := range table.Codes() {
					want = append(want, c.String())
				}
				got := append(firstColumn(codeRow, text), common...)
				slices.Sort(want)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%s %s: documented are the codes %v, the driver answers %v", version, m.Name(), got, want)
				}
			}
		}
	}
}

// The descriptor sets are of the protocol which the driver links: one with upstream's
// first v1alpha2, as reflection shows it, and one with its newest.
func TestDescriptorSets(t *testing.T) {
	t.Parallel()
	descriptorSet(t, "cosi.protoset", versions["v1alpha1"].file, versions["v1alpha2"].file)
	newest := protodesc.ToFileDescriptorProto(versions["v1alpha2"].file)
	for _, service := range newest.GetService() {
		for _, m := range service.GetMethod() {
			switch m.GetName() {
			case "DriverCreateBucket":
				m.OutputType = proto.String("." + newest.GetPackage() + ".DriverCreateBucketResponseC1")
			case "DriverGrantBucketAccess":
				m.InputType = proto.String("." + newest.GetPackage() + ".DriverGrantBucketAccessRequestB2")
			}
		}
	}
	file, err := protodesc.NewFile(newest, nil)
	must(t, err)
	descriptorSet(t, "cosi-c2.protoset", file)
}

// v1alpha1.proto is the protocol that the driver links, as grpcurl writes it from
// the descriptor set.
func TestProto(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	dir := t.TempDir()
	render := exec.CommandContext(t.Context(), "go", "tool", "-modfile=test/tools/go.mod", "grpcurl",
		"-protoset", "proto-docs/cosi.protoset", "-proto-out-dir", dir, "describe", "cosi.v1alpha1.Provisioner")
	render.Dir = root
	if out, err := render.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rendered, err := os.ReadFile(filepath.Join(dir, versions["v1alpha1"].file.Path()))
	must(t, err)
	want := "// COSI v1alpha1, written by make generate from the descriptor in\n" +
		"// sigs.k8s.io/container-object-storage-interface-spec v0.1.0. v1alpha1.md says what\n" +
		"// each field is for. Sidecars since v0.2.0 also send two fields that this version\n" +
		"// does not have: map<string, string> delete_context = 2 of DriverDeleteBucketRequest,\n" +
		"// and map<string, string> revoke_access_context = 3 of DriverRevokeBucketAccessRequest.\n" + string(rendered)
	file := filepath.Join(root, "proto-docs", "cosi", "v1alpha1.proto")
	if *update {
		must(t, os.WriteFile(file, []byte(want), 0o644))
	}
	got, err := os.ReadFile(file)
	must(t, err)
	if string(got) != want {
		t.Error("proto-docs/cosi/v1alpha1.proto is stale; run make generate")
	}
}

// descriptorSet compares a file of proto-docs with these files and all that they
// import.
func descriptorSet(t *testing.T, name string, files ...protoreflect.FileDescriptor) {
	t.Helper()
	root, err := harness.Root()
	must(t, err)
	set := &descriptorpb.FileDescriptorSet{}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) { // what is imported first
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	for _, f := range files {
		add(f)
	}
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	must(t, err)
	file := filepath.Join(root, "proto-docs", name)
	if *update {
		must(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("proto-docs/%s is stale; run make generate", name)
	}
}

// README.md of proto-docs names every file beside it.
func TestIndex(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "proto-docs", "README.md"))
	must(t, err)
	must(t, filepath.WalkDir(filepath.Join(root, "proto-docs"), func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(filepath.Join(root, "proto-docs"), path)
		if err == nil && !d.IsDir() && name != "README.md" && !strings.Contains(string(text), "]("+name+")") {
			t.Errorf("proto-docs/README.md does not name %s", name)
		}
		return err
	}))
}
