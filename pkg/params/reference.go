package params

import (
	"fmt"
	"strings"
)

// Reference writes the table as the Markdown document proto-docs/parameters.md.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Class parameters\n\n")
	b.WriteString("<!-- Written by `make generate` from the table in pkg/params; edit that. -->\n\n")
	b.WriteString("Keys are case-sensitive and an unknown key is refused. One message reports all the faults of a class.\n")
	for _, class := range []Class{BucketClass, BucketAccessClass} {
		fmt.Fprintf(&b, "\n## %s\n\n| parameter | value | default | meaning |\n|---|---|---|---|\n", class)
		for _, p := range Table() {
			if p.Class != class {
				continue
			}
			def := p.Default
			if p.Required {
				def = "required"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Name, p.Type, def, p.Text)
		}
	}
	return b.String()
}
