package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Socket is where the driver listens.
type Socket struct {
	// Endpoint is "unix:///absolute/path.sock", as COSI_ENDPOINT has it
	// (v1alpha1 spec.md, "Configuration and Operation").
	Endpoint string
	// Mode is the file's permission bits. A sidecar in another container runs
	// as another user and has to be able to connect.
	Mode fs.FileMode
	// Group owns the file; "" leaves it to the process. A name or a number.
	Group string
}

// Dir is the socket's directory; an error if the endpoint is not valid.
func (s Socket) Dir() (string, error) {
	path, err := s.path()
	return filepath.Dir(path), err
}

// maxSocketPath is what fits into sockaddr_un.sun_path with its closing zero (unix(7)).
const maxSocketPath = 107

// Listen binds the socket. A file that a killed driver left behind is
// replaced; a socket at which a process answers is refused. Nothing else is ever
// put into the directory. Closing the listener removes the file.
func (s Socket) Listen(ctx context.Context) (net.Listener, error) {
	path, err := s.path()
	if err != nil {
		return nil, err
	}
	gid, err := s.gid()
	if err != nil {
		return nil, err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", s.Endpoint, err)
	}
	defer func() { _ = directory.Close() }()
	// Two drivers that start at once must not both find the other's socket
	// stale. The lock is on the directory itself, since no lock file may be in it.
	if err := flock(ctx, directory); err != nil {
		return nil, fmt.Errorf("endpoint %s: its directory is locked by another process (%w)", s.Endpoint, err)
	}
	if err := s.clear(ctx, path); err != nil {
		return nil, err
	}
	old := syscall.Umask(0o777) // no one connects before the mode is set
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", s.Endpoint, err)
	}
	if gid >= 0 {
		err = os.Chown(path, -1, gid)
	}
	if err == nil {
		err = os.Chmod(path, s.Mode)
	}
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("endpoint %s: %w", s.Endpoint, err)
	}
	return listener, nil
}

func (s Socket) path() (string, error) {
	path, ok := strings.CutPrefix(s.Endpoint, "unix://")
	switch {
	case !ok || !filepath.IsAbs(path):
		return "", fmt.Errorf("endpoint %q is not unix:///absolute/path.sock", s.Endpoint)
	case !strings.HasSuffix(path, ".sock"):
		return "", fmt.Errorf("endpoint %q does not end in .sock, which COSI asks for", s.Endpoint)
	case len(path) > maxSocketPath:
		return "", fmt.Errorf("endpoint %q: a socket's path has at most %d characters and this one has %d", s.Endpoint, maxSocketPath, len(path))
	}
	return filepath.Clean(path), nil
}

func (s Socket) gid() (int, error) {
	if s.Group == "" {
		return -1, nil
	}
	if n, err := strconv.Atoi(s.Group); err == nil && n >= 0 {
		return n, nil
	}
	return lookupGroup(s.Group)
}

// clear removes a stale socket. Only a refused connection proves that no process
// is there; a file that is no socket is not ours to remove.
func (s Socket) clear(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", s.Endpoint, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("endpoint %s: there is a file that is not a socket; remove it or choose another path", s.Endpoint)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("endpoint %s: another process is listening there; stop it or choose another path", s.Endpoint)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("endpoint %s: there is a socket that does not answer (%w); remove it if no process uses it", s.Endpoint, err)
	}
	return os.Remove(path)
}

// flock waits for the directory's lock; it is let go when the file is closed.
func flock(ctx context.Context, f *os.File) error {
	const pause, most = 10 * time.Millisecond, 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
