package memory_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contracttest"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

func TestProvider(t *testing.T) {
	t.Parallel()
	for _, secrets := range []memory.Secrets{memory.Chosen, memory.Repeated, memory.Once} {
		t.Run(string(secrets), func(t *testing.T) {
			s := memory.New(secrets, false)
			web := s.Serve()
			t.Cleanup(web.Close)
			open := func(refused bool) func(*testing.T) contracttest.Service {
				return func(*testing.T) contracttest.Service {
					var calls, lost atomic.Int64
					line := &memory.Line{Service: s, Refused: refused, Step: func(_ context.Context, _ string, do func() error) error {
						n := calls.Add(1)
						if lost.Load() == -1 {
							return fault.New(fault.Unavailable, "no answer")
						}
						err := do()
						if n == lost.Load() {
							err = fault.New(fault.Unavailable, "no answer")
						}
						return err
					}}
					return contracttest.Service{
						Provider: line.Provider(),
						Lose:     func(n int) { calls.Store(0); lost.Store(int64(n)) },
						Calls:    func() int { return int(calls.Load()) },
					}
				}
			}
			contracttest.Run(t, contracttest.Harness{
				Open: open(false), Refused: open(true), Secrets: []string{"the-credentials"},
				Operator: &contracttest.Operator{
					Stop: map[string]func(*testing.T, contracttest.Key){"stopped": func(_ *testing.T, k contracttest.Key) { s.StopKey(k.AccessKeyID) }},
					Widen: func(_ *testing.T, k contracttest.Key) {
						s.LimitKey(k.AccessKeyID, contract.Scope{Buckets: []contract.BucketScope{{Bucket: k.Bucket, Mode: cosi.ReadWrite}}})
					},
					Drop: func(_ *testing.T, k contracttest.Key) { s.LimitKey(k.AccessKeyID, contract.Scope{}) },
				},
				Lacks: contract.QuotaKinds{},
			})
		})
	}
}
