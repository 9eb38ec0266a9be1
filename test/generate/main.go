// Command generate writes what is made of the table of class parameters in
// pkg/params: their reference, and the chart's admission policies. `make
// generate` runs it.
package main

import (
	"log"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: generate ROOT-OF-THE-REPOSITORY")
	}
	for file, text := range map[string]string{
		"proto-docs/parameters.md":                         reference(),
		"deploy/chart/templates/admission-parameters.yaml": admission(),
	} {
		if err := os.WriteFile(filepath.Join(os.Args[1], file), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
