package backends

import (
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

// The way of a key at the gateway: what a grant and a revocation wait for.
func BenchmarkRGWKeys(b *testing.B) {
	p := provide(b, ceph.URL, administrator(), "us-east-1")
	name := label("t")
	if _, err := p.EnsureContract(b.Context(), contract.Spec{Name: name, Owner: owner}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.DeleteContract(b.Context(), name) })
	scope := scopeOf(cosi.ReadWrite, "bucket", "")
	b.Run("Issue", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := p.IssueKey(b.Context(), contract.IssueKeyRequest{Contract: name, Slot: label("s"), Scope: &scope, Proposed: propose()}); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("Revoke", func(b *testing.B) {
		slots := make(chan string, b.N)
		for range b.N {
			slot := label("s")
			if _, err := p.IssueKey(b.Context(), contract.IssueKeyRequest{Contract: name, Slot: slot, Scope: &scope, Proposed: propose()}); err != nil {
				b.Fatal(err)
			}
			slots <- slot
		}
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := p.RevokeKey(b.Context(), contract.RevokeKeyRequest{Contract: name, Slot: <-slots}); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
