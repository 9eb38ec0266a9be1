// Imagebom makes an image's software bill of materials from its program's: the same
// components, with the base image beside them. Both are CycloneDX documents.
//
//	imagebom -image contract-cosi-driver:0.1.0 -base IMAGE@DIGEST <program.cdx.json >image.cdx.json
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	image := flag.String("image", "", "the image, as NAME:VERSION")
	base := flag.String("base", "", "the image it is built on")
	flag.Parse()
	if err := run(*image, *base, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "imagebom:", err)
		os.Exit(1)
	}
}

func run(image, base string, in io.Reader, out io.Writer) error {
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(in, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return err
	}
	if image == "" || base == "" || bom.Metadata == nil || bom.Metadata.Component == nil || bom.Components == nil {
		return errors.New("-image, -base and the bill of a program with its components are needed")
	}
	program := *bom.Metadata.Component
	root, below := container(image), container(base)
	bom.Metadata.Component = &root
	components := append([]cdx.Component{below, program}, *bom.Components...)
	bom.Components = &components
	dependencies := []cdx.Dependency{{Ref: root.BOMRef, Dependencies: &[]string{below.BOMRef, program.BOMRef}}}
	if bom.Dependencies != nil {
		dependencies = append(dependencies, *bom.Dependencies...)
	}
	bom.Dependencies = &dependencies
	return cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(&bom)
}

func container(image string) cdx.Component {
	name, digest, _ := strings.Cut(image, "@")
	c := cdx.Component{BOMRef: image, Type: cdx.ComponentTypeContainer, Name: name, Version: digest}
	if at := strings.LastIndex(name, ":"); at > strings.LastIndex(name, "/") && digest == "" {
		c.Name, c.Version = name[:at], name[at+1:]
	}
	return c
}
