package v1alpha2

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// absent is a mode that is not sent; 0 is one that is sent empty.
const absent = -1

// grantOf is the wire of a grant on one bucket for each list of the modes in fields
// 2, 3 and 4. It is written by hand, so that a slip in our own proto is seen.
func grantOf(buckets ...[3]int) []byte {
	var request []byte
	for i, modes := range buckets {
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), fmt.Sprintf("main.team.b-%d", i))
		for j, mode := range modes {
			if mode == absent {
				continue
			}
			var m []byte
			if mode != 0 {
				m = protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(mode))
			}
			b = protowire.AppendBytes(protowire.AppendTag(b, protowire.Number(j+2), protowire.BytesType), m)
		}
		request = protowire.AppendBytes(protowire.AppendTag(request, 6, protowire.BytesType), b)
	}
	return request
}

// categories are modes as they are read.
type categories struct {
	data cosi.AccessMode
	cosi.Metadata
}

func read(t *testing.T, wire []byte) ([]categories, error) {
	t.Helper()
	req := &cosipb.DriverGrantBucketAccessRequestB2{}
	if err := proto.Unmarshal(wire, req); err != nil {
		t.Fatal(err)
	}
	buckets, _, err := accessed(req.GetBuckets())
	var modes []categories
	for _, b := range buckets {
		modes = append(modes, categories{b.Mode, b.Metadata})
	}
	return modes, err
}

// Each combination of modes is read in the enum of the generation that sends it,
// or refused.
func TestEveryCombinationOfModes(t *testing.T) {
	t.Parallel()
	const anyMode = 1 // of B2 and later
	one := map[int]cosi.AccessMode{1: cosi.ReadWrite, 2: cosi.ReadOnly, 3: cosi.WriteOnly}
	three := map[int]cosi.AccessMode{anyMode: "", 2: cosi.ReadWrite, 3: cosi.ReadOnly, 4: cosi.WriteOnly}
	granted := 0
	for data := absent; data <= 5; data++ {
		for object := absent; object <= 5; object++ {
			for bucket := absent; bucket <= 5; bucket++ {
				var want categories
				var ok bool
				if object == absent && bucket == absent {
					want.data, ok = one[data]
				} else {
					var known [3]bool
					want.data, known[0] = three[data]
					want.ObjectMetadata, known[1] = three[object]
					want.BucketMetadata, known[2] = three[bucket]
					ok = known == [3]bool{true, true, true}
				}
				got, err := read(t, grantOf([3]int{data, object, bucket}))
				switch {
				case ok && (err != nil || got[0] != want):
					t.Errorf("modes %d, %d and %d are read as %q, %v; want %q", data, object, bucket, got, err, want)
				case !ok && !fault.Is(err, fault.InvalidArgument):
					t.Errorf("modes %d, %d and %d are read as %q, %v; want InvalidArgument", data, object, bucket, got, err)
				case ok:
					granted++
				}
			}
		}
	}
	if granted != 3+4*4*4 {
		t.Errorf("%d combinations are granted, want 3 of the first generations and 64 of the later ones", granted)
	}
}

// What our own types of the first generation write is what it wrote.
func TestFirstGenerationsModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[cosipb.AccessMode_Mode]cosi.AccessMode{
		cosipb.AccessMode_READ_WRITE: cosi.ReadWrite, cosipb.AccessMode_READ_ONLY: cosi.ReadOnly, cosipb.AccessMode_WRITE_ONLY: cosi.WriteOnly,
	} {
		wire, err := proto.Marshal(&cosipb.DriverGrantBucketAccessRequest{Buckets: []*cosipb.DriverGrantBucketAccessRequest_AccessedBucket{
			{BucketId: "main.team.b-0", AccessMode: &cosipb.AccessMode{Mode: mode}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, wire); err != nil || got[0].data != want || got[0].Metadata != (cosi.Metadata{}) {
			t.Errorf("%s is read as %q, %v", mode, got, err)
		}
	}
}

// One request is of one generation.
func TestModesOfTwoGenerations(t *testing.T) {
	t.Parallel()
	first, later := [3]int{2, absent, absent}, [3]int{2, 1, 1}
	for _, buckets := range [][][3]int{{first, later}, {later, first}, {first, first, later}} {
		if got, err := read(t, grantOf(buckets...)); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%v is read as %q, %v; want InvalidArgument", buckets, got, err)
		}
	}
	if got, err := read(t, grantOf(later, later)); err != nil || got[0].data != cosi.ReadWrite || got[1].data != cosi.ReadWrite {
		t.Errorf("two buckets of a later generation are read as %q, %v", got, err)
	}
}

// Whatever a request holds, a mode that is granted is what its sender meant: what
// the first generation's type has no place for is of a later one.
func FuzzModes(f *testing.F) {
	for mode := range 5 {
		f.Add(grantOf([3]int{mode, absent, absent}))
		f.Add(grantOf([3]int{mode, 1, 1}, [3]int{3, 1, 1}))
	}
	f.Add([]byte("2\x06\x12\x02\b\x02 \x00")) // field 4 of a bucket is a number
	f.Fuzz(func(t *testing.T, wire []byte) {
		first, later := &cosipb.DriverGrantBucketAccessRequest{}, &cosipb.DriverGrantBucketAccessRequestB2{}
		if proto.Unmarshal(wire, first) != nil || proto.Unmarshal(wire, later) != nil {
			return
		}
		buckets, _, err := accessed(later.GetBuckets())
		if err != nil {
			return
		}
		for i, b := range buckets {
			var want cosi.AccessMode
			number := int(first.GetBuckets()[i].GetAccessMode().GetMode())
			split := false
			for unknown := first.GetBuckets()[i].ProtoReflect().GetUnknown(); len(unknown) > 0; {
				field, kind, n := protowire.ConsumeField(unknown)
				split = split || (field == 3 || field == 4) && kind == protowire.BytesType // no other is a mode
				unknown = unknown[n:]
			}
			if split {
				want = []cosi.AccessMode{"none", "", cosi.ReadWrite, cosi.ReadOnly, cosi.WriteOnly}[number]
			} else {
				want = []cosi.AccessMode{"none", cosi.ReadWrite, cosi.ReadOnly, cosi.WriteOnly}[number]
			}
			if b.Mode != want || !split && b.Metadata != (cosi.Metadata{}) {
				t.Errorf("mode %d, of a later generation: %v, is read as %q and %v", number, split, b.Mode, b.Metadata)
			}
		}
	})
}
