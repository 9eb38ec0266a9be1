// Package events tells a team, in its own namespace, why a call for one of its
// claims has failed: as a Kubernetes Event on the BucketClaim or BucketAccess.
//
// The sidecars report faults at the Bucket, which has no namespace, or not at all.
// What a call names is found by its UID: COSI's controllers put the claim's at the
// end of a Bucket's name and the access's at the end of an account's, and a Bucket
// says whose it is. What has no such name is not told of.
//
// An Event is a courtesy. No call waits for one: at most so many failures wait,
// one a second is told in the long run, the same one not again within ten minutes,
// and what is too much is dropped.
package events

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

const (
	waiting  = 64               // failures that wait to be told
	known    = 1000             // failures that are remembered as told
	again    = 10 * time.Minute // until the same one is told again
	perSec   = 1                // failures told, in the long run
	burst    = 10               // and at once
	accesses = 500              // of one namespace among which one is looked for
	longest  = 1024             // characters of an Event's message, as the API server has it
)

// Failure is a call that has failed.
type Failure struct {
	// Version is COSI's: "v1alpha1" or "v1alpha2".
	Version string
	// Reason is a word for what failed, as Events have it: "GrantFailed".
	Reason string
	// Bucket and Access are what the call was about: names or ids, "" for none.
	Bucket, Access string
	// Message has the cause and the cure.
	Message string
}

// Teller tells of failures.
type Teller struct {
	driver  string
	objects map[string]versioned
	events  *kube.Client
	queue   chan Failure
	limit   *rate.Limiter

	mu   sync.Mutex
	told map[Failure]time.Time
}

// versioned reads COSI's objects in one version.
type versioned struct{ buckets, accesses *kube.Client }

// New returns the Teller of a driver; no call is made. called is told of every call
// at the API server.
func New(at *rest.Config, driver string, called func(call string, err error)) (*Teller, error) {
	t := &Teller{
		driver: driver, objects: map[string]versioned{}, queue: make(chan Failure, waiting),
		limit: rate.NewLimiter(perSec, burst), told: map[Failure]time.Time{},
	}
	var err error
	client := func(r kube.Resource) *kube.Client {
		c, failed := kube.NewClient(at, "", r, called)
		if failed != nil {
			err = failed
		}
		return c
	}
	for _, version := range []string{"v1alpha1", "v1alpha2"} {
		group := schema.GroupVersion{Group: objects.Group, Version: version}
		t.objects[version] = versioned{
			buckets:  client(kube.Resource{Version: group, Name: "buckets", Kind: "Bucket", Verbs: "get", Types: []runtime.Object{&objects.Bucket{}}}),
			accesses: client(kube.Resource{Version: group, Name: "bucketaccesses", Kind: "BucketAccess", Verbs: "list", Types: []runtime.Object{&objects.BucketAccessList{}}}),
		}
	}
	t.events = client(kube.Resource{Version: corev1.SchemeGroupVersion, Name: "events", Kind: "Event", Verbs: "create", Types: []runtime.Object{&corev1.Event{}}})
	return t, err
}

// uid is how the names end that COSI's controllers make.
var uid = regexp.MustCompile(`^[a-z0-9.-]*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Tell takes a failure in, to be told when there is time. It does not wait.
func (t *Teller) Tell(f Failure) {
	f.Bucket, f.Access, f.Message = last(f.Bucket), last(f.Access), clip(f.Message)
	if _, known := t.objects[f.Version]; !known || !uid.MatchString(f.Bucket) || f.Access != "" && !uid.MatchString(f.Access) || !t.fresh(f) {
		return
	}
	select {
	case t.queue <- f:
	default: // it is told when it happens again
		t.mu.Lock()
		delete(t.told, f)
		t.mu.Unlock()
	}
}

// last is the part of an id that the request named the thing by.
func last(id string) string {
	if b, err := cosi.ParseBucketID(id); err == nil { // an account's id has the same form
		return b.Bucket
	}
	return id
}

// fresh reports whether a failure was not told a while ago, and remembers it.
func (t *Teller) fresh(f Failure) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if at, ok := t.told[f]; ok && now.Sub(at) < again {
		return false
	}
	if len(t.told) >= known {
		for f, at := range t.told {
			if now.Sub(at) >= again {
				delete(t.told, f)
			}
		}
	}
	if len(t.told) >= known {
		return false
	}
	t.told[f] = now
	return true
}

// Run tells what is taken in until ctx ends. Why it cannot is logged once.
func (t *Teller) Run(ctx context.Context) {
	said := ""
	for {
		var f Failure
		select {
		case <-ctx.Done():
			return
		case f = <-t.queue:
		}
		if t.limit.Wait(ctx) != nil {
			return
		}
		err := t.tell(ctx, f)
		switch fault.KindOf(err) {
		case "", fault.NotFound, fault.FailedPrecondition, fault.Canceled: // what is gone, or going with its namespace, needs no Event
			continue
		}
		if err.Error() != said {
			said = err.Error()
			klog.FromContext(ctx).Info("A failure is not told to its team", "reason", err)
		}
	}
}

// tell finds what a failure is about, and makes an Event on it.
func (t *Teller) tell(ctx context.Context, f Failure) error {
	at := t.objects[f.Version]
	var bucket objects.Bucket
	err := at.buckets.Do(ctx, "get", &bucket, func(r *rest.Request) *rest.Request { return r.Name(f.Bucket) })
	if err != nil {
		return err
	}
	of := bucket.Claim()
	if of.Namespace == "" || of.UID == "" || !strings.HasSuffix(f.Bucket, string(of.UID)) {
		return nil // no claim's, or the Bucket was written by hand
	}
	of.APIVersion, of.Kind = "objectstorage.k8s.io/"+f.Version, "BucketClaim"
	if f.Access != "" { // an access is in the namespace of its claim
		of.Kind, of.Name = "BucketAccess", ""
		looked := 0
		err := transport.Pages(ctx, func(ctx context.Context, next string) (string, bool, error) {
			var list objects.BucketAccessList
			err := at.accesses.Do(ctx, "list", &list, func(r *rest.Request) *rest.Request {
				return r.Namespace(of.Namespace).VersionedParams(&metav1.ListOptions{Limit: objects.Page, Continue: next}, metav1.ParameterCodec)
			})
			for _, a := range list.Items {
				if a.UID != "" && strings.HasSuffix(f.Access, string(a.UID)) {
					of.Name, of.UID = a.Name, a.UID
				}
			}
			looked += len(list.Items)
			return list.Continue, list.Continue != "" && of.Name == "" && looked < accesses, err
		})
		if err != nil || of.Name == "" {
			return err
		}
	}
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: of.Namespace, GenerateName: "contract-cosi-driver-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: of.APIVersion, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, UID: of.UID},
		Type:           corev1.EventTypeWarning, Reason: f.Reason, Message: f.Message,
		Source: corev1.EventSource{Component: t.driver}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	return t.events.Do(ctx, "create", nil, func(r *rest.Request) *rest.Request { return r.Namespace(of.Namespace).Body(event) })
}

// Claim returns the BucketClaim that a bucket is for, whichever of COSI's versions has
// it.
func (t *Teller) Claim(ctx context.Context, bucket string) (namespace, name string, err error) {
	for _, version := range slices.Sorted(maps.Keys(t.objects)) {
		var b objects.Bucket
		if err = t.objects[version].buckets.Do(ctx, "get", &b, func(r *rest.Request) *rest.Request { return r.Name(bucket) }); err == nil {
			return b.Claim().Namespace, b.Claim().Name, nil
		}
		if !fault.Is(err, fault.NotFound) {
			break
		}
	}
	return "", "", err
}

// clip shortens a message to what an Event takes.
func clip(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest-len("…")], "") + "…"
}
