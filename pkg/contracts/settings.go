package contracts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// The work is by claim, not by object: of all the BucketSettings that name a claim the
// oldest counts, and if there is none, the buckets whose records have settings for the
// claim go back to their class. Which buckets these are is in the journal, so nothing
// is forgotten that happens while no driver runs, and no finalizer is needed: a
// BucketSettings never waits to be deleted.

// settings is the part of Contracts that BucketSettings need.
type settings struct {
	client   *kube.Client
	informer cache.SharedIndexInformer
	synced   cache.InformerSynced
	queue    workqueue.TypedRateLimitingInterface[string] // claims, as namespace/name; "" is all of them

	mu     sync.Mutex
	claims cache.SharedIndexInformer  // of BucketClaims, once there are settings
	known  cache.InformerSynced       // whether claims are
	held   map[string][]cosi.BucketID // buckets with settings, by claim; nil if they have to be read from the journal
	due    map[string]time.Time       // when the bucket of a claim is looked at again
}

// Indexes of BucketSettings: by their claims, and by namespace and contract, as far as
// their status names a bucket.
const (
	byClaim    = "claim"
	byContract = "contract"
)

const (
	lookSettings    = 15 * time.Minute // between two looks at what a bucket has
	refusedAgain    = 5 * time.Minute  // before a service is asked again for what it has refused
	settingsTimeout = time.Minute      // for one bucket
	settingsPage    = 50               // BucketSettings of a namespace that are read at a time
	nowMost         = 20 << 10         // bytes of what a service tells of one option
)

// claimNotBound is the reason that passes without a change of the claim.
const claimNotBound = "ClaimNotBound"

func (c *Contracts) openSettings() error {
	s := &c.settings
	s.due = map[string]time.Time{}
	s.queue = newQueue(s.isNew)
	var err error
	s.client, err = kube.NewClient(c.At, "", kube.Resource{
		Version: v1alpha1.GroupVersion, Name: "bucketsettings", Kind: "BucketSettings object", Verbs: "list, watch and patch",
		Types: []runtime.Object{&v1alpha1.BucketSettings{}, &v1alpha1.BucketSettingsList{}},
	}, c.Called)
	if err != nil {
		return err
	}
	if s.informer, err = s.client.Follow(&v1alpha1.BucketSettings{}, func() runtime.Object { return &v1alpha1.BucketSettingsList{} }, ""); err != nil {
		return err
	}
	if err := s.informer.SetTransform(essential); err != nil {
		return err
	}
	if err := s.informer.AddIndexers(cache.Indexers{
		byClaim:    func(o any) ([]string, error) { return []string{claimOf(o)}, nil },
		byContract: func(o any) ([]string, error) { return []string{contractOf(o)}, nil },
	}); err != nil {
		return err
	}
	changed := func(o any) { s.queue.Add(claimOf(o)) }
	registered, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: c.settingsUpdated, DeleteFunc: changed,
	})
	if err == nil {
		s.synced = registered.HasSynced
	}
	return err
}

// settingsUpdated has the claims looked at of settings that have changed. They are two
// where the settings were re-created under their name.
func (c *Contracts) settingsUpdated(before, now any) {
	a, aOK := before.(*v1alpha1.BucketSettings)
	b, bOK := now.(*v1alpha1.BucketSettings)
	if !aOK || !bOK || a.UID != b.UID || a.Generation != b.Generation {
		c.settings.queue.Add(claimOf(before))
		c.settings.queue.Add(claimOf(now))
	}
}

// claimOf is the claim that a BucketSettings is for.
func claimOf(o any) string {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if obj, ok := o.(*v1alpha1.BucketSettings); ok {
		return obj.Namespace + "/" + obj.Spec.BucketClaimName
	}
	return ""
}

// contractOf is namespace/contract of the bucket that a BucketSettings tells of;
// namespace/ if it tells of none.
func contractOf(o any) string {
	obj, ok := o.(*v1alpha1.BucketSettings)
	if !ok {
		return ""
	}
	id, _ := cosi.ParseBucketID(obj.Status.Bucket)
	return obj.Namespace + "/" + id.Contract
}

// claimsOf are the claims in a namespace whose settings are for a contract's buckets, or
// may be.
func (s *settings) claimsOf(namespace, contract string) (claims []string) {
	for _, of := range slices.Compact([]string{contract, ""}) {
		all, _ := s.informer.GetIndexer().ByIndex(byContract, namespace+"/"+of) // an index that is there is no fault
		for _, o := range all {
			claims = append(claims, claimOf(o))
		}
	}
	return claims
}

// isNew reports whether a user waits for a claim's settings: they are gone, or not what
// was last told of.
func (s *settings) isNew(claim string) bool {
	all := s.of(claim)
	return len(all) == 0 || slices.ContainsFunc(all, func(o *v1alpha1.BucketSettings) bool { return o.Generation != o.Status.ObservedGeneration })
}

// of are the BucketSettings of a claim, the one that counts first.
func (s *settings) of(claim string) []*v1alpha1.BucketSettings {
	var out []*v1alpha1.BucketSettings
	all, _ := s.informer.GetIndexer().ByIndex(byClaim, claim)
	for _, o := range all {
		if obj, ok := o.(*v1alpha1.BucketSettings); ok && obj.DeletionTimestamp == nil {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.BucketSettings) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return out
}

// settingsAgain looks at all settings again, and at the journal's.
func (c *Contracts) settingsAgain() {
	c.settings.mu.Lock()
	c.settings.held = nil
	c.settings.mu.Unlock()
	c.settings.queue.Add("")
}

// runSettings brings buckets to their settings until ctx ends. A cluster without the
// type has none, and its contracts go on.
func (k *control) runSettings(ctx context.Context) {
	s := &k.settings
	defer s.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), s.synced) {
		return
	}
	go func() {
		<-ctx.Done()
		s.queue.ShutDown()
	}()
	s.queue.Add("")
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for serve(ctx, s.queue, k.configure) {
			}
		})
	}
	working.Wait()
}

// configure brings the bucket of a claim to its settings.
func (k *control) configure(ctx context.Context, claim string) (again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	ctx, leave, err := k.writer.EnterIdle(ctx)
	if err != nil {
		return idleAgain, nil // another process does it; or this one when it has the right again
	}
	defer leave()
	held, err := k.heldBy(ctx, claim)
	if err != nil || claim == "" {
		return 0, err
	}
	all := k.settings.of(claim)
	if len(all) == 0 {
		return 0, k.withdraw(ctx, claim, held)
	}
	if err := k.followClaims(ctx); err != nil {
		return 0, err
	}
	obj := all[0]
	for _, other := range all[1:] {
		const text = "the claim has the older BucketSettings %s; delete one of the two"
		if err := k.refuse(ctx, other, other.Status.DeepCopy(), "ClaimTaken", strings.Replace(text, "%s", obj.Name, 1)); err != nil {
			return 0, err
		}
	}
	return k.configureBy(ctx, claim, obj, held)
}

// refuse tells that settings are not accepted.
func (k *control) refuse(ctx context.Context, obj *v1alpha1.BucketSettings, status *v1alpha1.BucketSettingsStatus, reason, text string) error {
	set(obj, &status.Conditions, v1alpha1.Accepted, metav1.ConditionFalse, reason, text)
	set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, reason, text)
	return k.tellSettings(ctx, obj, status)
}

func (k *control) tellSettings(ctx context.Context, obj *v1alpha1.BucketSettings, status *v1alpha1.BucketSettingsStatus) error {
	status.ObservedGeneration = obj.Generation
	if equality.Semantic.DeepEqual(&obj.Status, status) {
		return nil
	}
	return k.told(ctx, obj, status, obj.Status.Conditions, status.Conditions)
}

// configureBy is configure with the BucketSettings that counts.
func (k *control) configureBy(ctx context.Context, claim string, obj *v1alpha1.BucketSettings, held []cosi.BucketID) (again time.Duration, err error) {
	status := obj.Status.DeepCopy()
	given := params.Given(obj.Spec)
	delete(given, "bucketClaimName")
	if err := params.CheckSettings(given); err != nil { // before the claim has a bucket
		return lookSettings, k.refuse(ctx, obj, status, "Invalid", err.Error())
	}
	id, reason, text, err := k.bucketOf(ctx, obj)
	if err != nil {
		return 0, err
	}
	if reason != "" {
		status.Bucket, status.Now = "", nil
		set(obj, &status.Conditions, v1alpha1.Accepted, metav1.ConditionUnknown, reason, text)
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, reason, text)
		set(obj, &status.Conditions, v1alpha1.InSync, metav1.ConditionUnknown, reason, text)
		again = lookSettings // or when the claim changes
		if reason == claimNotBound {
			again = idleAgain
		}
		return again, k.tellSettings(ctx, obj, status)
	}
	if err := k.withdraw(ctx, claim, slices.DeleteFunc(slices.Clone(held), func(had cosi.BucketID) bool { return had == id })); err != nil {
		return 0, err // the claim had another bucket before
	}
	if status.Bucket != id.String() {
		status.Bucket, status.Now = id.String(), nil
	}
	look, again := k.settings.isDue(claim, settled(obj, status))
	got, err := k.provisioner.Configure(ctx, id, &journal.Settings{Claim: claim, Parameters: given}, look)
	if errors.Is(err, provisioner.ErrNotAccepted) {
		reason := "NotAllowed"
		if fault.Is(err, fault.InvalidArgument) {
			reason = "Invalid"
		}
		return lookSettings, k.refuse(ctx, obj, status, reason, err.Error()+"; the bucket stays as it was")
	}
	if !fault.Is(err, fault.InvalidArgument) { // or the id is none of the driver's
		k.settings.holds(claim, id) // the journal may have them, also where they have not arrived
	}
	if got.Accepted {
		set(obj, &status.Conditions, v1alpha1.Accepted, metav1.ConditionTrue, "Accepted", "the contract allows the settings")
	} else if c := meta.FindStatusCondition(status.Conditions, v1alpha1.Accepted); c == nil || c.ObservedGeneration != obj.Generation || c.Status != metav1.ConditionTrue {
		set(obj, &status.Conditions, v1alpha1.Accepted, metav1.ConditionUnknown, string(fault.KindOf(err)), "it is not known whether the contract allows the settings: "+err.Error())
	}
	if again = k.judge(obj, status, got, err, again); again == 0 {
		return 0, errors.Join(err, k.tellSettings(ctx, obj, status))
	}
	if got.State != nil {
		k.settings.looked(claim)
	}
	return again, k.tellSettings(ctx, obj, status)
}

// judge says in a status what became of the settings. It returns when to look again; 0
// is soon, as err says.
func (k *control) judge(obj *v1alpha1.BucketSettings, status *v1alpha1.BucketSettingsStatus, got provisioner.Configured, err error, again time.Duration) time.Duration {
	kind := fault.KindOf(err)
	switch {
	case err == nil && got.State == nil: // it is as it was told
		return again
	case err == nil && len(got.State.Differing) > 0:
		status.Now = nowOf(got)
		set(obj, &status.Conditions, v1alpha1.InSync, metav1.ConditionFalse, "Changed", "the bucket has other settings ("+strings.Join(got.State.Differing, ", ")+"), which someone has changed at the service; set drift to repair in the ContractClass or the configuration, or change the BucketSettings")
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionTrue, "Configured", "the bucket got the settings")
		return lastWait
	case err == nil:
		status.Now = nowOf(got)
		set(obj, &status.Conditions, v1alpha1.InSync, metav1.ConditionTrue, "AsConfigured", strings.Join(append([]string{"the bucket is as its class and the settings say"}, remains(got)...), "; "))
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionTrue, "Configured", "the bucket has the settings")
		return lookSettings
	case kind == fault.Unavailable || kind == fault.RateLimited || kind == fault.Canceled:
		// What the bucket had it still has, as far as anyone knows.
		set(obj, &status.Conditions, v1alpha1.InSync, metav1.ConditionUnknown, string(fault.Unavailable), err.Error())
		if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.Ready); ready == nil || ready.ObservedGeneration != obj.Generation {
			set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, string(fault.Unavailable), err.Error())
		}
		return 0
	}
	set(obj, &status.Conditions, v1alpha1.InSync, metav1.ConditionFalse, string(kind), err.Error())
	set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, string(kind), err.Error())
	if kind == fault.Pending || kind == fault.NotFound {
		return waitAgain
	}
	return refusedAgain
}

// remains are what S3 cannot undo.
func remains(got provisioner.Configured) (texts []string) {
	if got.Effective.Versioning == "" && got.Effective.ObjectLock == "" && got.State.Has["versioning"] == "Suspended" {
		texts = append(texts, "versioning is suspended and the versions stay, as it cannot be turned off")
	}
	if got.Effective.ObjectLock == "" && got.State.Has["objectLock"] != "" {
		texts = append(texts, "object lock stays, without a default retention, as it cannot be turned off")
	}
	return texts
}

// nowOf is what a bucket has, as its status tells it.
func nowOf(got provisioner.Configured) *v1alpha1.BucketNow {
	has := make(map[string]string, len(got.State.Has))
	for name, text := range got.State.Has {
		has[name] = printable(text)
	}
	text, _ := json.Marshal(has) // the options have the names of the fields
	var out v1alpha1.BucketNow
	_ = json.Unmarshal(text, &out)
	out.PublicBy = got.State.PublicBy
	if got.Use.Bytes != nil || got.Use.Objects != nil {
		out.Usage = &v1alpha1.Usage{Bytes: got.Use.Bytes, Objects: got.Use.Objects}
	}
	for key, value := range got.State.Tags {
		if out.Tags == nil {
			out.Tags = map[string]string{}
		}
		out.Tags[printable(key)] = printable(value)
	}
	return &out
}

// printable is a text of a service as a terminal can show it.
func printable(text string) string {
	return clip(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text), nowMost)
}

// settled reports whether a status tells of an object as it is now.
func settled(obj *v1alpha1.BucketSettings, status *v1alpha1.BucketSettingsStatus) bool {
	return status.Now != nil && status.ObservedGeneration == obj.Generation &&
		meta.IsStatusConditionTrue(status.Conditions, v1alpha1.Accepted) && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.Ready) && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.InSync)
}

// isDue reports whether the bucket of a claim is to be looked at, and how long until it
// is. After a start those that a status tells of have their turns one after the other.
func (s *settings) isDue(claim string, settled bool) (bool, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.due[claim]
	if !ok && settled {
		turn := fnv.New32a()
		_, _ = turn.Write([]byte(claim))
		at = time.Now().Add(time.Duration(turn.Sum32()%uint32(lookSettings/time.Second)) * time.Second)
		s.due[claim] = at
	}
	left := time.Until(at)
	return !settled || left <= 0, max(left, time.Second)
}

func (s *settings) looked(claim string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due[claim] = time.Now().Add(lookSettings)
}

// holds notes that a bucket has settings for a claim.
func (s *settings) holds(claim string, id cosi.BucketID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil || slices.Contains(s.held[claim], id) {
		return
	}
	for other := range s.held { // as in the journal, a bucket has one claim's settings
		s.lets(other, id)
	}
	s.held[claim] = append(s.held[claim], id)
}

// lets notes that a bucket no longer has settings for a claim. The lock is held.
func (s *settings) lets(claim string, id cosi.BucketID) {
	s.held[claim] = slices.DeleteFunc(s.held[claim], func(had cosi.BucketID) bool { return had == id })
	if len(s.held[claim]) == 0 {
		delete(s.held, claim)
	}
}

// heldBy are the buckets that have settings for a claim. When they are read, all claims
// are looked at, those of the journal too whose settings are gone.
func (k *control) heldBy(ctx context.Context, claim string) ([]cosi.BucketID, error) {
	s := &k.settings
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		held, err := k.provisioner.Settled(ctx)
		if err != nil {
			return nil, err
		}
		s.held = held
		for claim := range held {
			s.queue.Add(claim)
		}
		for _, claim := range s.informer.GetIndexer().ListIndexFuncValues(byClaim) {
			s.queue.Add(claim)
		}
	}
	return slices.Clone(s.held[claim]), nil
}

// withdraw lets buckets go back to their class whose settings are gone. That they are is
// asked of the API server: an informer can be late.
func (k *control) withdraw(ctx context.Context, claim string, buckets []cosi.BucketID) error {
	isGone := len(k.settings.of(claim)) == 0
	if isGone && len(buckets) > 0 {
		namespace, _, _ := strings.Cut(claim, "/")
		err := transport.Pages(ctx, func(ctx context.Context, token string) (string, bool, error) {
			var there v1alpha1.BucketSettingsList
			page := metav1.ListOptions{Limit: settingsPage, Continue: token}
			if err := k.settings.client.Do(ctx, "list", &there, func(r *rest.Request) *rest.Request {
				return r.Namespace(namespace).VersionedParams(&page, metav1.ParameterCodec)
			}); err != nil {
				return "", false, err
			}
			for i := range there.Items {
				if claimOf(&there.Items[i]) == claim && there.Items[i].DeletionTimestamp == nil {
					return "", false, fault.New(fault.Unavailable, "BucketSettings of claim %s are not seen yet", claim)
				}
			}
			return there.Continue, there.Continue != "", nil
		})
		if err != nil {
			return err
		}
	}
	for _, id := range buckets {
		if err := k.withdrawOne(ctx, claim, id); err != nil {
			return err
		}
	}
	if isGone {
		k.settings.mu.Lock()
		defer k.settings.mu.Unlock()
		delete(k.settings.due, claim)
	}
	return nil
}

func (k *control) withdrawOne(ctx context.Context, claim string, id cosi.BucketID) error {
	got, err := k.provisioner.Configure(ctx, id, nil, true)
	gone := fault.Is(err, fault.NotFound)
	if err != nil && !gone {
		return fault.In(err, "the settings of bucket %s are gone, and it is not as its class says yet", id)
	}
	k.settings.mu.Lock()
	if k.settings.held != nil {
		k.settings.lets(claim, id)
	}
	k.settings.mu.Unlock()
	if gone { // the bucket, too
		return nil
	}
	klog.FromContext(ctx).Info("A bucket whose BucketSettings are gone is as its class says again", "bucket", id, "claim", claim)
	if got.State == nil {
		return nil
	}
	namespace, name, _ := strings.Cut(claim, "/")
	text := strings.Join(append([]string{"the BucketSettings are gone; the bucket is as its class says"}, remains(got)...), "; ")
	k.event(ctx, corev1.ObjectReference{APIVersion: objects.Group + "/" + k.version(), Kind: "BucketClaim", Namespace: namespace, Name: name}, corev1.EventTypeNormal, "SettingsRemoved", text)
	return nil
}

// version is that of COSI, if it is known.
func (k *control) version() string {
	k.made.mu.Lock()
	defer k.made.mu.Unlock()
	if k.made.version == nil {
		return objects.V1alpha1
	}
	return k.made.version.version
}

// beginClaims begins to read BucketClaims; the settings' lock is held.
func (k *control) beginClaims(at *kube.Client) error {
	s := &k.settings
	informer, err := at.Follow(&objects.BucketClaim{}, func() runtime.Object { return &objects.BucketClaimList{} }, "")
	if err != nil {
		return err
	}
	if err := informer.SetTransform(func(o any) (any, error) {
		if c, ok := o.(*objects.BucketClaim); ok {
			c.ObjectMeta = metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion, DeletionTimestamp: c.DeletionTimestamp}
		}
		return o, nil
	}); err != nil {
		return err
	}
	changed := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil && len(s.of(key)) > 0 {
			s.queue.Add(key)
		}
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: changed})
	if err != nil {
		return err
	}
	s.claims, s.known = informer, registered.HasSynced
	k.begin(informer)
	return nil
}

// followClaims begins to read BucketClaims, of which it keeps little.
func (k *control) followClaims(ctx context.Context) error {
	s := &k.settings
	at, err := k.made.at(ctx, k.Contracts)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.claims == nil {
		err = k.beginClaims(at.claims)
	}
	known := s.known
	s.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), known) {
		return fault.New(fault.Unavailable, "BucketClaims cannot be read yet; may the driver list and watch bucketclaims?")
	}
	return nil
}

// bucketOf is the bucket of the claim that a BucketSettings names, or why there is none.
// A Bucket says itself which claim it is for, so that no claim leads to another's.
func (k *control) bucketOf(ctx context.Context, obj *v1alpha1.BucketSettings) (id cosi.BucketID, reason, text string, err error) {
	none := func(reason, text string) (cosi.BucketID, string, string, error) {
		return cosi.BucketID{}, reason, text, nil
	}
	claim := get[*objects.BucketClaim](k.settings.claims, claimOf(obj))
	switch {
	case claim == nil:
		return none("NoSuchClaim", "there is no BucketClaim "+obj.Spec.BucketClaimName+" in this namespace; create it, or BucketSettings for another claim")
	case claim.DeletionTimestamp != nil:
		return none("ClaimDeleted", "the BucketClaim is being deleted")
	case claim.Bound() == "":
		return none(claimNotBound, "the BucketClaim has no bucket yet")
	}
	at, err := k.made.at(ctx, k.Contracts)
	if err != nil {
		return id, "", "", err
	}
	var b objects.Bucket
	err = at.buckets.Do(ctx, "get", &b, func(r *rest.Request) *rest.Request { return r.Name(claim.Bound()) })
	if fault.Is(err, fault.NotFound) {
		return none(claimNotBound, "the BucketClaim's Bucket does not exist yet")
	}
	if err != nil {
		return id, "", "", err
	}
	of := b.Claim()
	switch {
	case b.Spec.DriverName != k.Driver:
		return none("OtherDriver", "the BucketClaim's bucket belongs to the driver "+b.Spec.DriverName+"; this driver changes its own buckets only")
	case of.Namespace != claim.Namespace || of.Name != claim.Name || of.UID != "" && of.UID != claim.UID:
		return none("OtherClaim", "the Bucket of the BucketClaim is for another claim; delete the BucketClaim and re-create it")
	case b.Status.BucketID == "":
		return none(claimNotBound, "the BucketClaim's bucket is not ready yet")
	}
	if id, err = cosi.ParseBucketID(b.Status.BucketID); err != nil {
		return none("OtherDriver", "the BucketClaim's bucket is not one of this driver's ("+err.Error()+")")
	}
	return id, "", "", nil
}
