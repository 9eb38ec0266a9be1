package secrets

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// What the watch tells of a record is outdated as long as it is behind what the
// process has written and deleted by itself, and what a list has brought.
func TestCache(t *testing.T) {
	t.Parallel()
	key := journal.Key{Kind: journal.Buckets, ID: "main.team-a.b"}
	at := func(version uint64) record {
		return record{Entry: journal.Entry{Key: key, Version: version}, stray: key}
	}
	type step struct {
		what    string
		do      func(*cache)
		version uint64 // that the record has then; 0 is none
	}
	keep := func(v uint64) func(*cache) { return func(c *cache) { c.keep(at(v)) } }
	forget := func(v uint64) func(*cache) { return func(c *cache) { c.forget(key, v) } }
	event := func(what watch.EventType, v uint64) func(*cache) { return func(c *cache) { c.event(what, at(v)) } }
	var begun listing
	begin := func(c *cache) { begun = c.beginList() }
	list := func(as uint64, v ...uint64) func(*cache) {
		return func(c *cache) {
			items := map[journal.Key]record{}
			for _, v := range v {
				items[key] = at(v)
			}
			if err := c.replace(begun, strconv.FormatUint(as, 10), items); err != nil {
				t.Error(err)
			}
		}
	}
	for name, steps := range map[string][]step{
		"own writes run ahead": {
			{"created", keep(10), 10},
			{"changed", keep(12), 12},
			{"the watch brings the first", event(watch.Added, 10), 12},
			{"the watch brings the second", event(watch.Modified, 12), 12},
			{"another's change", event(watch.Modified, 14), 14},
			{"an answer that is outdated", keep(12), 14},
			{"another's deletion", event(watch.Deleted, 15), 0},
			{"an answer from before it", keep(14), 0},
		},
		"deleted twice": {
			{"created", keep(10), 10},
			{"deleted, not as it is", forget(9), 10},
			{"deleted", forget(10), 0},
			{"the watch brings the creation", event(watch.Added, 10), 0},
			{"created again", keep(12), 12},
			{"deleted again", forget(12), 0},
			{"the watch brings the first deletion", event(watch.Deleted, 11), 0},
			{"the watch brings the second creation", event(watch.Added, 12), 0},
			{"the watch brings the second deletion", event(watch.Deleted, 13), 0},
		},
		"created again": {
			{"created", keep(10), 10},
			{"deleted", forget(10), 0},
			{"created again", keep(12), 12},
			{"the watch brings the deletion", event(watch.Deleted, 11), 12},
			{"the watch brings the second creation", event(watch.Added, 12), 12},
		},
		"lists": {
			{"a list begins", begin, 0},
			{"created", keep(10), 10},
			{"the list is from before", list(9), 10},
			{"a list begins", begin, 10},
			{"deleted", forget(10), 0},
			{"the list is from before the deletion", list(10, 10), 0},
			{"a list begins", begin, 0},
			{"the list is from after it", list(11), 0},
			{"the watch is behind the list", event(watch.Added, 10), 0},
			{"a list begins", begin, 0},
			{"the watch overtakes it", event(watch.Added, 14), 14},
			{"the list that was overtaken", list(13), 14},
		},
		"restored from a backup": {
			{"a list begins", begin, 0},
			{"it ends", list(20, 18), 18},
			{"deleted", forget(18), 0},
			{"a list begins", begin, 0},
			{"it is of an earlier state", list(12, 8), 8},
		},
	} {
		c := newCache()
		for _, s := range steps {
			s.do(c)
			if v := c.version(key); v != s.version {
				t.Fatalf("%s: %s: version %d, want %d", name, s.what, v, s.version)
			}
		}
	}
}
