package fake

import (
	"context"
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
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	pb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
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
	if slices.Contains(versions, "v1alpha1") {
		cosiproto.RegisterIdentityServer(d.server, v1alpha1{d})
		cosiproto.RegisterProvisionerServer(d.server, v1alpha1{d})
	}
	if slices.Contains(versions, "v1alpha2") {
		pb.RegisterIdentityServer(d.server, v1alpha2Identity{d: d})
		pb.RegisterProvisionerServer(d.server, v1alpha2{d: d})
	}
	done := make(chan struct{})
	go func() {
		_ = d.server.Serve(listener) // it ends when it is stopped
		close(done)
	}()
	return d, func() {
		d.server.Stop()
		<-done
		d.store.Close()
		_ = os.Remove(listener.Addr().String())
	}, nil
}

// Left tells what nobody has taken away.
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
	slices.Sort(out)
	return out
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
	if d.has(CreateRace) {
		beside, leave := d.together(ctx, "create "+name, "")
		defer leave()
		raced = beside
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
		b = &bucket{name: name, id: "fake." + name, s3Name: name, parameters: parameters, objects: map[string]string{}}
		switch {
		case d.has(LongBucketID):
			b.id += strings.Repeat("x", 2100)
		case d.has(SlashInBucketID):
			b.id = "fake/" + name
		case d.has(OneBucketID):
			b.id = "fake.bucket"
		case d.has(NoBucketID):
			b.id = ""
		case d.has(BucketElsewhere):
			b.s3Name = b.id
		case d.has(OpaqueIDs):
			d.count++
			b.id = fmt.Sprintf("fake.%d", d.count)
		}
		d.buckets[name] = b
		d.given[b.id] = name
	}
	if ok && d.has(NewBucketID) || raced {
		d.count++
		answer := *b
		answer.id = fmt.Sprintf("%s-%d", b.id, d.count)
		d.given[answer.id] = name
		return &answer, nil
	}
	return b, nil
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
			if !d.has(KeysOutliveBuckets) {
				a.key.dead = true
			}
			delete(d.accounts, a.name)
		}
	}
	return nil
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
		return nil, nil, err
	}
	leave, err := d.alone("grant " + name)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	raced := false
	if d.has(GrantRace) || d.has(KeyRace) {
		beside, leave := d.together(ctx, "grant "+name, "")
		defer leave()
		raced = beside
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
	if ok && !d.has(GrantAnything) && fmt.Sprint(a.grant) != fmt.Sprint(g) {
		return nil, nil, status.Error(exists, "the access was granted otherwise")
	}
	if !ok {
		a = &account{name: name, id: "fake." + name, grant: g, key: d.issue(g, buckets)}
		switch {
		case d.has(LongAccountID):
			a.id += strings.Repeat("x", 2100)
		case d.has(OneAccountID):
			a.id = "fake.account"
		case d.has(NoAccountID):
			a.id = ""
		case d.has(OpaqueIDs):
			d.count++
			a.id = fmt.Sprintf("fake.%d", d.count)
		}
		d.accounts[name] = a
		d.given[a.id] = name
	}
	answer := *a
	if ok && d.has(NewAccountID) || raced && d.has(GrantRace) {
		d.count++
		answer.id = fmt.Sprintf("%s-%d", a.id, d.count)
		d.given[answer.id] = name
	}
	if ok && (d.has(NewKey) || d.has(RotatedKey)) || raced && d.has(KeyRace) {
		a.key.dead = d.has(RotatedKey)
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
		if err != nil {
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
		out = append(out, b)
	}
	return out, nil
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
		if err != nil {
			return err
		}
		d.mu.Lock()
		bucketGone = bucketGone || d.buckets[bucketName] == nil
		d.mu.Unlock()
	}
	if d.has(RevokeRace) {
		beside, leave := d.together(ctx, "revoke "+id, "")
		defer leave()
		if beside {
			return status.Error(codes.Internal, "somebody else revokes")
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
	case bucketGone && d.has(RevokeNeedsBucket), name == "" && d.has(RevokeUnknown):
		return status.Error(codes.FailedPrecondition, "the access cannot be revoked")
	case !ok && name != "" && d.has(RevokeNotFound):
		return status.Error(codes.NotFound, "there is no such access")
	case !ok:
		return nil
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
