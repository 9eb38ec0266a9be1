package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// configSchema is the JSON schema of the driver's configuration, made of the
// types that it is read into.
func configSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	r := &jsonschema.Reflector{
		FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, DoNotReference: true, ExpandedStruct: true, Anonymous: true,
		Mapper: schemaOf, Namer: reflect.Type.String,
	}
	if err := r.AddGoComments("github.com/contract-cosi/contract-cosi-driver/test/deploy", root+"/pkg"); err != nil {
		t.Fatal(err)
	}
	r.LookupComment = func(of reflect.Type, field string) string { return describe(r.CommentMap, of, field) }
	schema := r.Reflect(&config.Config{})
	schema.ID = ""

	var parameters []any
	for _, p := range params.Table() {
		if !p.Required {
			parameters = append(parameters, p.Name)
		}
	}
	for _, terms := range []*jsonschema.Schema{property(t, schema, "contracts").Items, property(t, schema, "onDemand")} {
		for _, list := range []string{"parameters", "required"} {
			property(t, property(t, terms, "guard"), list).Items.Enum = parameters
		}
	}

	backend := property(t, schema, "backends").Items
	kind := property(t, backend, "type")
	var common []any
	for p := backend.Properties.Oldest(); p != nil; p = p.Next() {
		common = append(common, p.Key)
	}
	types := driver.Types()
	for _, name := range slices.Sorted(maps.Keys(types)) {
		section := r.Reflect(types[name]())
		section.Version, section.ID = "", ""
		section.Description = "configures a backend of type `" + name + "`"
		backend.Properties.Set(name, section)
		kind.Enum = append(kind.Enum, name)
		when := &jsonschema.Schema{Properties: jsonschema.NewProperties(), Required: []string{"type"}}
		when.Properties.Set("type", &jsonschema.Schema{Const: name})
		backend.AllOf = append(backend.AllOf, &jsonschema.Schema{If: when, Then: &jsonschema.Schema{
			Required: []string{name}, PropertyNames: &jsonschema.Schema{Enum: append(slices.Clone(common), name)},
		}})
	}
	return schema
}

func property(t *testing.T, of *jsonschema.Schema, name string) *jsonschema.Schema {
	t.Helper()
	p, ok := of.Properties.Get(name)
	if !ok {
		t.Fatalf("the schema has no %s", name)
	}
	return p
}

// schemaOf are the types whose kind says too little of them; nil is any other.
func schemaOf(t reflect.Type) *jsonschema.Schema {
	text := func(values ...any) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: values} }
	switch t {
	case reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`}
	case reflect.TypeFor[config.OnLastBucket]():
		return text(config.Keep, config.Cancel)
	case reflect.TypeFor[config.DriftMode](): // to YAML 1.1, off is false
		return &jsonschema.Schema{Enum: []any{config.DriftOff, config.DriftReport, config.DriftRepair, false}}
	case reflect.TypeFor[cosi.AccessMode]():
		return text(cosi.ReadWrite, cosi.ReadOnly, cosi.WriteOnly)
	case reflect.TypeFor[params.Defaults]():
		out := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
		out.Properties.Set("bucketClass", defaults(params.BucketClass))
		out.Properties.Set("bucketAccessClass", defaults(params.BucketAccessClass))
		return out
	}
	return nil
}

// defaults are the parameters of a class that a contract can give.
func defaults(of params.Class) *jsonschema.Schema {
	out := &jsonschema.Schema{
		Type: "object", Description: "parameters that a " + string(of) + " means where it gives none",
		Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema,
	}
	for _, p := range params.Table() {
		if p.Class == of && p.NoDefault == "" {
			out.Properties.Set(p.Name, &jsonschema.Schema{Type: "string", Description: p.Text})
		}
	}
	return out
}

// describe is the comment of a field, or the one that it shares with the field
// before it, with the names that the file has for fields.
func describe(comments map[string]string, of reflect.Type, field string) string {
	if field == "" {
		return ""
	}
	f, _ := of.FieldByName(field)
	text := ""
	for i := f.Index[0]; text == "" && i >= 0; i-- {
		text = comments[of.PkgPath()+"."+of.Name()+"."+of.Field(i).Name]
	}
	text = strings.Join(strings.Fields(text), " ")
	for field := range of.Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if at := regexp.MustCompile(`\b` + field.Name + `\b`).FindStringIndex(text); at != nil && key != "" && key != "-" {
			text = text[:at[0]] + "`" + key + "`" + text[at[1]:]
		}
	}
	return text
}

func indented(t *testing.T, v any, prefix string) string {
	t.Helper()
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent(prefix, "  ")
	if err := encoder.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// chartSchema is the chart's schema with that of the configuration in it. The
// chart writes the journal itself, and an evaluation needs no backend.
func chartSchema(t *testing.T) string {
	t.Helper()
	schema := configSchema(t)
	schema.Version = ""
	schema.Description = "the driver's [configuration](../configuration.md); the chart adds `journal`"
	schema.Required = []string{"driver"}
	schema.Properties.Set("journal", &jsonschema.Schema{Description: "is written by the chart"})
	property(t, schema, "backends").MinItems = nil
	driver := property(t, schema, "driver") // its name is empty until it is chosen
	driver.Required = nil
	property(t, driver, "name").Pattern = "^$|" + property(t, driver, "name").Pattern

	const key, end = "\n    \"config\": ", "\n    },\n"
	text, err := os.ReadFile(chartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), key)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("values.schema.json has no config")
	}
	return head + key + strings.TrimSuffix(indented(t, schema, "    "), "}") + strings.TrimSpace(end) + "\n" + tail
}

// configuration is its page: what is written by hand, then the reference of all
// keys.
func configuration(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(root + "/deploy/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	const mark = "<!-- Written by `make generate` from the types in pkg/config and the providers; edit their comments. -->\n"
	written, _, ok := strings.Cut(string(text), mark)
	if !ok {
		t.Fatalf("deploy/configuration.md has lost the line %s", mark)
	}
	var b strings.Builder
	b.WriteString(written + mark)
	schema := configSchema(t)
	for p := schema.Properties.Oldest(); p != nil; p = p.Next() {
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n| key | value | meaning |\n|---|---|---|\n", p.Key, capital(meaning(p.Key, p.Value)))
		section, at := p.Value, p.Key
		if section.Items != nil {
			section, at = section.Items, at+"[]"
		}
		for q := section.Properties.Oldest(); q != nil; q = q.Next() {
			if contracts := property(t, schema, "contracts").Items; p.Key != "onDemand" || q.Key == "namePrefix" {
				writeKeys(&b, at+"."+q.Key, q.Key, q.Value, slices.Contains(section.Required, q.Key))
			} else if _, shared := contracts.Properties.Get(q.Key); !shared {
				t.Errorf("onDemand.%s is no term of a contract", q.Key)
			}
		}
		if p.Key == "onDemand" {
			b.WriteString("| all but `name` and `perBucket` of `contracts[]` | | the terms |\n")
		}
	}
	return b.String()
}

// writeKeys writes a row for a key, or for each below it.
func writeKeys(b *strings.Builder, at, key string, s *jsonschema.Schema, required bool) {
	below := s
	if s.Items != nil && s.Items.Type == "object" {
		below = s.Items
		at += "[]"
	}
	if below.Properties.Len() == 0 || key == "bucketClass" || key == "bucketAccessClass" {
		kind := map[string]string{"": "", "string": "text", "integer": "number", "number": "number", "boolean": "`true` or `false`", "array": "list", "object": "section"}[s.Type]
		if strings.Contains(s.Pattern, "µs") {
			kind = "duration, such as `30s`"
		}
		if len(s.Enum) > 0 {
			kind = words(s.Enum)
		}
		if required {
			kind += "; required"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", at, kind, meaning(key, s))
		return
	}
	for p := below.Properties.Oldest(); p != nil; p = p.Next() {
		writeKeys(b, at+"."+p.Key, p.Key, p.Value, slices.Contains(below.Required, p.Key))
	}
}

// meaning is a description without the name that it begins with.
func meaning(key string, s *jsonschema.Schema) string {
	text, _ := strings.CutPrefix(s.Description, "`"+key+"` ")
	if strings.HasPrefix(text, "and ") { // another key's name
		text = s.Description
	}
	for _, verb := range []string{"is ", "are "} {
		text = strings.TrimPrefix(text, verb)
	}
	return strings.TrimSuffix(text, ".")
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// The schema refuses no configuration that the driver takes, and lets nothing
// through that is a slip of the pen.
func TestConfigSchema(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, key := filepath.Join(dir, "token"), filepath.Join(dir, "key")
	for file, text := range map[string]string{token: "t", key: "aws_access_key_id = a\naws_secret_access_key = b\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compiler := validator.NewCompiler()
	document, err := validator.UnmarshalJSON(strings.NewReader(indented(t, configSchema(t), "")))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiler.AddResource("config.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	const full = `
driver: {name: d.example.com, owner: o, callTimeout: 1m30s, adminSocket: /run/a.sock}
journal: {file: /j}
backends:
  - name: a
    type: contractapi
    connection: {proxy: "http://p", connectTimeout: 3s, insecureSkipVerify: true}
    deletionsPerSecond: 5
    contractapi: {url: https://c, tokenFile: TOKEN, keysReachAll: true}
  - name: b
    type: iam
    iam:
      url: https://i
      endpoints: [{region: r, url: https://s3, virtualHosts: true}]
      credentialsFile: KEY
      settleTime: 500ms
      dialect: {prefixKey: none}
  - {name: c, type: rgw, rgw: {endpoints: [{region: r, url: http://s3}], credentialsFile: KEY, accounts: true}}
  - {name: d, type: versitygw, versitygw: {adminURL: http://a, endpoints: [{region: r, url: http://s3}], credentialsFile: KEY}}
contracts:
  - name: team-a
    backend: a
    displayName: A
    quota: {maxBuckets: 3, maxBytes: 1000000000000}
    labels: {a: b}
    guard: {parameters: [tags], required: [tags], refusePublic: true, modes: [ReadOnly], actions: ["s3:GetObject"], maxKeyLife: 90d}
    defaults: {bucketClass: {versioning: Enabled}, bucketAccessClass: {keyLife: 1d}}
    onLastBucket: cancel
    drift: repair
onDemand: {namePrefix: trial-, backend: b, drift: off}
drift: {mode: report, interval: 1h, callsPerSecond: 5}
cosi: {generation: C1}
`
	for change, refusedBy := range map[string]string{ // "" is neither, else driver, or both
		"": "",
		"namePrefix: trial- > nameprefix: trial-": "both",
		"generation: C1 > generation: C3":         "both",
		"maxBuckets > maxBucket":                  "both",
		"maxBuckets: 3 > maxBuckets: 3.5":         "both",
		"maxBuckets: 3 > maxBuckets: -3":          "both",
		"type: iam > type: aws":                   "both",
		"type: rgw > type: versitygw":             "both",
		"tokenFile: TOKEN > token: TOKEN":         "both",
		"interval: 1h > interval: 1":              "both",
		"interval: 1h > interval: 1ms":            "driver",
		"mode: report > mode: false":              "",
		"mode: report > mode: true":               "both",
		"onLastBucket: cancel > onLastBucket: no": "both",
		"modes: [ReadOnly] > modes: [Read]":       "both",
		"versioning > verzioning":                 "both",
		"keyLife > access":                        "both",
		"required: [tags] > required: [tag]":      "both",
		"name: team-a > name: team_a":             "both",
		"backend: a > backend: z":                 "driver", // and the chart's templates
		"driver: > drivers:":                      "both",
		"prefixKey: none > prefix: none":          "both",
		"https://s3 > s3":                         "both",
		"proxy: > poxy:":                          "both",
	} {
		before, after, _ := strings.Cut(change, " > ")
		text := strings.NewReplacer("TOKEN", token, "KEY", key).Replace(strings.Replace(full, before, after, 1))
		var values any
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		bySchema, byDriver := schema.Validate(values), refused(text)
		if (byDriver == nil) != (refusedBy == "") || (bySchema == nil) != (refusedBy != "both") {
			t.Errorf("%q: the schema says %v, the driver says %v", change, bySchema, byDriver)
		}
	}
}
