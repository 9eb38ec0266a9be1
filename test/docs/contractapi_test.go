package docs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// openAPI is a description as it is written, with everything in its order.
type openAPI struct{ root *yaml.Node }

// at returns the node at a path of keys, nil if there is none.
func at(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		var next *yaml.Node
		for name, value := range members(n) {
			if name == key {
				next = value
			}
		}
		n = next
	}
	return n
}

// members yields the members of a mapping, in order.
func members(n *yaml.Node) func(func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; n != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// text is a scalar, without line breaks; "" if there is none.
func text(n *yaml.Node, keys ...string) string {
	if n = at(n, keys...); n == nil {
		return ""
	}
	return strings.Join(strings.Fields(n.Value), " ")
}

// values are the scalars of a list.
func values(n *yaml.Node) (out []string) {
	if n != nil {
		for _, item := range n.Content {
			out = append(out, item.Value)
		}
	}
	return out
}

// resolve follows a reference.
func (o openAPI) resolve(n *yaml.Node) *yaml.Node {
	if to, ok := strings.CutPrefix(text(n, "$ref"), "#/"); ok {
		return at(o.root, strings.Split(to, "/")...)
	}
	return n
}

// kind says what a schema takes: another schema by its name, or a type with its
// bounds.
func (o openAPI) kind(n *yaml.Node) string {
	if ref := text(n, "$ref"); ref != "" {
		name := ref[strings.LastIndex(ref, "/")+1:]
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	}
	if enum := values(at(n, "enum")); enum != nil {
		return "`" + strings.Join(enum, "`, `") + "`"
	}
	out := text(n, "type")
	switch out {
	case "array":
		out = "list of " + o.kind(at(n, "items"))
	case "object":
		if of := at(n, "additionalProperties"); of != nil && of.Kind == yaml.MappingNode {
			out = "map of text to " + o.kind(of)
		}
	case "string":
		out = cmp.Or(map[string]string{"date-time": "time (RFC 3339)", "uri": "URI", "uri-reference": "URI reference"}[text(n, "format")], "text")
	}
	for _, bound := range []struct{ key, says string }{
		{"minimum", "at least "}, {"maximum", "at most "}, {"minLength", "at least %s characters"}, {"maxLength", "at most %s characters"},
		{"minItems", "at least %s items"}, {"maxItems", "at most %s items"}, {"maxProperties", "at most %s members"}, {"pattern", "`%s`"}, {"default", "default `%s`"},
	} {
		if v := text(n, bound.key); v != "" && strings.Contains(bound.says, "%s") {
			out += ", " + fmt.Sprintf(bound.says, v)
		} else if v != "" {
			out += ", " + bound.says + v
		}
	}
	return out
}

// fields writes a row for each property of an object, with those of objects
// inside it.
func (o openAPI) fields(b *strings.Builder, before string, schema *yaml.Node) {
	required := values(at(schema, "required"))
	for name, property := range members(at(schema, "properties")) {
		needed := ""
		for _, r := range required {
			if r == name {
				needed = "yes"
			}
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", before, name, o.kind(property), needed, text(property, "description"))
		inner, mark := property, "."
		if text(property, "type") == "array" {
			inner, mark = at(property, "items"), "[]."
		}
		o.fields(b, before+name+mark, inner)
	}
}

func (o openAPI) operations() string {
	var b strings.Builder
	for path, item := range members(at(o.root, "paths")) {
		for method, operation := range members(item) {
			if method == "parameters" {
				continue
			}
			fmt.Fprintf(&b, "\n### %s\n\n`%s %s`", text(operation, "summary"), strings.ToUpper(method), path)
			if description := text(operation, "description"); description != "" {
				b.WriteString("\n\n" + description)
			}
			b.WriteString("\n\n| request | in | value |\n|---|---|---|\n")
			for _, list := range []*yaml.Node{at(item, "parameters"), at(operation, "parameters")} {
				for _, p := range nodes(list) {
					p = o.resolve(p)
					fmt.Fprintf(&b, "| `%s` | %s | %s |\n", text(p, "name"), text(p, "in"), o.kind(at(p, "schema")))
				}
			}
			b.WriteString("| `Authorization` | header | `Bearer` and the token |\n")
			if schema := at(operation, "requestBody", "content", "application/json", "schema"); schema != nil {
				fmt.Fprintf(&b, "| body | JSON | %s |\n", o.kind(schema))
			}
			b.WriteString("\n| answer | body | meaning |\n|---|---|---|\n")
			for status, response := range members(at(operation, "responses")) {
				response = o.resolve(response)
				body := ""
				for _, content := range members(at(response, "content")) {
					body = o.kind(at(content, "schema"))
				}
				if status == "default" {
					status = "any other"
				}
				fmt.Fprintf(&b, "| %s | %s | %s |\n", status, body, text(response, "description"))
			}
		}
	}
	return b.String() + "\n"
}

func (o openAPI) schemas() string {
	var b strings.Builder
	for name, schema := range members(at(o.root, "components", "schemas")) {
		fmt.Fprintf(&b, "\n### %s\n\n", name)
		if description := text(schema, "description"); description != "" {
			b.WriteString(description + "\n\n")
		}
		if at(schema, "properties") == nil {
			b.WriteString(o.kind(schema) + "\n")
			continue
		}
		b.WriteString("| field | value | required | meaning |\n|---|---|---|---|\n")
		o.fields(&b, "", schema)
	}
	return b.String() + "\n"
}

// nodes are the items of a list.
func nodes(n *yaml.Node) []*yaml.Node {
	if n == nil {
		return nil
	}
	return n.Content
}

// The page on the contract API says what its OpenAPI description does.
func TestContractAPI(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	description, err := os.ReadFile(filepath.Join(root, "pkg", "contract", "contractapi", "openapi.yaml"))
	must(t, err)
	var document yaml.Node
	must(t, yaml.Unmarshal(description, &document))
	api := openAPI{document.Content[0]}
	page := filepath.Join(root, "proto-docs", "contract-api.md")
	for _, part := range []struct{ name, text string }{{"operations", api.operations()}, {"objects", api.schemas()}} {
		content, err := os.ReadFile(page)
		must(t, err)
		harness.HoldTable(t, page, string(content), part.name, part.text, *update)
	}
	content, err := os.ReadFile(page)
	must(t, err)
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("x"), 0o600))
	trial := strings.Replace(block(t, string(content), "yaml"), "/etc/contract-cosi-driver/token", token, 1)
	if _, err := config.Parse([]byte(trial), driver.Types()); err != nil {
		t.Errorf("the configuration for a trial: %v", err)
	}
}
