package versitygw

import "testing"

// A journal's mark is no key, no matter who reads it, and of two the first by name is the
// contract's.
func TestMarks(t *testing.T) {
	t.Parallel()
	const first, last = "00112233445566ff", "ff66554433221100"
	mark := func(contract, id string) account { return account{Access: keyAccount(contract, journalSlot, id)} }
	all := []account{
		{Access: contractAccount("team", "owner"), Role: makesBuckets}, {Access: keyAccount("team", "ba-1", "k")},
		mark("team", last), mark("team", first), mark("other", last), {Access: "by-hand._journal"},
	}
	for contract, want := range map[string]string{"team": first, "other": last, "none": "", "by-hand": ""} {
		if got := markOf(all, contract); got != want {
			t.Errorf("%s has the mark %q, want %q", contract, got, want)
		}
	}
	for _, a := range all[2:] {
		if slot := a.slot("team"); slot != "" || a.isContract("team") {
			t.Errorf("%s is taken for a key of slot %q, or for the contract", a.Access, slot)
		}
	}
}
