// Package v1alpha2 is COSI v1alpha2 on the wire: messages and service stubs,
// generated from proto-docs/cosi/v1alpha2.proto, whose head says why it is not
// upstream's own file. The test beside it holds the numbers to the published
// ones.
package v1alpha2

//go:generate go -C ../../.. tool -modfile=test/tools/go.mod buf generate --template pkg/cosipb/buf.gen.yaml
