package journal

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// An export is text, JSON a line: a head, and then each entry without its
// version, which is the store's own. It holds secrets.
const (
	exportFormat  = "contract-cosi-driver journal"
	exportVersion = 1
)

// exportHead is an export's first line. The number of entries shows if it was cut.
type exportHead struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Owner   string `json:"owner"`
	Entries int    `json:"entries"`
	// Identities are the journal's. They are here and not among the entries, as
	// drivers that know of none pass over them here.
	Identities []string `json:"identities,omitempty"`
}

// kinds are the kinds in the order in which an export has them: what others
// hang on comes first.
var kinds = []RecordKind{Contracts, Buckets, Accounts}

// Export writes all entries of a store, whose driver has the given owner mark,
// and returns how many there are.
func Export(ctx context.Context, s Store, owner string, w io.Writer) (int, error) {
	index, err := s.Index(ctx)
	if err != nil {
		return 0, err
	}
	entries := slices.DeleteFunc(index.All(), func(e Entry) bool { return e.Key.Kind == Identity })
	identities, _, err := readIdentities(ctx, s)
	if err != nil {
		return 0, err
	}
	if i := slices.IndexFunc(entries, func(e Entry) bool { return e.Damage != nil }); i >= 0 {
		return 0, entries[i].Damage
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.Key.Kind), slices.Index(kinds, b.Key.Kind)), strings.Compare(a.Key.ID, b.Key.ID))
	})
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(exportHead{exportFormat, exportVersion, owner, len(entries), identities})
	for _, e := range entries {
		e.Version = 0
		err = errors.Join(err, encoder.Encode(e))
	}
	return len(entries), errors.Join(err, out.Flush())
}

// Import writes the entries of an export that the store does not have, and
// passes over those that it has. If it has another entry under the same key,
// nothing is written: Conflict. The store gets the identities of the exported
// journal. It can be repeated if it was interrupted.
func Import(ctx context.Context, s Store, owner string, r io.Reader) (imported, same int, err error) {
	entries, identities, err := readExport(owner, r)
	if err != nil {
		return 0, 0, err
	}
	var missing []Entry
	var differing []string
	for _, e := range entries {
		have, err := s.Get(ctx, e.Key)
		switch {
		case fault.Is(err, fault.NotFound):
			missing = append(missing, e)
		case err != nil:
			return 0, 0, err
		case sameEntry(have, e):
			same++
		default:
			differing = append(differing, e.Key.String())
		}
	}
	if len(differing) > 0 {
		return 0, 0, otherRecords(differing)
	}
	if err := addIdentities(ctx, s, identities); err != nil {
		return 0, 0, err
	}
	for _, e := range missing {
		_, err := s.Put(ctx, e)
		if fault.Is(err, fault.Mismatch) { // a live driver has just made one
			return imported, same, otherRecords([]string{e.Key.String()})
		}
		if err != nil {
			return imported, same, err
		}
		imported++
	}
	return imported, same, nil
}

func otherRecords(keys []string) error {
	const most = 3
	shown := strings.Join(keys[:min(most, len(keys))], ", ")
	if len(keys) > most {
		shown += ", …"
	}
	return fault.New(fault.Conflict, "the journal has other records under %d of the keys of the export (%s); import into an empty journal, or remove those that are wrong", len(keys), shown)
}

// sameEntry compares what JSON says, not how it is spaced.
func sameEntry(a, b Entry) bool {
	var x, y bytes.Buffer
	return slices.Equal(a.Refs, b.Refs) && json.Compact(&x, a.Value) == nil && json.Compact(&y, b.Value) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// readExport reads and checks a whole export before anything is done with it.
func readExport(owner string, r io.Reader) (entries []Entry, identities []string, err error) {
	bad := func(format string, args ...any) error {
		return fault.New(fault.InvalidArgument, "the export cannot be used: "+format, args...)
	}
	decoder := json.NewDecoder(r)
	var h exportHead
	if err := decoder.Decode(&h); err != nil || h.Format != exportFormat {
		return nil, nil, bad("it does not begin as one; give the file that journal export has written")
	}
	if h.Version != exportVersion {
		return nil, nil, bad("it has version %d and this driver reads version %d; use the driver that wrote it", h.Version, exportVersion)
	}
	if h.Owner != owner {
		return nil, nil, bad("it is of the driver with owner mark %q and this one has %q; the buckets carry that mark, so set driver.owner to it", h.Owner, owner)
	}
	if slices.ContainsFunc(h.Identities, func(s string) bool { return !cosi.IsIdentity(s) }) {
		return nil, nil, bad("its first line names an identity that is none; export again, or take another backup")
	}
	identities = h.Identities
	seen := map[Key]bool{}
	for {
		var e Entry
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && e.Key == identityKey { // written by a driver that knows of none
			var more []string
			more, err = identitiesOf(e)
			identities = append(identities, more...)
		}
		if err != nil || seen[e.Key] || !notRecord(e.Key) && !understood(e) {
			return nil, nil, bad("entry %d is damaged; export again, or take another backup", len(seen)+1)
		}
		if seen[e.Key] = true; !notRecord(e.Key) {
			entries = append(entries, e)
		}
	}
	if len(seen) != h.Entries {
		return nil, nil, bad("it should have %d entries and has %d; export again, or take another backup", h.Entries, len(seen))
	}
	return entries, identities, nil
}

func notRecord(k Key) bool { return k.Kind == Probe || k == identityKey }

// understood reports whether an entry is a record.
func understood(e Entry) bool {
	switch e.Key.Kind {
	case Contracts:
		var v storedContract
		backend, name, ok := strings.Cut(e.Key.ID, ".")
		return ok && cosi.IsLabel(backend) && cosi.IsLabel(name) && decode(e, &v) == nil
	case Buckets:
		var v Bucket
		_, err := cosi.ParseBucketID(e.Key.ID)
		return err == nil && decode(e, &v) == nil
	case Accounts:
		_, err := accountOf(e)
		return err == nil
	}
	return false
}
