package main

import (
	"fmt"
	"slices"
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
	b.WriteString("\n## Access modes\n\n" +
		"A BucketAccess of v1alpha2 since generation B2 has a mode in each of three categories; before that, and in v1alpha1, it\n" +
		"has one, which is that of `objectData`. A mode allows the S3 actions of its category, at every service; `actions` takes\n" +
		"some of them. A category that is not set gives the actions marked *by data*, as the mode of `objectData` says; and\n" +
		"`objectData`, if that is not set, has the mode of the class's parameter `access`.\n\n" +
		"| category | action | ReadWrite | ReadOnly | WriteOnly | not set |\n|---|---|---|---|---|---|\n")
	for _, category := range []cosi.Category{cosi.ObjectData, cosi.ObjectMetadata, cosi.BucketMetadata} {
		for _, a := range cosi.Actions() {
			if a.Of != category {
				continue
			}
			fmt.Fprintf(&b, "| `%s` | `%s` |", category, a.Name)
			for _, mode := range []cosi.AccessMode{cosi.ReadWrite, cosi.ReadOnly, cosi.WriteOnly} {
				text := ""
				if slices.Contains(a.Modes, mode) {
					text = "yes"
				}
				if text != "" && a.With != nil {
					text = fmt.Sprintf("with `objectData: %s`", a.With[0])
				}
				fmt.Fprintf(&b, " %s |", text)
			}
			fmt.Fprintf(&b, " %s |\n", map[bool]string{true: "by data"}[a.ByData])
		}
	}
	b.WriteString("\nNo mode lets a key change the bucket's policy, ACL or tags, an object's ACL, retention or legal hold, or delete the\n" +
		"bucket: with the first two a key could give itself every right, the driver's mark is one of the tags, and the others take\n" +
		"an object out of its owner's hands. What HeadObject shows comes with `s3:GetObject`. A prefix does not limit the actions\n" +
		"of `bucketMetadata`, so a class with a prefix gives none that write. What a class says of versioning, CORS and lifecycle\n" +
		"is put back by `drift: repair`.\n\n" +
		"Ceph's gateways refuse policies that name the two for attributes before release 20, and versitygw those that name\n" +
		"`s3:GetObjectVersionAcl`, so no key has them there. A key with a prefix has `s3:ListBucketMultipartUploads` at\n" +
		"contractapi only: policies cannot limit it. versitygw has neither lifecycles nor ACLs of objects, whatever the mode.\n" +
		"AWS takes `s3:GetObject` beside `s3:GetObjectAttributes`. A backend of type `contractapi` whose service does not\n" +
		"know modes for metadata refuses them, and one with `keysReachAll` takes ReadWrite alone.\n")
	return b.String()
}
