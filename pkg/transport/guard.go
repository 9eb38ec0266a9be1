package transport

import (
	"context"
	"time"
)

// AttemptTimeout bounds one attempt at a service, with its body. The writer's
// right to change things always outlives it (see pkg/lease).
const AttemptTimeout = 20 * time.Second

type guardKey struct{}

// Guarded returns a context in which an attempt is only sent if may, asked right
// before, returns nil for the time that the attempt can take.
func Guarded(ctx context.Context, may func(time.Duration) error) context.Context {
	return context.WithValue(ctx, guardKey{}, may)
}

// May asks the context's guard; nil if there is none.
func May(ctx context.Context, d time.Duration) error {
	if may, ok := ctx.Value(guardKey{}).(func(time.Duration) error); ok {
		return may(d)
	}
	return nil
}
