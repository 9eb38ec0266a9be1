package journal

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

// Place is where a record stands in the order in which records are walked. The
// order is that of a hash of their keys: it is the same in every process and
// after every restart, and it spreads the records of one contract, or of one
// day, evenly over the whole.
type Place struct {
	// At is the hash; places go from 0 to the largest number.
	At uint64
	// Key names the record.
	Key Key
}

// PlaceOf is a pure function of the key.
func PlaceOf(key Key) Place {
	var d xxhash.Digest // of key.String(), which need not be made
	d.Reset()
	_, _ = d.WriteString(string(key.Kind))
	_, _ = d.WriteString("/")
	_, _ = d.WriteString(key.ID)
	return Place{At: d.Sum64(), Key: key}
}

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.At, q.At), strings.Compare(p.Key.ID, q.Key.ID), strings.Compare(string(p.Key.Kind), string(q.Key.Kind)))
}

// Next is the part of a Store's Walk that is the same for all: of keys in any
// order it picks the first few after a place. It remembers no more than those.
func Next(keys iter.Seq[Key], after Place, limit int) []Place {
	first := make([]Place, 0, limit+1)
	for key := range keys {
		p := PlaceOf(key)
		if p.compare(after) <= 0 || len(first) == limit && p.compare(first[limit-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(first, p, Place.compare)
		first = append(first, p) // there is room for one more than the limit
		copy(first[at+1:], first[at:])
		first[at] = p
		first = first[:min(limit, len(first))]
	}
	return first
}

// Walk returns the places of up to limit records that come after a place, of
// which the zero Place is the first. None means that the walk has ended. What is
// written or deleted during a walk may or may not be part of it.
func (j *Journal) Walk(ctx context.Context, after Place, limit int) ([]Place, error) {
	return j.store.Walk(ctx, after, limit)
}

// EachContract calls do with the id of every contract that has a record, until it
// returns an error.
func (j *Journal) EachContract(ctx context.Context, do func(cosi.ContractID) error) error {
	const step = 1000
	for after := (Place{}); ; {
		places, err := j.Walk(ctx, after, step)
		if err != nil || len(places) == 0 {
			return err
		}
		for _, p := range places {
			if p.Key.Kind != Contracts {
				continue
			}
			id, err := cosi.ParseContractID(p.Key.ID)
			if err == nil {
				err = do(id)
			}
			if err != nil {
				return err
			}
		}
		after = places[len(places)-1]
	}
}
