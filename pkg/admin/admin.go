// Package admin answers what a platform engineer asks of a driver: which
// contracts, buckets and keys there are and how they are, what is on one side
// only, the rotation of keys, and the revocation of one that has leaked.
//
// It works on the journal and the services through the same use cases as the
// calls of a sidecar. A journal in a file belongs to one process, so the driver
// that runs answers on a socket of its own ([Serve], [Call]); a driver that does
// not run, or whose journal is in a cluster, need not be asked: the command does
// it itself. Either way the answer is the same JSON. No answer holds a secret:
// none of the types here has room for one.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
)

// Admin answers.
type Admin struct {
	// Provisioner has the use cases.
	Provisioner *provisioner.Provisioner
	// Journal has the records.
	Journal *journal.Journal
	// Config is the configuration as it is now.
	Config func() *config.Config
}

// Command is what can be asked.
type Command string

// The commands.
const (
	Contracts Command = "contracts"
	Buckets   Command = "buckets"
	Keys      Command = "keys"
	Audit     Command = "audit"
	Rotate    Command = "rotate"
	Revoke    Command = "revoke"
)

// Request says what a command is about.
type Request struct {
	// Contract limits it to one contract, by its name or id; "" is all.
	Contract string `json:"contract,omitempty"`
	// Fix lets audit remove orphaned keys and principals.
	Fix bool `json:"fix,omitempty"`
	// Grace is, for audit, how old an orphan has to be, and, for rotate, how long
	// an old key stays valid after the new one was delivered.
	Grace time.Duration `json:"grace,omitempty"`
	// Access is the id of the access whose key is rotated or revoked.
	Access string `json:"access,omitempty"`
	// Delivered says that the access's Secret has the new key by now, instead of
	// rotating it.
	Delivered bool `json:"delivered,omitempty"`
	// Lift ends a revocation, so that the access can be granted again.
	Lift bool `json:"lift,omitempty"`
	// OlderThan rotates every key of at least this age.
	OlderThan time.Duration `json:"olderThan,omitempty"`
	// IssuedBefore replaces every key of the contract that was issued before, and waits
	// until none of them is valid.
	IssuedBefore time.Time `json:"issuedBefore,omitzero"`
}

// Line is a part of an answer, which is told as it is found.
type Line struct {
	// Item is one of what was asked for, in JSON; nil if the line is about something else.
	Item json.RawMessage `json:"item,omitempty"`
	// Faults are what could not be done or looked at; the items are then not all
	// there is.
	Faults []string `json:"faults,omitempty"`
	// Done is how many contracts were looked at, or keys replaced, of so many; 0 of 0
	// tells nothing.
	Done int `json:"done,omitempty"`
	Of   int `json:"of,omitempty"`
}

// Report is a whole answer.
type Report[T any] struct {
	Items  []T      `json:"items"`
	Faults []string `json:"faults,omitempty"`
}

// answer is where a command tells what it finds.
type answer func(Line)

func (tell answer) add(item any) {
	text, err := json.Marshal(item)
	tell.fault(err)
	tell(Line{Item: text})
}

func (tell answer) fault(err error) {
	if err != nil {
		tell(Line{Faults: strings.Split(err.Error(), "\n")})
	}
}

// Do does a command. It tells what it finds, and an error only if there is
// nothing to be found.
func (a *Admin) Do(ctx context.Context, c Command, r Request, tell func(Line)) error {
	switch c {
	case Contracts:
		return a.contracts(ctx, r, tell)
	case Buckets:
		return a.buckets(ctx, r, tell)
	case Keys:
		return a.keys(ctx, r, tell)
	case Audit:
		return a.audit(ctx, r, tell)
	case Rotate:
		return a.rotate(ctx, r, tell)
	case Revoke:
		return a.revoke(ctx, r, tell)
	}
	return fault.New(fault.InvalidArgument, "there is no command %q", c)
}

// under is what the journal knows under one contract.
type under struct {
	id       cosi.ContractID
	recorded bool
	buckets  []cosi.BucketID
	accounts []cosi.AccountID
}

// index reads the ids of the journal's records, by contract, with the contracts
// of the configuration. What hangs on what is sorted by id.
func (a *Admin) index(ctx context.Context, r Request) ([]*under, error) {
	const step = 1000
	all := map[cosi.ContractID]*under{}
	of := func(id cosi.ContractID) *under {
		if all[id] == nil {
			all[id] = &under{id: id}
		}
		return all[id]
	}
	for after := (journal.Place{}); ; {
		places, err := a.Journal.Walk(ctx, after, step)
		if err != nil {
			return nil, err
		}
		if len(places) == 0 {
			break
		}
		for _, p := range places {
			if err := sort(p.Key, of); err != nil {
				return nil, err
			}
		}
		after = places[len(places)-1]
	}
	for _, c := range a.Config().Contracts {
		of(cosi.ContractID{Backend: c.Backend, Contract: c.Name})
	}
	wanted := func(u *under) bool {
		return r.Contract == "" || r.Contract == u.id.Contract || r.Contract == u.id.String()
	}
	var out []*under
	for _, u := range slices.SortedFunc(maps.Values(all), func(x, y *under) int { return strings.Compare(x.id.String(), y.id.String()) }) {
		if !wanted(u) {
			continue
		}
		slices.SortFunc(u.buckets, func(x, y cosi.BucketID) int { return strings.Compare(x.Bucket, y.Bucket) })
		slices.SortFunc(u.accounts, func(x, y cosi.AccountID) int { return strings.Compare(x.Account, y.Account) })
		out = append(out, u)
	}
	if len(out) == 0 && r.Contract != "" {
		return nil, fault.New(fault.NotFound, "contract %q is neither in the configuration nor in the journal; the command contracts lists them", r.Contract)
	}
	return out, nil
}

func sort(key journal.Key, of func(cosi.ContractID) *under) error {
	switch key.Kind {
	case journal.Contracts:
		id, err := cosi.ParseContractID(key.ID)
		if err != nil {
			return err
		}
		of(id).recorded = true
	case journal.Buckets:
		id, err := cosi.ParseBucketID(key.ID)
		if err != nil {
			return err
		}
		u := of(id.ContractID)
		u.buckets = append(u.buckets, id)
	case journal.Accounts:
		id, err := cosi.ParseAccountID(key.ID)
		if err != nil {
			return err
		}
		u := of(id.ContractID)
		u.accounts = append(u.accounts, id)
	}
	return nil
}

// Contract is a contract that the configuration lists or the journal knows.
type Contract struct {
	ID string `json:"id"`
	// State is the service's, or "Unsigned", or "Unknown" where it cannot be asked.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	Plan    string `json:"plan,omitempty"`
	// Terms tells where the contract gets its terms from: "listed", "onDemand",
	// or "none" if the configuration has none for it.
	Terms string `json:"terms"`
	// Differing are the terms in which the contract is not as configured, as far
	// as its service tells.
	Differing []string `json:"differing,omitempty"`
	// Buckets and Keys are the journal's, Used what the service counts.
	Buckets int   `json:"buckets"`
	Keys    int   `json:"keys"`
	Used    Count `json:"used,omitzero"`
	// Quota are the upper bounds of its terms; an absent one is left to the plan.
	Quota Count `json:"quota,omitzero"`
}

// Count is a number of each; nil is unknown or unbounded.
type Count struct {
	Buckets *int64 `json:"buckets,omitempty"`
	Keys    *int64 `json:"keys,omitempty"`
	Bytes   *int64 `json:"bytes,omitempty"`
	Objects *int64 `json:"objects,omitempty"`
}

func (a *Admin) contracts(ctx context.Context, r Request, tell answer) error {
	index, err := a.index(ctx, r)
	if err != nil {
		return err
	}
	for i, u := range index {
		tell(Line{Done: i, Of: len(index)})
		c := Contract{ID: u.id.String(), Terms: "none", Buckets: len(u.buckets), Keys: len(u.accounts), State: "Unsigned"}
		terms, ok := a.Config().Terms(u.id.Contract)
		if ok && terms.Backend == u.id.Backend {
			c.Plan, c.Quota = terms.Plan, Count{terms.Quota.MaxBuckets, terms.Quota.MaxKeys, terms.Quota.MaxBytes, terms.Quota.MaxObjects}
			c.Terms = "onDemand"
			if slices.ContainsFunc(a.Config().Contracts, func(l config.Contract) bool { return l.Name == u.id.Contract }) {
				c.Terms = "listed"
			}
		}
		have, differing, err := a.Provisioner.DescribeContract(ctx, u.id)
		switch {
		case err == nil:
			c.State, c.Message, c.Differing = string(have.State), have.Message, differing
			usage, err := a.Provisioner.Usage(ctx, u.id)
			tell.fault(err)
			c.Used = Count(usage)
		case fault.Is(err, fault.NotFound) && u.recorded:
			c.State, c.Message = "Gone", "it is in the journal, and not at the service"
		case !fault.Is(err, fault.NotFound):
			c.State = "Unknown"
			tell.fault(err)
		}
		tell.add(c)
	}
	return nil
}

// Bucket is a bucket of the journal.
type Bucket struct {
	ID       string `json:"id"`
	Contract string `json:"contract"`
	Region   string `json:"region"`
	// Origin is "made", "adopted", or "found" for one that the driver made and
	// found again without its record.
	Origin string `json:"origin"`
	// Accesses are the ids of those that reach it.
	Accesses  []string  `json:"accesses"`
	CreatedAt time.Time `json:"createdAt"`
	// Used is what its service counts in it, and Quota what it may hold; absent where
	// the service does not tell.
	Used  Count `json:"used,omitzero"`
	Quota Count `json:"quota,omitzero"`
}

func (a *Admin) buckets(ctx context.Context, r Request, tell answer) error {
	index, err := a.index(ctx, r)
	if err != nil {
		return err
	}
	for i, u := range index {
		tell(Line{Done: i, Of: len(index)})
		uses, err := a.uses(ctx, u)
		tell.fault(err)
		for _, id := range u.buckets {
			record, err := a.Journal.Bucket(ctx, id)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			accounts, accountsErr := a.Journal.AccountsOn(ctx, id)
			if err != nil || accountsErr != nil {
				tell.fault(err)
				tell.fault(accountsErr)
				continue
			}
			b := Bucket{ID: id.String(), Contract: id.ContractID.String(), Region: record.Endpoint.Region, Origin: "made", Accesses: []string{}, CreatedAt: record.CreatedAt}
			switch {
			case record.Adopted:
				b.Origin = "adopted"
			case record.Unclassed:
				b.Origin = "found"
			}
			if use, told := uses[id.Bucket]; told {
				b.Used = Count{Bytes: use.Bytes, Objects: use.Objects}
				b.Quota = Count{Bytes: bound(use.MaxBytes), Objects: bound(use.MaxObjects)}
			}
			for _, account := range accounts {
				b.Accesses = append(b.Accesses, account.ID.String())
			}
			tell.add(b)
		}
	}
	return nil
}

// uses are what the buckets of a contract hold, by name.
func (a *Admin) uses(ctx context.Context, u *under) (map[string]contract.BucketUse, error) {
	if len(u.buckets) == 0 {
		return nil, nil
	}
	all, _, err := a.Provisioner.BucketUses(ctx, u.id)
	out := make(map[string]contract.BucketUse, len(all))
	for _, use := range all {
		out[use.Bucket] = use
	}
	return out, err
}

// bound is a bound as a Count has it, where 0 is none.
func bound(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// Key is the key of an access.
type Key struct {
	// ID is the access's.
	ID string `json:"id"`
	// AccessKeyID names the key; "" while it is being issued.
	AccessKeyID string `json:"accessKeyID,omitempty"`
	// State is "Active", "Inactive", "Missing" at the service, "Intent" as long as
	// it is being issued, "Revoked" by hand, "Revoking" as long as the service has
	// not carried that out, or "Unknown" where the service cannot be asked.
	State   string                 `json:"state"`
	Buckets []journal.BucketAccess `json:"buckets"`
	// IssuedAt is when it was issued, or asked for.
	IssuedAt time.Time `json:"issuedAt"`
	// EndsAt is when it ends by itself (keyLife); absent if it does not.
	EndsAt time.Time `json:"endsAt,omitzero"`
	// LastUsed is absent if it was not used or the service does not tell.
	LastUsed time.Time `json:"lastUsed,omitzero"`
	// Rotation is there as long as the key before it is valid too.
	Rotation *Rotation `json:"rotation,omitempty"`
}

// Rotation is how far a key's rotation has come.
type Rotation struct {
	// Old is the access key id of the key before.
	Old string `json:"old,omitempty"`
	// Delivered is when the new key reached the application's Secret; absent as long
	// as that is not known.
	Delivered time.Time `json:"delivered,omitzero"`
	// EndsAt is when the old key is revoked; absent until it is known.
	EndsAt time.Time `json:"endsAt,omitzero"`
}

func (a *Admin) keys(ctx context.Context, r Request, tell answer) error {
	index, err := a.index(ctx, r)
	if err != nil {
		return err
	}
	for i, u := range index {
		tell(Line{Done: i, Of: len(index)})
		if len(u.accounts) == 0 {
			continue
		}
		listed, listErr := a.Provisioner.Keys(ctx, u.id)
		tell.fault(listErr)
		atService := make(map[string]contract.KeyInfo, len(listed))
		for _, k := range listed {
			atService[k.AccessKeyID] = k
		}
		for _, id := range u.accounts {
			record, err := a.Journal.Account(ctx, id)
			if err != nil {
				if !fault.Is(err, fault.NotFound) {
					tell.fault(err)
				}
				continue
			}
			k := keyOf(record)
			have, there := atService[k.AccessKeyID]
			switch {
			case k.State != "":
			case listErr != nil:
				k.State = "Unknown"
			case !there:
				k.State = "Missing"
			case !have.Active:
				k.State = "Inactive"
			default:
				k.State = "Active"
			}
			k.LastUsed = have.LastUsed
			tell.add(k)
		}
	}
	return nil
}

// keyOf is a key as far as the journal tells: its State is "" if that is the
// service's to say.
func keyOf(record *journal.Account) Key {
	k := Key{ID: record.ID.String(), AccessKeyID: record.Issued.AccessKeyID, Buckets: record.Effective.Buckets, IssuedAt: record.KeyIssuedAt(), EndsAt: record.ExpiresAt()}
	switch {
	case record.Cut == journal.Done:
		k.State = "Revoked"
	case record.Cut != "":
		k.State = "Revoking"
	case record.Phase != journal.Done:
		k.State = string(journal.Intent)
	}
	if r := record.Rotation; r != nil {
		k.Rotation = &Rotation{Old: r.Old, Delivered: r.HandedOut}
		if !r.HandedOut.IsZero() {
			k.Rotation.EndsAt = r.HandedOut.Add(r.Grace)
		}
	}
	return k
}

// Orphan is something that is on one side only.
type Orphan struct {
	Kind        string `json:"kind"`
	ID          string `json:"id"`
	AccessKeyID string `json:"accessKeyID,omitempty"`
	Text        string `json:"text"`
	Fixed       bool   `json:"fixed"`
}

func (a *Admin) audit(ctx context.Context, r Request, tell answer) error {
	index, err := a.index(ctx, r)
	if err != nil {
		return err
	}
	for i, u := range index {
		tell(Line{Done: i, Of: len(index)})
		found, err := a.Provisioner.AuditContract(ctx, u.id, provisioner.Audit{Fix: r.Fix, Grace: r.Grace, Buckets: u.buckets, Accounts: u.accounts})
		tell.fault(err)
		slices.SortFunc(found, func(x, y provisioner.Orphan) int {
			return strings.Compare(string(x.Kind)+x.ID+x.AccessKeyID, string(y.Kind)+y.ID+y.AccessKeyID)
		})
		for _, o := range found {
			tell.add(Orphan{Kind: string(o.Kind), ID: o.ID, AccessKeyID: o.AccessKeyID, Text: o.Text, Fixed: o.Fixed})
		}
	}
	return nil
}

func (a *Admin) rotate(ctx context.Context, r Request, tell answer) error {
	if !r.IssuedBefore.IsZero() {
		return a.replace(ctx, r, tell)
	}
	if (r.Access == "") == (r.OlderThan <= 0) || r.Delivered && r.Access == "" {
		return fault.New(fault.InvalidArgument, "say which keys are rotated: that of one access, or all of an age")
	}
	if r.Access != "" {
		id, err := cosi.ParseAccountID(r.Access)
		if err != nil {
			return err
		}
		r.Contract = id.ContractID.String()
	}
	index, err := a.index(ctx, r)
	if err != nil {
		return err
	}
	seen := false
	for i, u := range index {
		tell(Line{Done: i, Of: len(index)})
		for _, id := range u.accounts {
			if r.Access != "" && r.Access != id.String() {
				continue
			}
			seen = true
			tell.fault(a.rotateOne(ctx, id, r, tell))
		}
	}
	if !seen && r.Access != "" {
		return fault.New(fault.NotFound, "access %s is not in the journal; the command keys lists them", r.Access)
	}
	return nil
}

// rotateOne rotates the key that was asked for, or one that is old enough; of
// those it leaves out one whose new key waits to be delivered.
func (a *Admin) rotateOne(ctx context.Context, id cosi.AccountID, r Request, tell answer) error {
	do := func() error { return a.Provisioner.RotateAccess(ctx, id, r.Grace) }
	if r.Delivered {
		do = func() error { return a.Provisioner.Delivered(ctx, id) }
	}
	if r.Access == "" {
		record, err := a.Journal.Account(ctx, id)
		if fault.Is(err, fault.NotFound) {
			return nil
		} else if err != nil {
			return err
		}
		if record.Phase != journal.Done || record.Cut != "" || time.Since(record.KeyIssuedAt()) < r.OlderThan || record.Rotation != nil && !keys.Due(record.Rotation) {
			return nil
		}
	}
	if err := do(); err != nil {
		return err
	}
	return a.changed(ctx, id, tell)
}

const (
	replacedPerSecond = 10
	replaceAgain      = 2 * time.Second // between two looks at keys that wait for their grace
	replacePatience   = 5 * time.Minute // with a service or an API server that is away
)

// replace goes through the keys of a contract until each was issued after a time and
// none before it is valid. It ends with those that cannot be replaced.
func (a *Admin) replace(ctx context.Context, r Request, tell answer) error {
	if r.Contract == "" || r.Access != "" || r.OlderThan > 0 || r.Delivered {
		return fault.New(fault.InvalidArgument, "say whose keys are replaced, with the name or id of a contract and nothing else")
	}
	if r.IssuedBefore.After(time.Now()) { // the keys that replace them would be replaced too, until then
		return fault.New(fault.InvalidArgument, "issued-before is in the future; give a time that has passed, or --now in its place")
	}
	index, err := a.index(ctx, r)
	if err != nil {
		return err
	}
	var left []cosi.AccountID
	for _, u := range index {
		left = append(left, u.accounts...)
	}
	replaced := func(id cosi.AccountID) { tell.fault(fault.IgnoreNotFound(a.changed(ctx, id, tell))) }
	return replaceAll(ctx, left, r.Grace, func(id cosi.AccountID) (more bool, err error) {
		return a.Provisioner.ReplaceKey(ctx, id, r.IssuedBefore, r.Grace)
	}, replaced, tell)
}

// replaceAll goes through what is left, until there has been no news for too long.
func replaceAll(ctx context.Context, left []cosi.AccountID, grace time.Duration, replace func(cosi.AccountID) (more bool, err error), replaced func(cosi.AccountID), tell answer) error {
	all, pace, news := len(left), rate.NewLimiter(replacedPerSecond, 1), time.Now()
	for {
		begin := time.Now() // a pass over many keys takes longer than a grace
		var waiting []cosi.AccountID
		var faults []error
		for _, id := range left {
			if err := pace.Wait(ctx); err != nil {
				return err
			}
			more, err := replace(id)
			switch {
			case more || fault.Passing(err):
				waiting, faults = append(waiting, id), append(faults, err)
			case err != nil:
				tell.fault(err)
			default:
				replaced(id)
			}
		}
		if len(waiting) < len(left) {
			news = time.Now()
		}
		tell(Line{Done: all - len(waiting), Of: all})
		if len(waiting) == 0 {
			return nil
		}
		if begin.Sub(news) > grace+replacePatience {
			for i, id := range waiting {
				tell.fault(cmp.Or(faults[i], error(fault.New(fault.Unavailable, "access %s: its old key is still valid; resume the command later", id))))
			}
			return nil
		}
		left = waiting
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(replaceAgain):
		}
	}
}

// changed reports a key that was changed.
func (a *Admin) changed(ctx context.Context, id cosi.AccountID, tell answer) error {
	record, err := a.Journal.Account(ctx, id)
	if err != nil {
		return fmt.Errorf("access %s was changed and cannot be read: %w", id, err)
	}
	k := keyOf(record)
	k.State = cmp.Or(k.State, "Active")
	tell.add(k)
	return nil
}

func (a *Admin) revoke(ctx context.Context, r Request, tell answer) error {
	id, err := cosi.ParseAccountID(r.Access)
	if err != nil {
		return err
	}
	do := a.Provisioner.CutAccess
	if r.Lift {
		do = a.Provisioner.LiftAccess
	}
	if err := do(ctx, id); err != nil {
		return err
	}
	return a.changed(ctx, id, tell)
}
