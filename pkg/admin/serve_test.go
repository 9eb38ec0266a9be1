package admin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
)

// serve answers commands at a socket, with many contracts and an empty journal.
func serve(t *testing.T) (socket string, stop func(), stopped <-chan error) {
	t.Helper()
	store, err := filestore.Open(t.Context(), filepath.Join(t.TempDir(), "journal"), func(string, error) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	c := &config.Config{}
	for i := range 50_000 {
		c.Contracts = append(c.Contracts, config.Contract{Name: fmt.Sprintf("team-%d", i), Terms: config.Terms{Backend: "main"}})
	}
	socket = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- admin.Serve(ctx, listener, &admin.Admin{Journal: journal.New(store), Config: func() *config.Config { return c }})
	}()
	t.Cleanup(cancel)
	return socket, cancel, ended
}

// A command that reads no more, because its output is in a pager, does not keep the
// driver from stopping.
func TestStopWithACommandThatDoesNotRead(t *testing.T) {
	t.Parallel()
	socket, stop, stopped := serve(t)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprint(conn, "POST /keys HTTP/1.1\r\nHost: driver\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 100)); err != nil { // the answer has begun
		t.Fatal(err)
	}
	stop()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the driver does not stop")
	}
}

// What is refused is no success for a command that expects the answer as one report.
func TestRefused(t *testing.T) {
	t.Parallel()
	socket, _, _ := serve(t)
	err := admin.Call(t.Context(), socket, admin.Revoke, admin.Request{Access: "x"}, func(admin.Line) {})
	if !fault.Is(err, fault.InvalidArgument) {
		t.Error(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://driver/revoke", strings.NewReader(`{"access":"x"}`))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusConflict {
		t.Error(resp.Status)
	}
}
