package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// A driver that must not read applications' Secrets has another process write them,
// which runs beside it under an account of its own. The two share a socket that no one
// else can reach, and the driver asks: it says which key, and hears whether it was
// written, but nothing of what a Secret holds. What may be written is decided by the
// process that does it, as it is in one process.

// asked is a delivery on its way over the socket. Its Key has the secrets, which a
// Delivery's own does not tell.
type asked struct {
	provisioner.Delivery
	Key      key
	CA       []byte
	Withdraw bool
}

type key struct{ AccessKeyID, SecretAccessKey, SessionToken string }

// answered is its outcome.
type answered struct {
	Written bool       `json:"written,omitempty"`
	Kind    fault.Kind `json:"kind,omitempty"`
	Error   string     `json:"error,omitempty"`
}

const (
	maxAsked    = 1 << 20 // the longest request or answer
	maxAskers   = 64      // connections at once
	serveWithin = time.Minute
)

// Serve writes the keys that a driver asks for at a listener, until ctx ends. Anyone who
// can connect can have a key written into the Secret of a BucketAccess.
func Serve(ctx context.Context, listener net.Listener, writes *Secrets) error {
	s := &http.Server{
		ReadTimeout: 10 * time.Second, WriteTimeout: serveWithin, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		Handler:     http.HandlerFunc(writes.answer),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- s.Shutdown(context.WithoutCancel(ctx)) // what is under way ends with ctx
	}()
	if err := s.Serve(netutil.LimitListener(listener, maxAskers)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

func (s *Secrets) answer(w http.ResponseWriter, r *http.Request) {
	var in asked
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAsked))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	in.Delivery.Key = secret.KeyPair{AccessKeyID: in.Key.AccessKeyID, SecretAccessKey: secret.New(in.Key.SecretAccessKey), SessionToken: secret.New(in.Key.SessionToken)}
	ctx, cancel := context.WithTimeout(r.Context(), serveWithin)
	defer cancel()
	var out answered
	var err error
	if in.Withdraw {
		err = s.Withdraw(ctx, in.Access, in.Formats)
	} else {
		out.Written, err = s.deliver(ctx, in.Delivery, in.CA)
	}
	if err != nil {
		out.Kind, out.Error = fault.KindOf(err), err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // if the driver has gone, it asks again
}

// remote asks the process at a socket.
type remote struct {
	socket string
	called func(call string, err error)
	http   *http.Client
}

func newRemote(socket string, called func(string, error)) *remote {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &remote{socket, called, &http.Client{Transport: &http.Transport{DialContext: dial, IdleConnTimeout: 30 * time.Second}, Timeout: serveWithin}}
}

func (r *remote) ask(ctx context.Context, a asked) (written bool, err error) {
	defer func() { r.called("deliver", err) }()
	if err := transport.May(ctx, transport.AttemptTimeout); err != nil {
		return false, err
	}
	pair := a.Delivery.Key
	a.Key = key{pair.AccessKeyID, pair.SecretAccessKey.Reveal(), pair.SessionToken.Reveal()}
	body, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://deliverer/", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return false, fault.Wrap(fault.Unavailable, err, "applicationSecrets.socket: the command deliver does not answer at %s; check that it runs", r.socket)
	}
	defer func() { _ = resp.Body.Close() }()
	var out answered
	if err = json.NewDecoder(io.LimitReader(resp.Body, maxAsked)).Decode(&out); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	switch {
	case err != nil:
		return false, fault.Wrap(fault.Unavailable, err, "applicationSecrets.socket: what answers at %s is no deliver of the driver's version", r.socket)
	case out.Error != "":
		return out.Written, fault.New(out.Kind, "%s", out.Error)
	}
	return out.Written, nil
}
