package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

// things has what configurations are made of.
type things struct {
	Name  string            `yaml:"name"`
	Wait  time.Duration     `yaml:"wait,omitempty"`
	Limit *int64            `yaml:"limit,omitempty"`
	Try   bool              `yaml:"try,omitempty"`
	Marks map[string]string `yaml:"marks,omitempty"`
	Parts []part            `yaml:"parts,omitempty"`
	Part  *part             `yaml:"part,omitempty"`
	Open  open              `yaml:"open,omitempty"`
	Inner `yaml:",inline"`
	Never string `yaml:"-"`
}

type Inner struct {
	Deep string `yaml:"deep,omitempty"`
}

type part struct {
	URL   string   `yaml:"url"`
	Words []string `yaml:"words,omitempty"`
}

type open struct {
	Kind string         `yaml:"kind"`
	Rest map[string]any `yaml:",inline"`
}

func TestFaultsOfAFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string // each a line of the error, whole; none is an accepted file
	}{
		"empty":     {"", nil},
		"sound":     {"name: 7\nwait: 3s\nlimit: 4\ntry: yes\nmarks: {a: b, c: 3}\nparts: [{url: http://a, words: [x]}]\npart: null\ndeep: x\nopen: {kind: a, b: [1, {c: 2}]}\n", nil},
		"an anchor": {"part: &p {url: http://a}\nparts:\n  - *p\n  - <<: *p\n    words: [x]\n  - <<: [*p]\n", nil},
		"unknown keys": {"nam: x\npart:\n  ulr: http://a\nparts:\n  - url: http://a\n    somethingElse: 1\nNever: x\nopen: {b: 1}\n", []string{
			"line 1: nam: the key is unknown; did you mean name?",
			"line 3: part.ulr: the key is unknown; did you mean url?",
			"line 6: parts[0].somethingElse: the key is unknown; known are url, words",
			"line 7: Never: the key is unknown; known are deep, limit, marks, name, open, part, parts, try, wait",
		}},
		"unknown in what is merged": {"part: &p {ulr: x}\nparts:\n  - <<: *p\n", []string{
			"line 1: part.ulr: the key is unknown; did you mean url?",
			"line 3: parts[0].ulr: the key is unknown; did you mean url?",
		}},
		"other kinds": {"name: [hunter2]\nwait: hunter2\nlimit: hunter2\ntry: hunter2\nmarks: hunter2\nparts: {a: hunter2}\npart: hunter2\nopen: 1.5\n", []string{
			"line 1: name: a list stands where a text belongs",
			"line 2: wait: a text stands where a duration such as 30s belongs",
			"line 3: limit: a text stands where a whole number belongs",
			"line 4: try: a text stands where true or false belongs",
			"line 5: marks: a text stands where a section belongs",
			"line 6: parts: a section stands where a list belongs",
			"line 7: part: a text stands where a section belongs",
			"line 8: open: a number stands where a section belongs",
		}},
		"kinds within":    {"parts:\n  - hunter2\n  - words: [a, [hunter2]]\nwait: 30\nlimit: 1.5\nmarks: {a: [hunter2]}\n", []string{"line 2: parts[0]: a text stands where a section belongs", "line 3: parts[1].words[1]: a list stands where a text belongs", "line 4: wait: a number stands where a duration such as 30s belongs", "line 5: limit: a number stands where a whole number belongs", "line 6: marks.a: a list stands where a text belongs"}},
		"twice":           {"name: a\npart:\n  url: x\n  url: y\nname: b\n", []string{"line 4: part.url: the key is there twice, first in line 3", "line 5: name: the key is there twice, first in line 1"}},
		"a list":          {"- name\n", []string{"a list stands where a section belongs"}},
		"two documents":   {"name: a\n---\nname: b\n", []string{"there is a second YAML document; leave one"}},
		"indented by tab": {"name: a\npart:\n\turl: x\n", []string{"line 3: a tab indents the line, where YAML takes spaces only; put spaces in its place"}},
		"a tab later":     {"part:\n  url: x\n\twords: []\n", []string{"line 3: a tab indents the line, where YAML takes spaces only; put spaces in its place"}},
		"a tab between":   {"name:\tx\nmarks:\n  a: |\n    b\tc\n", nil},
		"no YAML":         {"name: a\nparts: [\n", []string{"line 2: did not find expected node content; look for a quote, a bracket, a colon or an indentation that is wrong there or in the next line"}},
		"itself":          {"parts: &a [*a]\n", []string{"line 1: the alias *a stands in the part that it stands for; write out what it should be"}},
		"itself, merged":  {"part: &a {<<: *a}\n", []string{"line 1: the alias *a stands in the part that it stands for; write out what it should be"}},
		"itself, twice":   {"part: &a {<<: [*a]}\npart: [*a]\n", []string{"line 1: the alias *a stands in the part that it stands for; write out what it should be"}},
		"no key": {"'': x\n'%s': y\n", []string{
			"line 1: the key is unknown; known are deep, limit, marks, name, open, part, parts, try, wait",
			"line 2: %s: the key is unknown; known are deep, limit, marks, name, open, part, parts, try, wait",
		}},
	} {
		var into things
		file, err := settings.Read([]byte(c.text), &into)
		if err == nil {
			err = file.Err()
		}
		var got []string
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				got = append(got, strings.TrimSpace(line))
			}
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: got\n  %s\nwant\n  %s", name, strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
		}
	}
}

// What a section's owner finds is told beside what reading found, in the order
// of the file.
func TestFaultsOfSections(t *testing.T) {
	t.Parallel()
	var into things
	file, err := settings.Read([]byte("parts:\n  - &a\n    url: http://user:hunter2@x\n  - <<: *a\nwait: 3h\nopen:\n  kind: inner\n  inner:\n    url: ://hunter2\n    sword: x\n"), &into)
	if err != nil {
		t.Fatal(err)
	}
	file.At("wait").Between(into.Wait, time.Second, time.Hour)
	file.At("part").Faultf("missing")
	file.At("open", "other").Faultf("missing")
	file.At("parts", 0, "url").URL(into.Parts[0].URL)
	file.At("parts", 1, "url").URL("ftp://x")
	file.At("parts", 2, "url").URL("https://x/ok")
	var inner part
	section := file.At("open", into.Open.Kind)
	section.Decode(&inner)
	section.At("url").URL(inner.URL)
	want := `  part: missing
  line 3: parts[0].url: "http://user:xxxxx@x" is not an http or https address without credentials
  line 4: parts[1].url: "ftp://x" is not an http or https address without credentials
  line 5: wait: 3h0m0s is not between 1s and 1h0m0s
  line 6: open.other: missing
  line 9: open.inner.url: this is not an http or https address without credentials
  line 10: open.inner.sword: the key is unknown; did you mean words?`
	if got := file.Err(); got == nil || got.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", got, want)
	}
	if !section.Given() || file.At("part").Given() || inner.URL == "" {
		t.Errorf("given: %v, %v; read: %+v", section.Given(), file.At("part").Given(), inner)
	}
}

func TestFilesOfSecrets(t *testing.T) {
	t.Parallel()
	const pair = "[default]\naws_access_key_id = AKID\naws_secret_access_key = planted-secret\n"
	for name, c := range map[string]struct {
		text      string
		pair, one bool // what it can be read as
	}{
		"a section":         {pair, true, false},
		"none":              {"aws_access_key_id=AKID\naws_secret_access_key=planted-secret", true, false},
		"comments":          {"# mine\n" + pair + "region = x\n", true, false},
		"another's section": {"[other]\naws_access_key_id = AKID\naws_secret_access_key = planted-secret\n", false, false},
		"half":              {"aws_access_key_id = AKID\n", false, true},
		"a token":           {" planted-secret \n", false, true},
		"empty":             {" \n", false, false},
	} {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		key, keyErr := settings.OpenKeyPair(file, nil)
		token, tokenErr := settings.OpenSecret(file, nil)
		if (keyErr == nil) != c.pair || (tokenErr == nil) != c.one {
			t.Errorf("%s: credentials %v, secret %v", name, keyErr, tokenErr)
		}
		if c.pair && (key.Get().AccessKeyID != "AKID" || key.Get().SecretAccessKey.Reveal() != "planted-secret") {
			t.Errorf("%s: the credentials are of %s", name, key.Get().AccessKeyID)
		}
		if c.one && token.Get().Reveal() != strings.TrimSpace(c.text) {
			t.Errorf("%s: another secret was read", name)
		}
		for _, err := range []error{keyErr, tokenErr} {
			if err != nil && (strings.Contains(err.Error(), "planted") || !strings.Contains(err.Error(), file)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	var into things
	section, err := settings.Read([]byte("name: x\n"), &into)
	if err != nil {
		t.Fatal(err)
	}
	section.At("name").KeyPair("/no/such/file")
	section.At("name").Secret("")
	if err := section.Err(); err == nil || !strings.Contains(err.Error(), "line 1: name: open /no/such/file") || !strings.Contains(err.Error(), "line 1: name: missing") {
		t.Errorf("got %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("part: &a {<<: [*a], url: x}\nparts: [*a, 1, {}]"))
	f.Add([]byte("part: &a {<<: [*a], url: x}\npart: [*a, 1, {}]"))
	f.Add([]byte("open: {kind: a, '': [~]}\n\tname: b\n"))
	f.Add([]byte("? [a]\n: b\nlimit: 0x1\n---\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		var into things
		file, err := settings.Read(text, &into)
		if err == nil {
			file.At("parts", 0, "url").Faultf("x")
			_ = file.Err()
		}
	})
}
