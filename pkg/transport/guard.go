package transport

import (
	"context"
	"errors"
	"time"
)

// AttemptTimeout bounds one attempt at a service, with its body. The writer's
// right to change things always outlives it (see pkg/lease).
const AttemptTimeout = 20 * time.Second

// ErrHandover is the cause with which work that no caller waits for ends when
// another process takes over. An attempt that was sent by then is not cancelled.
var ErrHandover = errors.New("another process takes over")

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
