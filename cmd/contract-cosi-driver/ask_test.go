package main

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
)

// What is printed part by part is what would be printed at once.
func TestPrinter(t *testing.T) {
	t.Parallel()
	items := []json.RawMessage{json.RawMessage(`{"id":"main.a","accesses":["x","y"]}`), json.RawMessage(`{"id":"main.<b>","accesses":[]}`)}
	for _, want := range []admin.Report[json.RawMessage]{
		{Items: []json.RawMessage{}}, {Items: items[:1]}, {Items: items},
		{Items: []json.RawMessage{}, Faults: []string{"f"}}, {Items: items, Faults: []string{"f", "g"}},
	} {
		var out, log strings.Builder
		p := &printer{command: admin.Buckets, output: "json", stdout: bufio.NewWriter(&out), stderr: &log}
		for _, item := range want.Items {
			p.take(admin.Line{Item: item})
			if p.report.Items != nil {
				t.Error("an item is kept")
			}
		}
		p.take(admin.Line{Faults: want.Faults})
		p.take(admin.Line{Done: 3, Of: 4})
		p.take(admin.Line{Done: 4, Of: 4})
		if err := p.end(); (err == nil) != (want.Faults == nil) {
			t.Error(err)
		}
		text, err := json.MarshalIndent(want, "", "  ")
		if err != nil || out.String() != string(text)+"\n" {
			t.Errorf("printed %s\nwant %s (%v)", &out, text, err)
		}
		if log.String() != "buckets: 3 of 4 contracts\n" {
			t.Errorf("progress: %q", &log)
		}
		if time.Since(p.told) > time.Hour {
			t.Error("it is not noted when progress was told")
		}
	}
}
