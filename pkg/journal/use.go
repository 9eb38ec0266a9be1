package journal

import (
	"bytes"
	"context"
	"time"
)

// Use is what there is of a group of contracts.
type Use struct {
	Buckets, Keys int
	// Ending are the keys in the last part of their life, and Ended those whose life
	// is over and whose access is still there.
	Ending, Ended int
	// Overdue are those that are older than their keyRotation, or whose successor is not
	// in the application's Secret.
	Overdue int
	// NextEnd is when the next key ends by itself; zero if none does.
	NextEnd time.Time
}

// Use sums up what there is at a time, by the group that group puts a contract's
// id in. It is asked once for each contract. It costs one look at every record,
// without decoding those that have no end.
func (j *Journal) Use(ctx context.Context, now time.Time, group func(contract string) string) (map[string]Use, error) {
	index, err := j.index(ctx)
	if err != nil {
		return nil, err
	}
	counted := map[string]*Use{}
	var ending []Entry
	index.each(func(e Entry) {
		if e.Key.Kind == Identity {
			return
		}
		u := counted[e.Key.contract()]
		if u == nil {
			u = &Use{}
			counted[e.Key.contract()] = u
		}
		switch e.Key.Kind {
		case Buckets:
			u.Buckets++
		case Accounts:
			u.Keys++
			if bytes.Contains(e.Value, []byte(`"keyLife"`)) || bytes.Contains(e.Value, []byte(`otation"`)) { // keyRotation, rotation
				ending = append(ending, e)
			}
		}
	})
	for _, e := range ending {
		if a, err := accountOf(e); err == nil { // its own call tells of a damaged one
			counted[e.Key.contract()].ends(a, now)
			if a.overdue(now) {
				counted[e.Key.contract()].Overdue++
			}
		}
	}
	out := map[string]Use{}
	for contract, u := range counted {
		name := group(contract)
		sum := out[name]
		sum.add(*u)
		out[name] = sum
	}
	return out, nil
}

// lastPart of a key's life is when its users should have another: a fifth of it,
// and a week at most.
func lastPart(life time.Duration) time.Duration { return min(life/5, 7*24*time.Hour) }

// overdue reports whether a key is still used that has been replaced, or should have
// been.
func (a *Account) overdue(now time.Time) bool {
	if r := a.Rotation; r != nil {
		return r.HandedOut.IsZero()
	}
	every := a.Effective.KeyRotation
	return a.Cut == "" && every > 0 && now.Sub(a.KeyIssuedAt()) > every
}

// ends takes the end of a key in.
func (u *Use) ends(a *Account, now time.Time) {
	at := a.ExpiresAt()
	switch left := at.Sub(now); {
	case at.IsZero():
		return
	case left <= 0:
		u.Ended++
		return
	case left <= lastPart(a.Effective.KeyLife):
		u.Ending++
	}
	u.next(at)
}

func (u *Use) next(end time.Time) {
	if u.NextEnd.IsZero() || !end.IsZero() && end.Before(u.NextEnd) {
		u.NextEnd = end
	}
}

func (u *Use) add(other Use) {
	u.Buckets += other.Buckets
	u.Keys += other.Keys
	u.Ending += other.Ending
	u.Ended += other.Ended
	u.Overdue += other.Overdue
	u.next(other.NextEnd)
}
