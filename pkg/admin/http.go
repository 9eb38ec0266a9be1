package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// problem is the answer to a command that was refused.
type problem struct {
	Kind  fault.Kind `json:"kind"`
	Error string     `json:"error"`
}

// maxRequest bounds a request; each is a few short fields.
const maxRequest = 64 << 10

// maxClients is how many connections there can be at once.
const maxClients = 16

// Serve answers commands at a listener until ctx ends, one POST /<command> with
// a Request each, and returns when none is under way. Anyone who can connect can do
// all of it, so the listener is the driver's own user's.
func Serve(ctx context.Context, listener net.Listener, a *Admin) error {
	s := &http.Server{
		ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			a.answer(w, r)
		}),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- s.Shutdown(context.WithoutCancel(ctx)) // what is under way ends with ctx
	}()
	if err := s.Serve(netutil.LimitListener(listener, maxClients)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

func (a *Admin) answer(w http.ResponseWriter, r *http.Request) {
	var request Request
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	decoder.DisallowUnknownFields()
	command := Command(r.URL.Path[1:])
	status, answer := http.StatusOK, json.RawMessage(nil)
	err := decoder.Decode(&request)
	if err != nil {
		err = fault.New(fault.InvalidArgument, "the request cannot be understood; use the command of the driver's own version")
	} else {
		answer, err = a.Do(r.Context(), command, request)
	}
	if err != nil {
		status = http.StatusConflict
		answer, _ = json.Marshal(problem{fault.KindOf(err), err.Error()})
	}
	klog.FromContext(r.Context()).Info("Answered a command", "command", command, "contract", request.Contract, "fix", request.Fix, "access", request.Access, "lift", request.Lift, "err", err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// ErrNobody is the error of Call if no driver listens at the socket.
var ErrNobody = errors.New("no driver listens there")

// Call asks the driver that listens at a socket.
func Call(ctx context.Context, socket string, c Command, r Request) (json.RawMessage, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://driver/"+string(c), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNobody
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the driver's socket %s: permission denied; run the command as the driver's user", socket)
	}
	if err != nil {
		return nil, fmt.Errorf("the driver at %s does not answer: %w", socket, errors.Unwrap(err))
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the driver at %s does not answer: %w", socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		var p problem
		if json.Unmarshal(answer, &p) != nil || p.Error == "" {
			return nil, fmt.Errorf("what listens at %s is no driver of this version (HTTP %d)", socket, resp.StatusCode)
		}
		return nil, fault.New(p.Kind, "%s", p.Error)
	}
	return answer, nil
}
