package main

import (
	"fmt"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// reference writes the table as a Markdown document.
func reference() string {
	var b strings.Builder
	b.WriteString("# Class parameters\n\n")
	b.WriteString("<!-- Written by `make generate` from the table in pkg/params; edit that. -->\n\n")
	b.WriteString("For platform engineers who write BucketClasses and BucketAccessClasses: every parameter, its values and its default.\n\n" +
		"Keys are case-sensitive and an unknown key is refused. One message reports all the faults of a class. What a storage\n" +
		"service does not have is refused with the parameter's name, and nothing is made.\n\n" +
		"The last column names the servers that the tests of a parameter run on: versitygw 1.8.0, as contractd runs it, Ceph's\n" +
		"radosgw 16.2.15, and a fake that keeps state.\n")
	for _, class := range []params.Class{params.BucketClass, params.BucketAccessClass} {
		fmt.Fprintf(&b, "\n## %s\n\n| parameter | value | default | meaning | tested on |\n|---|---|---|---|---|\n", class)
		for _, p := range table(class) {
			def := p.Default
			if p.Required {
				def = "required"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", p.Name, p.Type, def, p.Text, strings.Join(p.TestedOn, ", "))
		}
	}
	b.WriteString("\n## Access modes\n\nThe S3 actions that a mode allows, at every service; `actions` takes some of them. Ceph's gateways refuse policies that\n" +
		"name the two for attributes before release 20, so no key has them there. A key with a prefix has\n" +
		"`s3:ListBucketMultipartUploads` at contractapi only: policies cannot limit it.\n\n" +
		"| action | ReadWrite | ReadOnly | WriteOnly |\n|---|---|---|---|\n")
	for _, a := range cosi.Actions() {
		fmt.Fprintf(&b, "| `%s` |", a.Name)
		for _, mode := range []cosi.AccessMode{cosi.ReadWrite, cosi.ReadOnly, cosi.WriteOnly} {
			fmt.Fprintf(&b, " %s |", map[bool]string{true: "yes"}[mode.Allows(a.Name)])
		}
		b.WriteString("\n")
	}
	return b.String()
}
