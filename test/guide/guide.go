// Package guide reads the fenced blocks of README.md and of the pages below deploy,
// and says who executes each. The tests named in [Table] take their blocks from here,
// so a block that a page gains is executed, or TestBlocks in test/docs says that no
// test does.
package guide

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// By is a test that executes blocks, or why there is none.
type By string

// What executes blocks.
const (
	Node     By = "make node" // follows them on a Kubernetes node
	CI       By = ".ci/run"   // has each line as a step
	E2E      By = "make e2e"  // applies what upstream has not released to an API server
	Sessions By = "test/docs TestSessions"
	Commands By = "test/docs TestProgram"
	Config   By = "test/docs TestConfiguration and TestStorageServices"
	Diagram  By = "test/docs TestDiagrams"
	Manifest By = "test/deploy TestGuideQuotes" // it is a file, which a command on the page applies
	Ready    By = "test/deploy TestReadiness"
	Message  By = "test/deploy TestTroubleshooting" // it is what the driver says
)

// Entry gives the blocks of a language in a section to a test.
type Entry struct {
	Page, Section, Language string
	Has                     string // only blocks with this text; of two entries the first counts
	By                      By
}

const (
	readme        = "README.md"
	install       = "deploy/README.md"
	configuration = "deploy/configuration.md"
	operations    = "deploy/operations.md"
	storage       = "deploy/storage-services.md"
)

// Table is who executes which block. An entry without a section is for the whole page.
var Table = []Entry{
	{readme, "", "mermaid", "", Diagram},
	{readme, "Try it on your machine", "sh", "", CI},
	{readme, "Install it", "sh", "", Node},
	{readme, "Talk to it", "console", "", Sessions},

	{install, "", "yaml", "", Manifest},
	{install, "", "sh", "deploy/examples/v1alpha2/", E2E},
	{install, "", "sh", "status.readyToUse", Ready},
	{install, "", "sh", "", Node},

	{configuration, "", "yaml", "", Config},
	{configuration, "", "sh", "", Commands},

	{operations, "", "console", "", Sessions},
	{operations, "", "yaml", "", Config},
	{operations, "", "text", "", Message},
	{operations, "", "sh", "", Node},

	{storage, "", "yaml", "", Config},
	{storage, "", "sh", "", Commands},
}

// Elsewhere are the beginnings of lines that a node in the tests cannot execute, and why.
var Elsewhere = map[string]string{
	"make image": "it has run before the node starts, which has no registry to build from",

	"git clone https://github.com/kubernetes-sigs/container-object-storage-interface cosi": "upstream has released neither a module nor an image of v1alpha2",
	"git -C cosi checkout ": "as the line before it",
	"make -C cosi build.":   "as the line before it",
	"docker push registry.": "as the line before it",
	"kubectl apply -k 'github.com/kubernetes-sigs/container-object-storage-interface?ref=ee00c2690b877f9af3733acb8d03ea2c2a4bd521'": "as the line before it",
	"kubectl patch deployment container-object-storage-controller ":                                                                 "as the line before it",
}

// Block is a fenced block of a page.
type Block struct {
	Page     string // its path from the root of the repository
	Line     int    // of the opening fence
	Section  string // the heading above it
	Language string
	Text     string // without the fence's indentation
}

func (b Block) String() string {
	return fmt.Sprintf("%s:%d (%s, %s)", b.Page, b.Line, b.Section, b.Language)
}

// Commands are the block's lines that are not empty.
func (b Block) Commands() []string {
	var out []string
	for line := range strings.Lines(b.Text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// By is who executes the block; nothing if the table does not say.
func (b Block) By() By {
	for _, e := range Table {
		if e.Covers(b) {
			return e.By
		}
	}
	return ""
}

// Covers says whether the entry is the block's.
func (e Entry) Covers(b Block) bool {
	return e.Page == b.Page && (e.Section == "" || e.Section == b.Section) && e.Language == b.Language && strings.Contains(b.Text, e.Has)
}

// Parse returns the blocks of a page.
func Parse(page, text string) []Block {
	var out []Block
	var open *Block
	var indent, section string
	n := 0
	for line := range strings.Lines(text) {
		n++
		content := strings.TrimSpace(line)
		switch {
		case open != nil && content == "```":
			out = append(out, *open)
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent)
		case strings.HasPrefix(content, "```"):
			indent, _, _ = strings.Cut(line, "`")
			open = &Block{Page: page, Line: n, Section: section, Language: strings.TrimPrefix(content, "```")}
		case strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	if open != nil {
		out = append(out, *open)
	}
	return out
}

// Read returns the blocks of README.md and of every page below deploy.
func Read(root string) ([]Block, error) {
	pages := []string{readme}
	err := filepath.WalkDir(filepath.Join(root, "deploy"), func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(file) == ".md" {
			file, err = filepath.Rel(root, file)
			pages = append(pages, filepath.ToSlash(file))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []Block
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return nil, err
		}
		out = append(out, Parse(page, string(text))...)
	}
	return out, nil
}

// Of returns the blocks that a test executes, in the order of the pages.
func Of(root string, by By) ([]Block, error) {
	all, err := Read(root)
	var out []Block
	for _, b := range all {
		if b.By() == by {
			out = append(out, b)
		}
	}
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no page has a block for %s", by)
	}
	return out, err
}
