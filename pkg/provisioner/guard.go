package provisioner

import (
	"context"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// A contract's guard is asked when something new is to be made under it. What
// was made before stays, and its repeats are answered, however the guard has
// changed since: to tighten it is no reason to report a running application
// broken.

// bucketClass is a BucketClass under a contract.
type bucketClass struct {
	// given are its parameters, asked what they say, and applied what they mean
	// with the contract's defaults under them.
	given          map[string]string
	asked, applied params.Bucket
}

// classUnder reads a BucketClass. A class that only the defaults make wrong is
// the platform's fault and the class's, and can be put right at either.
func classUnder(terms config.Terms, given map[string]string) (bucketClass, error) {
	asked, err := params.ParseBucket(given)
	if err != nil {
		return bucketClass{given: given, asked: asked}, err
	}
	applied, err := params.ParseBucket(params.BucketClass.Under(terms.Defaults.BucketClass, given))
	if err != nil {
		err = fault.Wrap(fault.FailedPrecondition, err, "with the defaults of contract %s: %s", terms.Listed, err)
	}
	return bucketClass{given: given, asked: asked, applied: applied}, err
}

// effectiveRegion is where a bucket of a class with this region is made; "" is
// the contract's default or the service's. It is asked for before the contract is
// signed, and only if the guard has a say in it.
func (p *Provisioner) effectiveRegion(ctx context.Context, id cosi.ContractID, terms config.Terms, region string) (string, error) {
	if region != "" || len(terms.Guard.Regions) == 0 {
		return region, nil
	}
	endpoints, ok := p.opened(id)
	switch {
	case ok:
	case terms.Region != "":
		return terms.Region, nil
	default:
		var err error
		if endpoints, err = p.Backends[id.Backend].Provider.Regions(ctx); err != nil {
			return "", fault.In(err, "contract %s", id)
		}
	}
	if len(endpoints) == 0 {
		return "", fault.New(fault.Unavailable, "contract %s has no S3 endpoint yet", id)
	}
	return endpoints[0].Region, nil
}

// guardBucket reports why a contract takes no new bucket of a class in a region;
// see [params.Guard.Bucket].
func (p *Provisioner) guardBucket(ctx context.Context, id cosi.ContractID, terms config.Terms, class bucketClass, region string) error {
	broken := terms.Guard.Bucket(class.given, class.applied, region)
	if most := terms.Guard.MaxBuckets; most != nil {
		have, _, err := p.Journal.Usage(ctx, id)
		if err != nil {
			return err
		}
		if int64(have) >= *most {
			return fault.New(fault.LimitExceeded, "contract %s: guard.maxBuckets: it has %d buckets, of at most %d; delete one, or ask the platform's operator", terms.Listed, have, *most)
		}
	}
	return refusal(terms, broken)
}

// guardKey reports why a contract gives no new key.
func (p *Provisioner) guardKey(ctx context.Context, id cosi.ContractID, terms config.Terms, broken []string) error {
	if most := terms.Guard.MaxKeys; most != nil {
		_, have, err := p.Journal.Usage(ctx, id)
		if err != nil {
			return err
		}
		if int64(have) >= *most {
			return fault.New(fault.LimitExceeded, "contract %s: guard.maxKeys: it has %d keys, of at most %d; delete a BucketAccess, or ask the platform's operator", terms.Listed, have, *most)
		}
	}
	return refusal(terms, broken)
}

// refusal names the rules that a class breaks. The configuration may change, so
// the call may succeed later.
func refusal(terms config.Terms, broken []string) error {
	if len(broken) == 0 {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "contract %s does not allow it: %s", terms.Listed, strings.Join(broken, "; "))
}

// room is the lock under which something is counted and then added. It comes
// after all other locks.
func room(kind string, id cosi.ContractID, most *int64) []request {
	if most == nil {
		return nil
	}
	return []request{exclusive("room for "+kind+" of contract", id)}
}
