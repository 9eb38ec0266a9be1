package admin_test

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// What a driver finds is told before it has found the rest, and an answer that is
// cut is not taken for a whole one.
func TestCall(t *testing.T) {
	told := make(chan string)
	for name, c := range map[string]struct {
		end  string
		want string
	}{
		"whole":   {`{"end":true}`, ""},
		"refused": {`{"kind":"NotFound","error":"there is none"}`, "there is none"},
		"cut":     {"", "not answered to the end"},
		"older":   {`{"items":[]}`, "another version"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{ReadTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for _, line := range []string{`{"done":1,"of":2}`, `{"item":{"id":"x"}}`, `{"faults":["f"]}`} {
					_, _ = fmt.Fprintln(w, line)
					_ = http.NewResponseController(w).Flush()
					<-told // the caller has it
				}
				_, _ = fmt.Fprint(w, c.end)
			})}
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(func() { _ = server.Close() })
			var got []string
			err = admin.Call(t.Context(), socket, admin.Audit, admin.Request{}, func(l admin.Line) {
				got = append(got, fmt.Sprintf("%s %v %d of %d", l.Item, l.Faults, l.Done, l.Of))
				told <- ""
			})
			if want := []string{" [] 1 of 2", `{"id":"x"} [] 0 of 0`, " [f] 0 of 0"}; !slices.Equal(got, want) {
				t.Errorf("told %q", got)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || name == "refused" && !fault.Is(err, fault.NotFound) {
				t.Error(err)
			}
		})
	}
}
