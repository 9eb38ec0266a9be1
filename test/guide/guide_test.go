package guide

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const page = "# Title\n\ntext\n\n```sh\none\n\ntwo # comment\n```\n\n## Next\n\n1. step\n\n   ```yaml\n   a:\n     b: c\n   ```\n\n```\nopen\n"
	want := []Block{
		{"p.md", 5, "Title", "sh", "one\n\ntwo # comment\n"},
		{"p.md", 15, "Next", "yaml", "a:\n  b: c\n"},
		{"p.md", 20, "Next", "", "open\n"},
	}
	have := Parse("p.md", page)
	if !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
	if c := have[0].Commands(); !slices.Equal(c, []string{"one", "two # comment"}) {
		t.Errorf("commands %q", c)
	}
}
