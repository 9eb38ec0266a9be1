package filestore

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// Whatever Marshal writes is read as Unmarshal reads it, and a record of the driver's
// is not parsed.
func FuzzChange(f *testing.F) {
	contract, bucket := journal.Key{Kind: journal.Contracts, ID: "main.team"}, journal.Key{Kind: journal.Buckets, ID: "main.team.photos"}
	other := journal.Key{Kind: journal.Buckets, ID: "main.team.videos"}
	value := json.RawMessage(`{"a":[1,"\",\"value\":"],"version":"5","refs":[]}`)
	for _, e := range []journal.Entry{
		{Key: contract, Value: value, Version: 1},
		{Key: bucket, Refs: []journal.Key{contract}, Value: json.RawMessage(`"x"`), Version: 1 << 60},
		{Key: journal.Key{Kind: journal.Accounts, ID: "main.team.ba"}, Refs: []journal.Key{bucket, other}, Value: value, Version: 7},
	} {
		text, err := json.Marshal(change{Put: &e})
		if err != nil {
			f.Fatal(err)
		}
		if got, ok := readPut(text); !ok || !reflect.DeepEqual(got, e) {
			f.Errorf("%s was read as %v (%v)", text, got, ok)
		}
		f.Add(text)
	}
	for _, text := range []string{
		`{"delete":{"kind":"bucket","id":"main.team.photos"}}`, `{"sealed":"AAAA"}`, `{}`, `{"put":{"key":{"kind":"k\"","id":"\\"},"value":{},"version":"1"}}`,
		`{"put":{"key":{"kind":"k","id":"i"},"value":{"version":"1"}}}`, `{"put":{"key":{"kind":"k","id":"i"},"value":{"a":1,"version":"1"}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want change
		if json.Unmarshal(text, &want) != nil {
			_, _ = readChange(text)
			return
		}
		if written, err := json.Marshal(want); err != nil || !bytes.Equal(written, text) {
			return
		}
		if got, err := readChange(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s was read as %+v (%v)", text, got, err)
		}
	})
}
