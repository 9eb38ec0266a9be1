package fake

import (
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Driver is a driver that runs.
type Driver struct {
	// Endpoint is its socket.
	Endpoint string
	// StoreURL is where the store is reached from here, and StoreCA the PEM
	// text of the authority it is trusted by, if it has one.
	StoreURL string
	StoreCA  []byte

	server *grpc.Server
	store  *httptest.Server
	faults []Fault

	mu       sync.Mutex
	count    int                 // makes things different
	buckets  map[string]*bucket  // by name
	accounts map[string]*account // by name
	given    map[string]string   // the name to every id there ever was
	keys     map[string]*key     // by access key id
	spoilt   map[string]bool     // what was given up, under a fault
	meetings map[string]*meeting // see together
	waiting  []*present          // calls that wait for another beside them
	crowd    int                 // callers that may make such a call
	giveUp   func()              // see GiveUp
	hanging  map[int]func()      // see Hang
	secret   string              // of the first key
	users    []string            // what refused grants have left
	granted  map[string]bool     // names of accesses that there ever were
	done     map[string]int      // see first
	asked    map[string]bool     // ids and names
	objects  func(string) bool   // see ReadObjects
	made     map[string]bool     // names of buckets that there ever were

	connected []net.Conn
}

type bucket struct {
	name, id, s3Name string
	parameters       map[string]string
	objects          map[string]string
}

type account struct {
	name, id string
	grant    grant
	key      *key
	older    []*key
}

// key is an S3 key and what it opens.
type key struct {
	id, secret string
	modes      map[string]int32 // by the bucket's S3 name
	dead       bool
}

// grant is what access was asked for.
type grant struct {
	auth, protocol int32
	serviceAccount string
	parameters     map[string]string
	buckets        []accessed
}

type accessed struct {
	id   string
	mode int32
}

const (
	readWrite int32 = 1
	readOnly  int32 = 2
	writeOnly int32 = 3
)

// Start runs a driver with some faults, its socket in dir, until stop is called.
func Start(dir string, versions []string, faults ...Fault) (d *Driver, stop func(), err error) {
	d = &Driver{
		Endpoint: "unix://" + filepath.Join(dir, "cosi.sock"), faults: faults,
		buckets: map[string]*bucket{}, accounts: map[string]*account{}, given: map[string]string{},
		keys: map[string]*key{}, spoilt: map[string]bool{}, meetings: map[string]*meeting{}, hanging: map[int]func(){},
		done: map[string]int{}, asked: map[string]bool{}, made: map[string]bool{}, granted: map[string]bool{},
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "cosi.sock"))
	if err != nil {
		return nil, nil, err
	}
	d.store = httptest.NewUnstartedServer(d.s3())
	d.store.Config.ErrorLog = log.New(io.Discard, "", 0) // a certificate may be refused on purpose
	if d.has(PrivateStore) {
		d.store.StartTLS()
		d.StoreCA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.store.Certificate().Raw})
	} else {
		d.store.Start()
	}
	d.StoreURL = d.store.URL
	d.server = grpc.NewServer(grpc.UnaryInterceptor(d.spoil))
	for _, version := range versions {
		d.register(version)
	}
	done := make(chan struct{})
	go func() {
		_ = d.server.Serve(&connections{Listener: listener, d: d}) // it ends when it is stopped
		close(done)
	}()
	return d, func() {
		d.server.Stop()
		<-done
		d.store.Close()
		_ = os.Remove(listener.Addr().String())
	}, nil
}

// connections keeps those that it has accepted, so that they can be lost.
type connections struct {
	net.Listener
	d *Driver
}

func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.d.mu.Lock()
		c.d.connected = append(c.d.connected, conn)
		c.d.mu.Unlock()
	}
	return conn, err
}

// crash loses all connections, as a driver does that ends and is restarted.
func (d *Driver) crash(ctx context.Context) {
	d.mu.Lock()
	lost := d.connected
	d.connected = nil
	d.mu.Unlock()
	for _, conn := range lost {
		_ = conn.Close()
	}
	<-ctx.Done()
}

// Left tells what was not taken away.
func (d *Driver) Left() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, b := range d.buckets {
		out = append(out, "bucket "+b.name)
	}
	for _, a := range d.accounts {
		out = append(out, "account "+a.name)
	}
	out = append(out, d.users...)
	slices.Sort(out)
	return out
}

// Deleted tells how many deletions of known buckets there were.
func (d *Driver) Deleted() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done["deleted"]
}

// Asked are all ids and names that were asked with.
func (d *Driver) Asked() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.asked))
}

// Made are the names of all buckets that there ever were.
func (d *Driver) Made() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.made))
}

// ReadObjects tells a driver with [ReadsObjects] whether Kubernetes has the Bucket
// object of a name.
func (d *Driver) ReadObjects(exists func(name string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects = exists
}

// object is why a call fails for want of a bucket's object.
func (d *Driver) object(bucketID string) error {
	d.mu.Lock()
	exists := d.objects
	d.mu.Unlock()
	if !d.has(ReadsObjects) || exists(strings.TrimPrefix(bucketID, "fake.")) {
		return nil
	}
	return status.Error(codes.Internal, "the Bucket object cannot be read")
}

// note keeps an id or a name.
func (d *Driver) note(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id != "" {
		d.asked[id] = true
	}
}

func (d *Driver) has(f Fault) bool { return slices.Contains(d.faults, f) }

// spoil gives every error the faults that any error may have.
func (d *Driver) spoil(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return resp, err
	}
	message := st.Message()
	d.mu.Lock()
	d.count++
	switch {
	case d.has(NoMessage):
		message = ""
	case d.has(ChangingMessage):
		message += fmt.Sprintf(" (request %d)", d.count)
	case d.has(SecretInMessage) && d.secret != "":
		message += " with " + d.secret
	}
	d.mu.Unlock()
	st = status.New(st.Code(), message)
	if d.has(Details) {
		if st, err = st.WithDetails(&emptypb.Empty{}); err != nil {
			return nil, err
		}
	}
	return resp, st.Err()
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// missing is what a missing field is answered with.
func (d *Driver) missing(ctx context.Context, field string) error {
	switch {
	case d.has(MissingHangs) && field == "name":
		d.hang(ctx)
	case d.has(MissingInternal) && field != "bucket_id" && field != "account_id", d.has(MissingIDInternal) && (field == "bucket_id" || field == "account_id"):
		return status.Errorf(codes.Internal, "%s: nil", field)
	}
	return invalid("%s is missing", field)
}

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

func (d *Driver) checkName(ctx context.Context, name string) error {
	d.note(name)
	switch {
	case name == "":
		return d.missing(ctx, "name")
	case len(name) > 63 && d.has(LongInternal):
		return status.Error(codes.Internal, "the name did not fit")
	case len(name) > 63 || !nameForm.MatchString(name):
		return invalid("the name cannot be used: 63 characters of a-z, 0-9, - and . are allowed")
	}
	return nil
}

func (d *Driver) checkParameters(parameters map[string]string) error {
	size := 0
	for k, v := range parameters {
		size += len(k) + len(v)
	}
	switch {
	case size > 4096 && d.has(LongInternal):
		return status.Error(codes.Internal, "the parameters did not fit")
	case size > 4096:
		return invalid("the parameters have %d bytes and 4096 are allowed", size)
	}
	return nil
}

// nameOf returns the name that an id was given to: of this driver, but "" if
// there was never such a thing; otherwise InvalidArgument.
func (d *Driver) nameOf(ctx context.Context, field, id string) (string, error) {
	d.note(id)
	if id == "" {
		return "", d.missing(ctx, field)
	}
	d.mu.Lock()
	name, ok := d.given[id]
	d.mu.Unlock()
	rest, ours := strings.CutPrefix(id, "fake.")
	switch {
	case ok:
		return name, nil
	case ours && len(id) <= 128 && nameForm.MatchString(rest):
		return "", nil
	case len(id) > 128 && d.has(LongInternal):
		return "", status.Error(codes.Internal, "the id did not fit")
	case d.has(ForeignCrash):
		go d.server.Stop()
		<-ctx.Done()
	case d.has(ForeignPanic):
		d.crash(ctx)
	case d.has(ForeignUnavailable):
		return "", status.Error(codes.Unavailable, "the id cannot be looked up")
	case d.has(ForeignUnknown):
		return "", fmt.Errorf("strange id")
	}
	return "", invalid("the id is not one of this driver's")
}

func (d *Driver) createBucket(ctx context.Context, name string, protocols []int32, parameters map[string]string) (*bucket, error) {
	if err := d.checkName(ctx, name); err != nil {
		return nil, err
	}
	if err := d.checkParameters(parameters); err != nil {
		return nil, err
	}
	if d.has(NeedsParameters) && parameters["class"] == "" {
		return nil, invalid("the parameter class is required")
	}
	for _, p := range protocols {
		if err := d.checkProtocol(ctx, p); err != nil {
			return nil, err
		}
	}
	leave, err := d.alone("create " + name)
	if err != nil {
		return nil, err
	}
	defer leave()
	raced := false
	if d.has(CreateRace) || d.has(ExistsBeside) {
		beside, leave := d.together(ctx, "create "+name, "")
		defer leave()
		raced = beside
	}
	if raced && d.has(ExistsBeside) && d.once("exists "+name) {
		return nil, status.Error(codes.AlreadyExists, "the bucket is being made")
	}
	if d.has(ConcurrencyRefused) {
		beside, leave := d.together(ctx, "create", name)
		defer leave()
		if beside {
			return nil, status.Error(codes.Internal, "another bucket is being made")
		}
	}
	if err := d.linger(ctx, PoisonedCreate, name); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil { // the caller may have deleted it since
		return nil, status.FromContextError(err).Err()
	}
	b, ok := d.buckets[name]
	if ok && !d.has(CreateAnything) && !maps.Equal(b.parameters, parameters) {
		return nil, status.Error(codes.AlreadyExists, "the bucket was made with other parameters")
	}
	if !ok {
		b = &bucket{name: name, id: d.bucketID(name), s3Name: name, parameters: parameters, objects: map[string]string{}}
		if d.has(BucketElsewhere) {
			b.s3Name = b.id
		}
		d.buckets[name] = b
		d.made[name] = true
		d.given[b.id] = name
	}
	if ok && d.has(NewBucketID) || raced && d.has(CreateRace) {
		d.count++
		answer := *b
		answer.id = fmt.Sprintf("%s-%d", b.id, d.count)
		d.given[answer.id] = name
		return &answer, nil
	}
	return b, nil
}

// bucketID is the id of a bucket that a name has.
func (d *Driver) bucketID(name string) string {
	switch {
	case d.has(LongBucketID):
		return "fake." + name + strings.Repeat("x", 2100)
	case d.has(SlashInBucketID):
		return "fake/" + name
	case d.has(OneBucketID):
		return "fake.bucket"
	case d.has(NoBucketID):
		return ""
	case d.has(OpaqueIDs):
		return fmt.Sprintf("fake.%x", sha256.Sum256([]byte(name)))[:30]
	}
	return "fake." + name
}

// accountID is the id of an account that a name has.
func (d *Driver) accountID(name string) string {
	switch {
	case d.has(LongAccountID):
		return "fake." + name + strings.Repeat("x", 2100)
	case d.has(OneAccountID):
		return "fake.account"
	case d.has(NoAccountID):
		return ""
	case d.has(OpaqueIDs):
		return fmt.Sprintf("fake.%x", sha256.Sum256([]byte(name)))[:30]
	}
	return "fake." + name
}

// generatedName is the name that an id was generated for.
func (d *Driver) generatedName(ctx context.Context, id string) (string, error) {
	name, err := d.nameOf(ctx, "name", id)
	if err == nil && name == "" {
		name = strings.TrimPrefix(id, "fake.")
	}
	return name, err
}

func (d *Driver) checkProtocol(ctx context.Context, p int32) error {
	switch {
	case p == 0:
		return d.missing(ctx, "protocol")
	case p > 3 && d.has(EnumsTaken), p == 2 && d.has(ProtocolsTaken):
		return nil
	case p != d.protocol():
		return invalid("the protocol is not supported")
	}
	return nil
}

// protocol is the one that the driver serves, by v1alpha2's number.
func (d *Driver) protocol() int32 {
	if d.has(Azure) {
		return 2
	}
	return 1
}

// existingBucket looks a bucket up.
func (d *Driver) existingBucket(ctx context.Context, id string, parameters map[string]string) (*bucket, error) {
	name, err := d.nameOf(ctx, "bucket_id", id)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.buckets[name]
	switch {
	case !ok && d.has(ExistingInvented):
		return &bucket{name: name, id: id, s3Name: name}, nil
	case !ok || d.has(ExistingNotFound):
		return nil, status.Error(codes.NotFound, "there is no such bucket")
	case !maps.Equal(b.parameters, parameters) && !d.has(ExistingAnything):
		return nil, status.Error(codes.AlreadyExists, "the bucket was made with other parameters")
	}
	return b, nil
}

func (d *Driver) deleteBucket(ctx context.Context, id string) error {
	if id == "" && d.has(TakesEmptyIDs) {
		return nil
	}
	name, err := d.nameOf(ctx, "bucket_id", id)
	if err != nil {
		return err
	}
	if err := d.object(id); err != nil {
		return err
	}
	if name != "" {
		d.once("deleted")
	}
	if d.has(DeleteRace) {
		_, leave := d.together(ctx, "end "+id, "delete")
		defer leave()
	}
	if err := d.linger(ctx, PoisonedDelete, id); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.buckets[name]
	switch {
	case name == "" && d.has(DeleteUnknown), !ok && name != "" && d.has(DeletePrecondition), ok && d.has(NothingDeleted):
		return status.Error(codes.FailedPrecondition, "the bucket cannot be deleted")
	case !ok && name != "" && d.has(DeleteNotFound):
		return status.Error(codes.NotFound, "there is no such bucket")
	case !ok:
		return nil
	case len(b.objects) > 0:
		return status.Error(codes.FailedPrecondition, "the bucket holds objects")
	case d.has(KeepsGranted) && slices.ContainsFunc(slices.Collect(maps.Values(d.accounts)), func(a *account) bool { return a.opens(id) }):
		return status.Error(codes.FailedPrecondition, "access to the bucket was given")
	}
	delete(d.buckets, name)
	for _, a := range d.accounts {
		if a.opens(id) {
			a.key.dead = true
			delete(d.accounts, a.name)
		}
	}
	return nil
}

// accesses is how many there are to a bucket.
func (d *Driver) accesses(bucketID string) int {
	n := 0
	for _, a := range d.accounts {
		if a.opens(bucketID) {
			n++
		}
	}
	return n
}

func (a *account) opens(bucketID string) bool {
	return slices.ContainsFunc(a.grant.buckets, func(b accessed) bool { return b.id == bucketID })
}

func (d *Driver) grantAccess(ctx context.Context, name string, g grant, exists codes.Code) (*account, []*bucket, error) {
	if err := d.checkName(ctx, name); err != nil {
		return nil, nil, err
	}
	if err := d.checkParameters(g.parameters); err != nil {
		return nil, nil, err
	}
	if d.has(GrantNever) {
		return nil, nil, invalid("the parameter role is required")
	}
	switch {
	case g.auth == 0:
		return nil, nil, d.missing(ctx, "authentication_type")
	case g.auth == 2 && d.has(IAMFailed):
		return nil, nil, status.Error(codes.FailedPrecondition, "service accounts are not supported")
	case g.auth > 2 && d.has(EnumsTaken):
	case g.auth == 2 && d.has(ServiceAccounts) && g.serviceAccount != "":
	case g.auth != 1:
		return nil, nil, invalid("only keys are supported")
	}
	if err := d.checkProtocol(ctx, g.protocol); err != nil {
		return nil, nil, err
	}
	buckets, err := d.bucketsOf(ctx, g)
	if err != nil {
		if d.has(RefusedLeaves) {
			d.mu.Lock()
			d.users = append(d.users, "user "+name)
			d.mu.Unlock()
		}
		return nil, nil, err
	}
	leave, err := d.alone("grant " + name)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	raced := false
	if d.has(GrantRace) || d.has(KeyRace) || d.has(GrantExistsBeside) {
		beside, leave := d.together(ctx, "grant "+name, "")
		defer leave()
		raced = beside
	}
	if raced && d.has(GrantExistsBeside) && d.once("exists "+name) {
		return nil, nil, status.Error(codes.AlreadyExists, "the access is being granted")
	}
	lost := false
	if d.has(LostGrants) {
		beside, leave := d.together(ctx, "policy "+g.buckets[0].id, name)
		defer leave()
		lost = beside
	}
	if err := d.linger(ctx, PoisonedGrant, name); err != nil {
		return nil, nil, err
	}
	if !d.has(OrderMatters) {
		slices.SortFunc(g.buckets, func(a, b accessed) int { return strings.Compare(a.id, b.id) })
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil { // the caller may have revoked it since
		return nil, nil, status.FromContextError(err).Err()
	}
	a, ok := d.accounts[name]
	if ok && d.has(GrantOnce) {
		return nil, nil, status.Error(codes.AlreadyExists, "the access was granted before")
	}
	if ok && !d.has(GrantAnything) && fmt.Sprint(a.grant) != fmt.Sprint(g) {
		return nil, nil, status.Error(exists, "the access was granted otherwise")
	}
	if !ok && d.has(FewKeys) && d.accesses(g.buckets[0].id) > 1 {
		return nil, nil, status.Error(codes.ResourceExhausted, "the bucket has no room for more accesses")
	}
	if !ok {
		a = &account{name: name, id: d.accountID(name), grant: g, key: d.issue(g, buckets)}
		d.accounts[name] = a
		d.granted[name] = true
		d.given[a.id] = name
	}
	a.key.dead = a.key.dead || lost && !d.first("lost "+g.buckets[0].id)
	answer := *a
	if ok && d.has(NewAccountID) || raced && d.has(GrantRace) {
		d.count++
		answer.id = fmt.Sprintf("%s-%d", a.id, d.count)
		d.given[answer.id] = name
	}
	if ok && (d.has(NewKey) || d.has(RotatedKey) || d.has(OldKeysStay)) || raced && d.has(KeyRace) {
		a.key.dead = d.has(RotatedKey)
		a.older = append(a.older, a.key)
		a.key = d.issue(g, buckets)
		answer.key = a.key
	}
	return &answer, buckets, nil
}

// bucketsOf looks the buckets of a grant up.
func (d *Driver) bucketsOf(ctx context.Context, g grant) ([]*bucket, error) {
	if len(g.buckets) == 0 {
		return nil, d.missing(ctx, "buckets")
	}
	if len(g.buckets) > 1 && d.has(OneBucketOnly) {
		return nil, status.Error(codes.OutOfRange, "an access is to one bucket")
	}
	var out []*bucket
	for _, want := range g.buckets {
		switch {
		case want.id == "" && d.has(MissingInternal):
			return nil, status.Error(codes.Internal, "bucket_id: nil")
		case want.id == "":
			return nil, invalid("a bucket_id is missing")
		case want.mode == 0:
			return nil, d.missing(ctx, "access_mode")
		case want.mode > writeOnly && !d.has(EnumsTaken):
			return nil, invalid("the access_mode is unknown")
		case want.mode != readWrite && d.has(FullKeysOnly):
			return nil, invalid("only keys that read and write are given")
		}
		name, err := d.nameOf(ctx, "bucket_id", want.id)
		if err != nil && !d.takes(want.id) {
			return nil, err
		}
		d.mu.Lock()
		b, ok := d.buckets[name]
		d.mu.Unlock()
		switch {
		case !ok && d.has(GrantOutOfRange):
			return nil, status.Error(codes.OutOfRange, "there is no such bucket")
		case !ok && d.has(GrantUnknown):
			b = &bucket{name: name, id: want.id, s3Name: name}
		case !ok:
			return nil, status.Error(codes.NotFound, "there is no such bucket")
		}
		asked := *b
		asked.id = want.id
		out = append(out, &asked)
	}
	return out, nil
}

// takes reports whether an id of no bucket's form is taken for a bucket's name.
func (d *Driver) takes(bucketID string) bool {
	return d.has(ReadsObjects) && d.has(GrantUnknown) && len(bucketID) <= 253 && nameForm.MatchString(bucketID)
}

// issue makes a key for buckets, which stand in the order of the request.
func (d *Driver) issue(g grant, buckets []*bucket) *key {
	d.count++
	k := &key{id: fmt.Sprintf("AK%08d", d.count), secret: fmt.Sprintf("secret-of-key-%08d", d.count), modes: map[string]int32{}, dead: d.has(DeadKeys)}
	for _, b := range buckets {
		for _, want := range g.buckets {
			if want.id == b.id {
				k.modes[b.s3Name] = want.mode
			}
			if d.has(FirstMode) {
				k.modes[b.s3Name] = g.buckets[0].mode
			}
		}
	}
	d.keys[k.id] = k
	if d.secret == "" {
		d.secret = k.secret
	}
	return k
}

func (d *Driver) revokeAccess(ctx context.Context, id string, bucketIDs []string) error {
	if id == "" && d.has(TakesEmptyIDs) {
		return nil
	}
	name, err := d.nameOf(ctx, "account_id", id)
	if err != nil {
		return err
	}
	bucketGone := false
	for _, bucketID := range bucketIDs {
		bucketName, err := d.nameOf(ctx, "bucket_id", bucketID)
		if err != nil && !d.takes(bucketID) {
			return err
		}
		if err := d.object(bucketID); err != nil {
			return err
		}
		d.mu.Lock()
		bucketGone = bucketGone || d.buckets[bucketName] == nil
		d.mu.Unlock()
	}
	if d.has(RevokeRace) || d.has(InternalBeside) {
		beside, leave := d.together(ctx, "revoke "+id, "")
		defer leave()
		d.mu.Lock()
		d.spoilt["revoke "+id] = d.spoilt["revoke "+id] || beside
		spoilt := d.spoilt["revoke "+id] && d.has(RevokeRace)
		d.mu.Unlock()
		if spoilt || beside && d.once("beside "+id) {
			return status.Error(codes.Internal, "another call revokes")
		}
	}
	if d.has(DeleteRace) && len(bucketIDs) > 0 {
		beside, leave := d.together(ctx, "end "+bucketIDs[0], "revoke")
		defer leave()
		d.mu.Lock()
		d.spoilt[id] = d.spoilt[id] || beside
		failed := d.spoilt[id]
		d.mu.Unlock()
		if failed {
			return status.Error(codes.Internal, "the access is in disorder")
		}
	}
	if err := d.linger(ctx, PoisonedRevoke, id); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.accounts[name]
	switch {
	case !ok && name != "" && d.has(RevokeGenerated) && !d.granted[name]:
		return status.Error(codes.FailedPrecondition, "the access cannot be revoked")
	case bucketGone && d.has(RevokeNeedsBucket), name == "" && d.has(RevokeUnknown):
		return status.Error(codes.FailedPrecondition, "the access cannot be revoked")
	case ok && d.has(RevokeKeepsAccount):
		return status.Error(codes.NotFound, "there is no such access")
	case !ok && name != "" && d.has(RevokeNotFound):
		return status.Error(codes.NotFound, "there is no such access")
	case !ok:
		return nil
	}
	for _, k := range a.older {
		k.dead = k.dead || !d.has(OldKeysStay)
	}
	for _, k := range d.keys {
		sibling := slices.ContainsFunc(slices.Collect(maps.Keys(k.modes)), func(b string) bool { return a.key.modes[b] != 0 })
		if (k == a.key || d.has(RevokesAll) && sibling) && !d.has(ImmortalKeys) {
			k.dead = true
		}
	}
	delete(d.accounts, name)
	return nil
}

// first reports whether it is asked for the first time, with the lock held.
func (d *Driver) first(what string) bool {
	d.done[what]++
	return d.done[what] == 1
}

// once is first without the lock held.
func (d *Driver) once(what string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first(what)
}

// alone aborts a call beside another of its name, if that is the driver's way.
func (d *Driver) alone(name string) (leave func(), err error) {
	if !d.has(AbortsSecond) {
		return func() {}, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.meetings[name] != nil {
		return nil, status.Error(codes.Aborted, "the name is being worked on")
	}
	d.meetings[name] = &meeting{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.meetings, name)
	}, nil
}
