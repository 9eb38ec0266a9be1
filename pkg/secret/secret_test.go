package secret_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

func TestStringNeverPrints(t *testing.T) {
	const planted = "planted-secret-text"
	s := secret.New(planted)
	holder := struct {
		Name string
		Key  secret.String
		Ptr  *secret.String
	}{"n", s, &s}

	asJSON, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	outputs := map[string]string{"json": string(asJSON), "error": fmt.Errorf("wrapped %w / %v", fmt.Errorf("%s", s), s).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s"} {
		outputs[verb] = fmt.Sprintf(verb, s) + fmt.Sprintf(verb, holder)
	}
	for how, out := range outputs {
		if strings.Contains(out, planted) || strings.Contains(out, fmt.Sprintf("%x", planted)) || strings.Contains(out, fmt.Sprintf("%X", planted)) {
			t.Errorf("%s printed the secret: %s", how, out)
		}
	}
	if s.Reveal() != planted {
		t.Errorf("Reveal() lost the text")
	}
}
