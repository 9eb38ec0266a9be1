package secrets_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
)

// The first build of the driver has imported journal.export into the Secrets of
// secrets.json. They are read and carried on, and what is written now is, byte
// for byte, what it wrote.
func TestSecretsOfTheFirstBuild(t *testing.T) {
	t.Parallel()
	export, err := os.ReadFile("../testdata/journal.export")
	must(t, err)
	text, err := os.ReadFile("../testdata/secrets.json")
	must(t, err)
	var first []corev1.Secret
	must(t, json.Unmarshal(text, &first))

	s := kubefake.Start(t)
	s.Add(first...)
	store := open(t, s, owner)
	var out strings.Builder
	if n, err := journal.Export(t.Context(), store, owner, &out); n != 7 || err != nil || out.String() != string(export) {
		t.Errorf("%d entries (%v):\n%s\nwant\n%s", n, err, out.String(), export)
	}
	j := journal.New(store)
	b, err := j.Bucket(t.Context(), bucketOf("photos"))
	must(t, err)
	must(t, j.SaveBucket(t.Context(), b))
	must(t, j.Delete(t.Context(), b))

	s = kubefake.Start(t)
	_, _, err = journal.Import(t.Context(), open(t, s, owner), owner, bytes.NewReader(export))
	must(t, err)
	now := s.Secrets()
	for i := range now {
		now[i].UID, now[i].ResourceVersion = first[i].UID, first[i].ResourceVersion
		now[i].Annotations["contract-cosi-driver/write"] = first[i].Annotations["contract-cosi-driver/write"] // random
	}
	if !reflect.DeepEqual(now, first) {
		t.Error("the Secrets are other than the first build's")
	}
}
