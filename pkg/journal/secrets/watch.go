package secrets

import (
	"context"
	"errors"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
)

// follow keeps the cache up to date until ctx ends: it lists once, and then
// watches, from where the last watch or list ended. It lists again only if the
// server has forgotten what came since.
func (s *Store) follow(ctx context.Context) {
	listed, pause := false, firstPause
	for ctx.Err() == nil {
		begun := time.Now()
		err := error(nil)
		if !listed {
			err = s.list(ctx)
			listed = err == nil
		}
		if err == nil {
			err = s.watch(ctx)
		}
		if errors.Is(err, kube.ErrGone) {
			listed, err = false, nil
		}
		if err == nil || time.Since(begun) > time.Minute {
			pause = firstPause
		}
		if err != nil {
			s.following(ctx, err)
		}
		sleep(ctx, pause) // also after a watch that ended well, lest they follow on each other's heels
		if err != nil {
			pause = min(2*pause, slowest)
		}
	}
}

// watch takes the events that follow on what the cache has seen.
func (s *Store) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchLength+time.Minute) // should the server not keep to it
	defer cancel()
	w, err := s.client.watch(ctx, s.selector(), strconv.FormatUint(s.cache.position(), 10), watchLength)
	if err != nil {
		return err
	}
	defer w.Stop()
	s.following(ctx, nil)
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return s.client.Classify("watch", apierrors.FromObject(event.Object))
		}
		secret, ok := event.Object.(*corev1.Secret)
		if !ok {
			return fault.New(fault.Unavailable, "the Kubernetes API server sent something into the journal's watch that is no Secret")
		}
		r, err := recordOf(s.Owner, secret)
		if err != nil {
			return err
		}
		s.cache.event(event.Type, r)
	}
	return nil
}

// following notes whether there is a watch, and logs what changes about that.
func (s *Store) following(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil && err != nil: // it was stopped
	case err == nil && s.lost != nil:
		s.lost = nil
		klog.FromContext(ctx).Info("Following the journal", "namespace", s.Namespace)
	case err != nil && s.lost == nil:
		s.lost, s.since = err, time.Now()
		klog.FromContext(ctx).Info("The journal's watch is broken; until it is back, what other drivers write is seen late", "namespace", s.Namespace, "reason", err)
	case err != nil:
		s.lost = err
	}
}
