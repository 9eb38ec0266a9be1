package journal_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// What Marshal has written is read as Unmarshal reads it, or not at all; and a record
// of the driver's is read.
func FuzzReadEntry(f *testing.F) {
	contract, bucket := journal.Key{Kind: journal.Contracts, ID: "main.team"}, journal.Key{Kind: journal.Buckets, ID: "main.team.photos"}
	other := journal.Key{Kind: journal.Buckets, ID: "main.team.videos"}
	value := json.RawMessage(`{"a":[1,"\",\"value\":"],"version":"5","refs":[]}`)
	for _, e := range []journal.Entry{
		{Key: contract, Value: value, Version: 1}, {Key: contract, Value: value},
		{Key: bucket, Refs: []journal.Key{contract}, Value: json.RawMessage(`"x"`), Version: 1 << 60},
		{Key: journal.Key{Kind: journal.Accounts, ID: "main.team.ba"}, Refs: []journal.Key{bucket, other}, Value: value, Version: 7},
	} {
		text, err := json.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		if got, ok := journal.ReadEntry(text); !ok || !reflect.DeepEqual(got, e) {
			f.Errorf("%s was read as %v (%v)", text, got, ok)
		}
		f.Add(text)
	}
	for _, text := range []string{
		`{}`, `{"key":{"kind":"k\"","id":"\\"},"value":{},"version":"1"}`, `{"key":{"kind":"k","id":"i"},"value":{"version":"1"}}`,
		`{"key":{"kind":"k","id":"i"},"value":{"a":1,"version":"1"}}`, `{"key":{"kind":"k","id":"i"},"value":"x","version":"y"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := journal.ReadEntry(text)
		var want journal.Entry
		if json.Unmarshal(text, &want) != nil {
			return
		}
		if written, err := json.Marshal(want); ok && err == nil && bytes.Equal(written, text) && !reflect.DeepEqual(got, want) {
			t.Errorf("%s was read as %+v", text, got)
		}
	})
}
