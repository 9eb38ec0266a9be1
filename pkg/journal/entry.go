package journal

import (
	"bytes"
	"strconv"
)

// ReadEntry reads an entry's JSON, of which it keeps nothing, if it is just as
// Marshal writes it. It takes the record as it is: to parse tens of thousands of
// them is most of what a start costs.
func ReadEntry(text []byte) (e Entry, ok bool) {
	names, rest, _ := bytes.Cut(text, []byte(`,"value":`))
	e.Key, names, ok = readKey(names, `{"key":`)
	for prefix := `,"refs":[`; ok && len(names) > 0 && string(names) != "]"; prefix = "," {
		var ref Key
		ref, names, ok = readKey(names, prefix)
		e.Refs = append(e.Refs, ref)
	}
	value, ended := bytes.CutSuffix(rest, []byte(`}`))
	if !ok || !ended {
		return e, false
	}
	if before, version, versioned := cutLast(value, `,"version":"`); versioned {
		if number, ended := bytes.CutSuffix(version, []byte(`"`)); ended { // or it is the record's
			var err error
			if e.Version, err = strconv.ParseUint(string(number), 10, 64); err != nil {
				return e, false
			}
			value = before
		}
	}
	e.Value = bytes.Clone(value)
	return e, true
}

func cutLast(text []byte, separator string) (before, after []byte, found bool) {
	at := bytes.LastIndex(text, []byte(separator))
	if at < 0 {
		return text, nil, false
	}
	return text[:at], text[at+len(separator):], true
}

// readKey reads the key that follows a prefix.
func readKey(text []byte, prefix string) (key Key, rest []byte, ok bool) {
	text, ok1 := bytes.CutPrefix(text, []byte(prefix+`{"kind":"`))
	kind, text, ok2 := bytes.Cut(text, []byte(`","id":"`))
	id, rest, ok3 := bytes.Cut(text, []byte(`"}`))
	plain := !bytes.ContainsAny(kind, `"\\`) && !bytes.ContainsAny(id, `"\\`)
	return Key{RecordKind(kind), string(id)}, rest, ok1 && ok2 && ok3 && plain
}
