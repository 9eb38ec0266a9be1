package harness

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// Main runs the tests of a package beside what setUp starts, which they share.
// dir is a directory for it, whose path is short enough for sockets; what is
// handed to after is called when the tests are over, the last first.
func Main(m *testing.M, setUp func(ctx context.Context, dir string, after func(func())) error) {
	code, err := run(m, setUp)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, setUp func(ctx context.Context, dir string, after func(func())) error) (code int, err error) {
	const longest = 20 * time.Minute // to build and start all there is
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	dir, err := os.MkdirTemp("", "cosi")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var ends []func()
	defer func() {
		for i := range ends {
			ends[len(ends)-1-i]()
		}
	}()
	if err := setUp(ctx, dir, func(end func()) { ends = append(ends, end) }); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
