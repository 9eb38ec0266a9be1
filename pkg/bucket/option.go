package bucket

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// option is one thing a class can say of a bucket. What is wanted and what is
// there are texts in one notation, so that they can be compared.
type option struct {
	// name is the parameter's, or that of the family.
	name string
	// class is what it is wanted by.
	class *params.Bucket
	// want is what the class says; "" if it says nothing.
	want string
	// none is what read returns of a bucket whose option was never set.
	none string
	// read returns what the bucket has.
	read func(context.Context) (string, error)
	// write brings the bucket to the class.
	write func(context.Context) error
	// remove takes the option from a bucket that has it.
	remove func(context.Context) error
}

func (o option) differs(ctx context.Context) (bool, error) {
	if o.want == "" {
		return false, nil
	}
	have, err := o.read(ctx)
	return have != o.want, err
}

// settings are all options but the tags, which are read before anything else.
// They are in the order in which they are written: who owns objects and what is
// blocked decide whether an ACL or a policy is taken, and a lock needs versions.
func (e *Engine) settings(name string, spec params.Bucket) []option {
	options := []option{
		e.ownership(name, spec), e.publicAccess(name, spec), e.acl(name, spec), e.policy(name, spec),
		e.versioning(name, spec), e.objectLock(name, spec), e.lifecycle(name, spec), e.cors(name, spec),
		e.encryption(name, spec), e.website(name, spec), e.requestPayer(name, spec), e.quota(name, spec),
	}
	for i := range options {
		options[i].class = &spec
	}
	return options
}

// said is the option with the parameters by which its class asks for it.
func (o option) said() string {
	if o.class == nil {
		return o.name
	}
	by := o.class.Saying(o.name)
	if slices.Equal(by, []string{o.name}) {
		return o.name
	}
	return o.name + " (" + strings.Join(by, ", ") + ")"
}

// Options names all that [Engine.Examine] can find.
func Options() []string {
	e := &Engine{}
	names := []string{"tags"}
	for _, o := range append(e.settings("", params.Bucket{}), e.notPublicACL("", params.Bucket{}), e.notPublicPolicy("", params.Bucket{})) {
		names = append(names, o.name)
	}
	return names
}

// writeAll configures a fresh bucket, in which there is nothing to compare.
func (e *Engine) writeAll(ctx context.Context, options []option) error {
	for _, o := range options {
		if err := e.write(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// writeDiffering writes the options that differ and returns their names.
func (e *Engine) writeDiffering(ctx context.Context, options []option) (written []string, err error) {
	for _, o := range options {
		differs, err := o.differs(ctx)
		if fault.Is(err, fault.Unsupported) {
			return written, lacks(err, o.said())
		}
		if err != nil {
			return written, err
		}
		if !differs {
			continue
		}
		if err := e.write(ctx, o); err != nil {
			return written, err
		}
		written = append(written, o.name)
	}
	return written, nil
}

// write writes an option that is wanted. The first time at a service it is read
// back: some answer that all is well to a request that they do not know.
func (e *Engine) write(ctx context.Context, o option) error {
	if o.want == "" {
		return nil
	}
	has, known := e.features.has(e.endpoint.URL, o.name)
	err := o.write(ctx)
	missing := fault.Is(err, fault.Unsupported)
	if fault.Is(err, fault.InvalidArgument) && !(has && known) { // or it took the request for another
		have, readErr := o.read(ctx)
		missing = readErr == nil && have == blank
	}
	if missing {
		e.features.learn(e.endpoint.URL, o.name, false)
		return lacks(err, o.said())
	}
	if err != nil || has && known {
		return err
	}
	for wait := settleFirst; ; wait *= 2 {
		have, err := o.read(ctx)
		switch {
		case fault.Is(err, fault.Unsupported) || err == nil && have == blank:
			e.features.learn(e.endpoint.URL, o.name, false)
			return lacks(err, o.said())
		case err != nil:
			return err
		case have != o.none || o.want == o.none:
			e.features.learn(e.endpoint.URL, o.name, true)
			return nil
		case wait > settleMost: // not visible yet is not missing
			return fault.New(fault.Pending, "the storage has taken %s and does not show it yet; the call is retried until it does: if it never does, leave it out of the class, or of the settings", o.said())
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fault.Wrap(fault.KindOf(ctx.Err()), ctx.Err(), "%s was written and does not show yet", o.name)
		}
	}
}

// blank is what is read where the service answers the question for an option
// with something else: it does not know the option and takes the question for
// another, as Ceph does. S3 itself answers with a document or with one of the
// codes below.
const blank = "(no answer)"

// A setting that does not show yet is looked for again after ever longer waits,
// twelve seconds in all.
const (
	settleFirst = 50 * time.Millisecond
	settleMost  = 6 * time.Second
)

// probe reports, as Unsupported, what of a class the service does not have. Of
// what is not known yet, another bucket of the contract is asked. If there is
// none, the new one finds it out, and the caller takes it back.
func (e *Engine) probe(ctx context.Context, spec params.Bucket, settings []option) error {
	var missing []string
	var open []int // the options of which it is not known
	if spec.Placement != "" && !e.placements {
		missing = append(missing, "placement")
	}
	for i, o := range settings {
		if o.want == "" {
			continue
		}
		switch has, known := e.features.has(e.endpoint.URL, o.name); {
		case !known:
			open = append(open, i)
		case !has:
			missing = append(missing, o.said())
		}
	}
	if len(open) > 0 && len(missing) == 0 {
		buckets, err := e.someBuckets(ctx)
		if err != nil {
			return err
		}
		for _, bucket := range buckets {
			settings := e.settings(bucket, spec)
			open = slices.DeleteFunc(open, func(i int) bool {
				have, readErr := settings[i].read(ctx)
				switch kind := fault.KindOf(readErr); {
				case kind == fault.NotFound: // the bucket is just being deleted
					return false
				case kind == fault.Unavailable || kind == fault.RateLimited || kind == fault.Canceled:
					err = readErr
				case kind == fault.Unsupported || have == blank:
					e.features.learn(e.endpoint.URL, settings[i].name, false)
					missing = append(missing, settings[i].said())
				}
				return true
			})
			if err != nil {
				return err
			}
		}
	}
	if len(missing) > 0 {
		return lacks(nil, missing...)
	}
	return nil
}

// someBuckets are a few of the contract's buckets.
func (e *Engine) someBuckets(ctx context.Context) ([]string, error) {
	const few = 5
	list, err := e.s3.ListBuckets(ctx, &s3.ListBucketsInput{MaxBuckets: aws.Int32(few)})
	if err = classify(err, "ListBuckets"); fault.Is(err, fault.PermissionDenied) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var names []string
	for _, b := range list.Buckets[:min(few, len(list.Buckets))] {
		names = append(names, aws.ToString(b.Name))
	}
	return names, nil
}

func lacks(cause error, options ...string) error {
	list := strings.Join(options, ", ")
	return fault.Wrap(fault.Unsupported, cause, "the storage has no %s; leave it out of the class, or of the settings", list)
}

// Features is what a service has been found to have or to lack. A lack is looked
// at again after a while, as services are upgraded. The zero value knows nothing.
type Features struct {
	mu    sync.Mutex
	found map[feature]finding
}

type feature struct{ endpoint, option string }

type finding struct {
	has bool
	at  time.Time
}

const lackHolds = 10 * time.Minute

func (f *Features) has(endpoint, option string) (has, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, known := f.found[feature{endpoint, option}]
	return found.has, known && (found.has || time.Since(found.at) < lackHolds)
}

func (f *Features) learn(endpoint, option string, has bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.found == nil {
		f.found = map[feature]finding{}
	}
	f.found[feature{endpoint, option}] = finding{has, time.Now()}
}

// absent are S3's codes for an option that a bucket does not have.
var absent = map[string]bool{
	"NoSuchTagSet":                                   true,
	"NoSuchBucketPolicy":                             true,
	"NoSuchLifecycleConfiguration":                   true,
	"NoSuchCORSConfiguration":                        true,
	"NoSuchWebsiteConfiguration":                     true,
	"NoSuchPublicAccessBlockConfiguration":           true,
	"OwnershipControlsNotFoundError":                 true,
	"ObjectLockConfigurationNotFoundError":           true,
	"ServerSideEncryptionConfigurationNotFoundError": true,
}

// has sorts the answer to a read: found is false if the bucket does not have
// the option.
func has(err error, operation string) (found bool, _ error) {
	if absent[signed.Code(err)] {
		return false, nil
	}
	return err == nil, classify(err, operation)
}

// removed is the outcome of a removal: what is not there is gone.
func removed(err error, operation string) error {
	_, err = has(err, operation)
	return err
}
