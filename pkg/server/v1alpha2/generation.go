package v1alpha2

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
)

// form is a way to call that tells the generation of the caller.
type form string

const (
	createsByName    form = "DriverCreateBucket with a name"
	createsByID      form = "DriverCreateBucket with an id"
	generatesBucket  form = "DriverGenerateBucketId"
	getsExisting     form = "DriverGetExistingBucket"
	gets             form = "DriverGetBucket"
	grantsOneMode    form = "a grant with one access mode"
	grantsThreeModes form = "a grant with access modes in three categories"
	generatesAccount form = "DriverGenerateBucketAccessId"
	grantsByID       form = "a grant with an id"
)

// generation is a state that upstream's v1alpha2 has been in.
type generation struct {
	name  config.Generation
	forms []form
}

// generations are the forms in which upstream's v1alpha2 has been, from the oldest
// to the newest. That is all in which they differ for a driver: what is answered
// follows from the form of the call. proto-docs/v1alpha2.md has the table with the
// numbers on the wire.
var generations = []generation{
	{"A", []form{createsByName, getsExisting, grantsOneMode}},
	{"B1", []form{createsByName, gets, grantsOneMode}},
	{"B2", []form{createsByName, gets, grantsThreeModes}},
	{"C1", []form{generatesBucket, createsByID, gets, grantsThreeModes}},
	{"C2", []form{generatesBucket, createsByID, gets, grantsThreeModes, generatesAccount, grantsByID}},
}

// set is a set of generations, by their place in the list.
type set uint

// only is the set of one generation; empty for [config.Auto].
func only(name config.Generation) set {
	for i, g := range generations {
		if g.name == name {
			return 1 << i
		}
	}
	return 0
}

// callers are the generations that call in a form.
func callers(f form) set {
	var out set
	for i, g := range generations {
		if slices.Contains(g.forms, f) {
			out |= 1 << i
		}
	}
	return out
}

func (s set) String() string {
	var names []string
	for i, g := range generations {
		if s&(1<<i) != 0 {
			names = append(names, string(g.name))
		}
	}
	return strings.Join(names, " or ")
}

// caller is what the calls so far tell of the sidecar.
type caller struct {
	mu   sync.Mutex
	can  set // what it can be; 0 before the first call
	told map[set]bool
}

// heard takes note of a call, and logs what is new, once: a sidecar of another
// generation may come at any time.
func (c *caller) heard(log klog.Logger, f form) {
	can := callers(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	if both := c.can & can; both != 0 {
		can = both
	}
	c.can = can
	if c.told[can] {
		return
	}
	c.told[can] = true
	log.Info("The sidecar speaks COSI v1alpha2", "generation", can.String(), "by", string(f))
}
