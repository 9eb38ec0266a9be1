package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// sent is how a line of an answer goes over the socket. The last one has End, or
// the error that the command was refused with.
type sent struct {
	Line
	End   bool       `json:"end,omitempty"`
	Kind  fault.Kind `json:"kind,omitempty"`
	Error string     `json:"error,omitempty"`
}

// maxRequest bounds a request; each is a few short fields.
const maxRequest = 64 << 10

// maxClients is how many connections there can be at once.
const maxClients = 16

// lastWords is how long a command has to take the end of its answer when the driver
// stops.
const lastWords = time.Second

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
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, encoder := http.NewResponseController(w), json.NewEncoder(w)
	// A command whose output is held up may wait, but not longer than the driver lives.
	defer context.AfterFunc(r.Context(), func() { _ = out.SetWriteDeadline(time.Now().Add(lastWords)) })()
	told := false
	err := decoder.Decode(&request)
	if err != nil {
		err = fault.New(fault.InvalidArgument, "the request cannot be understood; use the command of the driver's own version")
	} else {
		err = a.Do(r.Context(), command, request, func(l Line) {
			told = true
			_ = encoder.Encode(sent{Line: l}) // if the command has gone, ctx has ended
			if l.Of > 0 {
				_ = out.Flush()
			}
		})
	}
	last := sent{End: err == nil}
	if err != nil {
		last.Kind, last.Error = fault.KindOf(err), err.Error()
		if !told { // a command from before answers had lines knows by this that it is refused
			w.WriteHeader(http.StatusConflict)
		}
	}
	klog.FromContext(r.Context()).Info("Answered a command", "command", command, "contract", request.Contract, "fix", request.Fix, "access", request.Access, "lift", request.Lift, "err", err)
	_ = encoder.Encode(last)
}

// ErrNobody is the error of Call if no driver listens at the socket.
var ErrNobody = errors.New("no driver listens there")

// Call is [Admin.Do] of the driver that listens at a socket.
func Call(ctx context.Context, socket string, c Command, r Request, tell func(Line)) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://driver/"+string(c), bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return ErrNobody
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the driver's socket %s: permission denied; run the command as the driver's user", socket)
	}
	if err != nil {
		return fmt.Errorf("the driver at %s does not answer: %w", socket, errors.Unwrap(err))
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusConflict {
		return fmt.Errorf("what listens at %s is no driver of this version (HTTP %d)", socket, resp.StatusCode)
	}
	decoder := json.NewDecoder(resp.Body)
	decoder.DisallowUnknownFields()
	for {
		var l sent
		switch err := decoder.Decode(&l); {
		case err != nil:
			return fmt.Errorf("the driver at %s has not answered to the end, or has another version than this command: %w", socket, err)
		case l.Error != "":
			return fault.New(l.Kind, "%s", l.Error)
		case l.End:
			return nil
		}
		tell(l.Line)
	}
}
