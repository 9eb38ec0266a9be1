package service

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// secretLength is what S3 tools expect; 40 characters of base32 are 200 random bits.
const secretLength = 40

// ListKeys implements GET /v1/contracts/{contractName}/keys.
func (s *Service) ListKeys(_ context.Context, r api.ListKeysRequestObject) (api.ListKeysResponseObject, error) {
	var found faults
	found.name("path.contractName", r.ContractName)
	limit, after := found.page(r.Params.PageSize, r.Params.PageToken)
	if r.Params.Slot != nil {
		found.name("query.slot", *r.Params.Slot)
	}
	if err := found.invalid(); err != nil {
		return nil, err
	}
	if _, ok := s.store.Contract(r.ContractName); !ok {
		return nil, noContract(r.ContractName)
	}
	page, more, err := s.keys(r.ContractName, r.Params.Slot, after, limit)
	if err != nil {
		return nil, err
	}
	list := api.ListKeys200JSONResponse{Items: make([]api.Key, len(page))}
	for i, k := range page {
		list.Items[i] = s.key(k)
		list.NextPageToken = nextToken(more, k.Name)
	}
	return list, nil
}

func (s *Service) keys(contract string, slot *string, after string, limit int) (page []store.Key, more bool, err error) {
	if slot == nil {
		return s.store.Keys(contract, after, limit)
	}
	// A slot holds one key and the few that were kept beside it.
	page = slices.DeleteFunc(s.store.Slot(contract, *slot), func(k store.Key) bool { return k.Name <= after })
	if len(page) > limit {
		return page[:limit], true, nil
	}
	return page, false, nil
}

// GetKey implements GET /v1/contracts/{contractName}/keys/{keyName}.
func (s *Service) GetKey(_ context.Context, r api.GetKeyRequestObject) (api.GetKeyResponseObject, error) {
	if err := names(r.ContractName, r.KeyName); err != nil {
		return nil, err
	}
	if k, ok := s.store.Key(r.ContractName, r.KeyName); ok {
		return api.GetKey200JSONResponse(s.key(k)), nil
	}
	if _, ok := s.store.Contract(r.ContractName); !ok {
		return nil, noContract(r.ContractName)
	}
	return nil, noKey(r.ContractName, r.KeyName)
}

// PutKey implements PUT /v1/contracts/{contractName}/keys/{keyName}.
func (s *Service) PutKey(_ context.Context, r api.PutKeyRequestObject) (api.PutKeyResponseObject, error) {
	var found faults
	found.names(r.ContractName, r.KeyName)
	found.keyRequest(*r.Body)
	if err := found.invalid(); err != nil {
		return nil, err
	}
	wanted := keyOf(r.ContractName, r.KeyName, r.Body.Spec)
	keep := value(r.Body.Keep)

	var issued store.Key
	var existed bool
	err := s.store.Update(func(tx *store.Tx) error {
		contract, ok := tx.Contract(wanted.Contract)
		if !ok {
			return noContract(wanted.Contract)
		}
		now := s.now()
		if state := contract.State(now); state != store.Active {
			return newProblem(http.StatusConflict, api.ContractNotActive,
				"The contract %s is %s, and issues keys only when it is active.", contract.Name, state)
		}
		var err error
		if issued, existed = tx.Key(wanted.Contract, wanted.Name); existed {
			err = replayable(issued, wanted)
		} else {
			issued, err = s.issue(contract, wanted, now)
		}
		if err != nil {
			return err
		}
		// The slot holds this key and what is kept, also after a repeat.
		changed := !existed
		for _, other := range tx.Slot(wanted.Contract, wanted.Slot) {
			if other.Name != wanted.Name && !slices.Contains(keep, other.AccessKeyID) {
				tx.DeleteKey(other.Contract, other.Name)
				changed = true
			}
		}
		if !changed {
			return errUnchanged
		}
		if !existed {
			if err := withinQuota(contract, tx.KeyCount(contract.Name)); err != nil {
				return err
			}
			tx.PutKey(issued)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return nil, err
	}

	noStore := "no-store"
	body := api.IssuedKey{Key: s.key(issued), SecretAccessKey: issued.Secret.Reveal()}
	headers := api.IssuedKeyResponseHeaders{CacheControl: &noStore}
	if existed {
		return api.PutKey200JSONResponse{IssuedKeyJSONResponse: api.IssuedKeyJSONResponse{Body: body, Headers: headers}}, nil
	}
	return api.PutKey201JSONResponse{Body: body, Headers: api.PutKey201ResponseHeaders(headers)}, nil
}

// replayable checks that a repeat may be given the key's secret again.
func replayable(issued, wanted store.Key) error {
	if !sameSpec(issued, wanted) {
		return newProblem(http.StatusConflict, api.KeySpecDiffers,
			"The key %s exists with another spec. Use another name for another key.", wanted.Name)
	}
	if issued.Acknowledged {
		return newProblem(http.StatusGone, api.SecretDelivered,
			"The secret of the key %s was acknowledged and is not handed out again. Issue a key of another name.", wanted.Name)
	}
	return nil
}

// issue makes the pair for a new key, after what can only be wrong with a new one.
func (s *Service) issue(contract store.Contract, wanted store.Key, now time.Time) (store.Key, error) {
	var found faults
	if wanted.Expired(now) {
		found.add("/spec/expiresAt", "is in the past")
	}
	for i, grant := range wanted.Grants {
		if s.buckets.Owner(grant.Bucket) != contract.Code {
			found.add(child(child("/spec/buckets", i), "bucket"), "names %s, which is not a bucket of the contract %s", grant.Bucket, contract.Name)
		}
	}
	if err := found.invalid(); err != nil {
		return wanted, err
	}
	wanted.AccessKeyID = "CK" + rand.Text()[:18]
	wanted.Secret = store.NewSecret((rand.Text() + rand.Text())[:secretLength])
	wanted.CreatedAt = now.UTC()
	return wanted, nil
}

func withinQuota(contract store.Contract, current int) error {
	if limit := contract.MaxKeys; limit != nil && int64(current) >= *limit {
		return newProblem(http.StatusConflict, api.LimitExceeded,
			"The contract %s has as many keys as its quota maxKeys allows. Revoke one, or raise the quota.", contract.Name).
			limit("maxKeys", *limit, int64(current))
	}
	return nil
}

// AcknowledgeKey implements PUT /v1/contracts/{contractName}/keys/{keyName}/acknowledgement.
func (s *Service) AcknowledgeKey(_ context.Context, r api.AcknowledgeKeyRequestObject) (api.AcknowledgeKeyResponseObject, error) {
	if err := names(r.ContractName, r.KeyName); err != nil {
		return nil, err
	}
	err := s.store.Update(func(tx *store.Tx) error {
		k, ok := tx.Key(r.ContractName, r.KeyName)
		if !ok {
			if _, ok := tx.Contract(r.ContractName); !ok {
				return noContract(r.ContractName)
			}
			return noKey(r.ContractName, r.KeyName)
		}
		if k.Acknowledged {
			return errUnchanged
		}
		k.Acknowledged = true
		tx.PutKey(k)
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return nil, err
	}
	return api.AcknowledgeKey204Response{}, nil
}

// DeleteKey implements DELETE /v1/contracts/{contractName}/keys/{keyName}.
func (s *Service) DeleteKey(_ context.Context, r api.DeleteKeyRequestObject) (api.DeleteKeyResponseObject, error) {
	if err := names(r.ContractName, r.KeyName); err != nil {
		return nil, err
	}
	if err := s.store.Update(func(tx *store.Tx) error {
		tx.DeleteKey(r.ContractName, r.KeyName)
		return nil
	}); err != nil {
		return nil, err
	}
	return api.DeleteKey204Response{}, nil
}

// RevokeSlot implements DELETE /v1/contracts/{contractName}/keys?slot=.
func (s *Service) RevokeSlot(_ context.Context, r api.RevokeSlotRequestObject) (api.RevokeSlotResponseObject, error) {
	var found faults
	found.name("path.contractName", r.ContractName)
	found.name("query.slot", r.Params.Slot)
	if err := found.invalid(); err != nil {
		return nil, err
	}
	if err := s.store.Update(func(tx *store.Tx) error {
		for _, k := range tx.Slot(r.ContractName, r.Params.Slot) {
			tx.DeleteKey(k.Contract, k.Name)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return api.RevokeSlot204Response{}, nil
}

func (f *faults) names(contract, key string) {
	f.name("path.contractName", contract)
	f.name("path.keyName", key)
}

func names(contract, key string) error {
	var found faults
	found.names(contract, key)
	return found.invalid()
}

func noKey(contract, name string) error {
	return newProblem(http.StatusNotFound, api.KeyNotFound, "The contract %s has no key %s.", contract, name)
}

// keyOf is the key that a valid spec asks for, still without its pair.
func keyOf(contract, name string, spec api.KeySpec) store.Key {
	k := store.Key{Contract: contract, Name: name, Slot: spec.Slot, ExpiresAt: utc(spec.ExpiresAt)}
	for _, g := range value(spec.Buckets) {
		k.Grants = append(k.Grants, store.Grant{
			Bucket: g.Bucket, Prefix: value(g.Prefix), Access: store.Access(g.Access), Actions: value(g.Actions),
			ObjectMetadata: store.Access(value(g.ObjectMetadata)), BucketMetadata: store.Access(value(g.BucketMetadata)),
		})
	}
	for _, block := range value(spec.SourceAddresses) {
		k.Sources = append(k.Sources, netip.MustParsePrefix(block))
	}
	return k
}

func sameSpec(a, b store.Key) bool {
	sameTime := a.ExpiresAt == nil && b.ExpiresAt == nil ||
		a.ExpiresAt != nil && b.ExpiresAt != nil && a.ExpiresAt.Equal(*b.ExpiresAt)
	return a.Slot == b.Slot && sameTime && slices.EqualFunc(a.Grants, b.Grants, sameGrant) && slices.Equal(a.Sources, b.Sources)
}

func sameGrant(a, b store.Grant) bool {
	return a.Bucket == b.Bucket && a.Prefix == b.Prefix && a.Access == b.Access &&
		a.ObjectMetadata == b.ObjectMetadata && a.BucketMetadata == b.BucketMetadata && slices.Equal(a.Actions, b.Actions)
}

// key is how callers see a key.
func (s *Service) key(k store.Key) api.Key {
	seen := api.Key{
		Name:         k.Name,
		AccessKeyId:  k.AccessKeyID,
		Acknowledged: k.Acknowledged,
		CreatedAt:    k.CreatedAt,
		State:        api.KeyStateActive,
		Spec:         api.KeySpec{Slot: k.Slot, ExpiresAt: k.ExpiresAt},
	}
	if k.Expired(s.now()) {
		seen.State = api.KeyStateInactive
	}
	if k.Scoped() {
		grants := make([]api.BucketGrant, len(k.Grants))
		for i, g := range k.Grants {
			grants[i] = api.BucketGrant{
				Bucket: g.Bucket, Prefix: optional(g.Prefix), Access: api.BucketAccess(g.Access),
				ObjectMetadata: optional(api.BucketAccess(g.ObjectMetadata)), BucketMetadata: optional(api.BucketAccess(g.BucketMetadata)),
			}
			if len(g.Actions) > 0 {
				grants[i].Actions = &g.Actions
			}
		}
		seen.Spec.Buckets = &grants
	}
	if len(k.Sources) > 0 {
		blocks := make([]string, len(k.Sources))
		for i, block := range k.Sources {
			blocks[i] = block.String()
		}
		seen.Spec.SourceAddresses = &blocks
	}
	return seen
}
