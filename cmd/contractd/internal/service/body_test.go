package service

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
)

// What the check lets through, the generated decoder must understand, and the
// check of values must survive.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{
		`{"owner":"me","quota":{"maxKeys":1},"labels":{"a":"b"}}`,
		`{"spec":{"slot":"a","buckets":[{"bucket":"abc","access":"readOnly","prefix":"a/"}],"sourceAddresses":["::/0"],"expiresAt":"2030-01-01T00:00:00Z"},"keep":["x"]}`,
		`{"spec":null}`, `null`, `{} {}`, `{"owner":"a","Owner":"b"}`, `{"spec":{"expiresAt":"2030-01-01T00:00:00,5Z"}}`, `{"quota":{"maxKeys":1e3}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var spec api.ContractSpec
		if checkJSON(data, reflect.TypeFor[api.ContractSpec]()) == nil {
			if err := json.Unmarshal(data, &spec); err != nil {
				t.Fatalf("passed but not decoded: %v", err)
			}
			new(faults).contractSpec(spec)
		}
		var request api.KeyRequest
		if checkJSON(data, reflect.TypeFor[api.KeyRequest]()) != nil {
			return
		}
		if err := json.Unmarshal(data, &request); err != nil {
			t.Fatalf("passed but not decoded: %v", err)
		}
		var found faults
		if found.keyRequest(request); len(found) == 0 {
			keyOf("contract", "name", request.Spec) // panics on what the check should have refused
		}
	})
}
