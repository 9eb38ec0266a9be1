package journal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// identityKey is the key of the entry that holds a journal's identities.
var identityKey = Key{Identity, "journal"}

type storedIdentity struct {
	Identities []string `json:"identities"`
}

// Identities are the journal's own, which the contracts that it signs carry, and
// then those of the journals that [Import] has put into it. None if the journal has
// signed nothing yet, or only with a driver that knew of none.
func (j *Journal) Identities(ctx context.Context) ([]string, error) {
	have, _, err := readIdentities(ctx, j.store)
	return have, err
}

// Begin gives the journal an identity, which is random, if it has none.
func (j *Journal) Begin(ctx context.Context) error {
	have, _, err := readIdentities(ctx, j.store)
	if err != nil || len(have) > 0 {
		return err
	}
	var random [cosi.IdentityBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	err = addIdentities(ctx, j.store, []string{hex.EncodeToString(random[:])})
	if fault.Is(err, fault.Mismatch) { // another call has just done so
		return nil
	}
	return err
}

func readIdentities(ctx context.Context, s Store) (have []string, version uint64, err error) {
	e, err := s.Get(ctx, identityKey)
	if fault.Is(err, fault.NotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	have, err = identitiesOf(e)
	return have, e.Version, err
}

func identitiesOf(e Entry) ([]string, error) {
	var v storedIdentity
	err := decode(e, &v)
	if err == nil && (len(v.Identities) == 0 || slices.ContainsFunc(v.Identities, func(s string) bool { return !cosi.IsIdentity(s) })) {
		err = fault.New(fault.Internal, "journal record %s holds no identity; restore the journal from a backup or remove the record", e.Key)
	}
	return v.Identities, err
}

// addIdentities puts those that the store does not have behind those that it has.
func addIdentities(ctx context.Context, s Store, more []string) error {
	have, version, err := readIdentities(ctx, s)
	if err != nil {
		return err
	}
	all := slices.Clone(have)
	for _, id := range more {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	if len(all) == len(have) {
		return nil
	}
	text, err := json.Marshal(storedIdentity{all})
	if err == nil {
		_, err = s.Put(ctx, Entry{Key: identityKey, Value: text, Version: version})
	}
	return err
}
