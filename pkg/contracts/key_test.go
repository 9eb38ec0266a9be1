package contracts

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// keyed is a provisioner whose contracts have a key.
type keyed struct{ Provisioner }

func (keyed) ContractKey(context.Context, cosi.ContractID, config.Terms) (secret.KeyPair, cosi.Endpoint, error) {
	return secret.KeyPair{AccessKeyID: "KEY", SecretAccessKey: secret.New("secret")}, cosi.Endpoint{URL: "https://s3.example.com"}, nil
}

// secretsOf is an API server with the Secrets of a namespace and the status of a
// Contract. It dies in the middle of the call of which dies is told true.
type secretsOf struct {
	mu      sync.Mutex
	secrets map[string]corev1.Secret
	status  v1alpha1.ContractStatus
	dies    func(call string, after bool) bool
}

func (s *secretsOf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	name := path.Base(r.URL.Path)
	call := r.Method + " " + name
	if s.dies(call, false) {
		panic(http.ErrAbortHandler)
	}
	var answer any = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	switch {
	case r.Method == http.MethodPatch:
		var c v1alpha1.Contract
		_ = json.NewDecoder(r.Body).Decode(&c)
		s.status = c.Status
	case r.Method == http.MethodPost:
		var made corev1.Secret
		_ = json.NewDecoder(r.Body).Decode(&made)
		s.secrets[made.Name] = made
	default:
		have, ok := s.secrets[name]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
			break
		}
		if have.TypeMeta = (metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}); r.Method == http.MethodGet {
			answer = have
		} else {
			delete(s.secrets, name)
		}
	}
	if s.dies(call, true) {
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// A driver that dies between any two calls, and whose Contract then asks for the Secret
// under another name or for none, leaves none behind.
func TestNoSecretIsLeft(t *testing.T) {
	t.Parallel()
	for _, dies := range []string{"", "PATCH status", "GET own", "POST secrets", "PATCH status after", "GET own after", "POST secrets after"} {
		for _, want := range []string{"other", ""} {
			at := dies
			api := &secretsOf{secrets: map[string]corev1.Secret{}, dies: func(call string, after bool) bool {
				if after {
					call += " after"
				}
				return call == at
			}}
			server := httptest.NewServer(api)
			t.Cleanup(server.Close)
			c := contractsAt(t, server.URL)
			k := &control{Contracts: c, provisioner: keyed{}, writer: alone{}}
			obj := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "media", UID: "1"}}
			give := func(name string) error {
				api.mu.Lock()
				obj.Spec.KeySecretName, obj.Status = name, api.status
				api.mu.Unlock()
				return k.giveKey(t.Context(), obj, obj.Status.DeepCopy(), order{})
			}
			if err := give("own"); (err == nil) != (at == "") {
				t.Errorf("it dies at %q: %v", dies, err)
			}
			api.mu.Lock()
			at = "never" // another driver starts
			api.mu.Unlock()
			if err := give(want); err != nil {
				t.Errorf("after it died at %q: %v", dies, err)
			}
			var left []string
			server.Close() // which waits for what is under way
			for name := range api.secrets {
				left = append(left, name)
			}
			if !slices.Equal(left, strings.Fields(want)) {
				t.Errorf("Secrets are left: %v, of %q", left, want)
			}
		}
	}
}
