// Package code turns faults into gRPC statuses. It is the only place where the
// two meet; which kind becomes which code in which RPC is for the packages of
// the API versions to say, each in tables of its own.
package code

import (
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// Table gives the code of each kind of fault in one RPC.
type Table map[fault.Kind]codes.Code

// With returns a copy of the table in which some kinds have another code.
func (t Table) With(special Table) Table {
	out := maps.Clone(t)
	maps.Copy(out, special)
	return out
}

// Status returns err as a gRPC status with the code of its kind and its text.
// It has no details, as both specifications ask (spec.md, "Error Scheme").
func (t Table) Status(err error) error {
	c, ok := t[fault.KindOf(err)]
	if !ok {
		c = codes.Internal
	}
	return status.Error(c, fault.Line(err.Error()))
}

// Codes are the codes that the RPC can answer beside OK, sorted by number.
func (t Table) Codes() []codes.Code {
	return slices.Compact(slices.Sorted(maps.Values(t)))
}
