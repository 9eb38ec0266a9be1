package rgw

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// release16 is as much of a gateway as a revocation meets: users with keys and
// policies, of which every other change of the user takes the policies away.
type release16 struct {
	mu        sync.Mutex
	suspended bool // the contract's own user
	keys      []string
	policies  map[string]string
	failing   string // an IAM action that fails
}

func (g *release16) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = r.ParseForm()
	uid, action := r.Form.Get("uid"), r.Form.Get("Action")
	switch {
	case action == g.failing && action != "":
		w.WriteHeader(http.StatusInternalServerError)
	case action == "PutUserPolicy":
		g.policies[r.Form.Get("PolicyName")] = r.Form.Get("PolicyDocument")
		_, _ = fmt.Fprint(w, "<PutUserPolicyResponse></PutUserPolicyResponse>")
	case action == "GetUserPolicy":
		_, _ = fmt.Fprintf(w, "<GetUserPolicyResponse><GetUserPolicyResult><PolicyDocument>%s</PolicyDocument></GetUserPolicyResult></GetUserPolicyResponse>", g.policies[r.Form.Get("PolicyName")])
	case r.Method == http.MethodGet:
		u := map[string]any{"suspended": 0, "keys": []map[string]string{}}
		if strings.HasSuffix(uid, cosi.ContractSlot) && g.suspended {
			u["suspended"] = 1
		}
		var keys []map[string]string
		for _, k := range g.keys {
			keys = append(keys, map[string]string{"access_key": k, "secret_key": "s"})
		}
		u["keys"] = keys
		_ = json.NewEncoder(w).Encode(u)
	case r.Method == http.MethodDelete && r.Form.Has("key"):
		g.keys = slices.DeleteFunc(g.keys, func(k string) bool { return k == r.Form.Get("access-key") })
		g.policies = map[string]string{}
	}
}

// A revocation of one of two keys that ends between the key and the policies is
// finished by its repeat: what is left of the keys has its limits again, and under
// a contract that is suspended it stays stopped.
func TestRevokeIsFinishedByItsRepeat(t *testing.T) {
	t.Parallel()
	for _, suspended := range []bool{false, true} {
		scope := &contract.Scope{Buckets: []contract.BucketScope{{Bucket: "data", Mode: cosi.ReadOnly}}}
		g := &release16{suspended: suspended, keys: []string{"old", "new"}, policies: map[string]string{grantPolicy: "limits"}, failing: "PutUserPolicy"}
		p := gateway(t, g.ServeHTTP)
		req := contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1", AccessKeyID: "old", Scope: scope, Known: []string{"old", "new"}, Exact: true}
		if err := p.RevokeKey(t.Context(), req); !fault.Is(err, fault.Unavailable) {
			t.Errorf("got %v, want that it is not done", err)
		}
		g.mu.Lock()
		g.failing = ""
		g.mu.Unlock()
		if err := p.RevokeKey(t.Context(), req); err != nil {
			t.Error(err)
		}
		want := []string{grantPolicy}
		if suspended {
			want = append(want, suspendPolicy)
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(g.policies)); !slices.Equal(got, want) || !slices.Equal(g.keys, []string{"new"}) {
			t.Errorf("suspended %v: the user has policies %q and keys %q, want %q", suspended, got, g.keys, want)
		}
	}
}
