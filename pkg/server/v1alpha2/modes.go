package v1alpha2

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
)

// A and B1 have one mode, in field 2. B2 and later have three, in fields 2 to 4,
// each present, and other numbers: its READ_ONLY is A's WRITE_ONLY, its ANY is A's
// READ_WRITE. So field 2 is read only after a look at the other two.
var (
	oneMode = map[cosipb.AccessMode_Mode]cosi.AccessMode{
		cosipb.AccessMode_READ_WRITE: cosi.ReadWrite,
		cosipb.AccessMode_READ_ONLY:  cosi.ReadOnly,
		cosipb.AccessMode_WRITE_ONLY: cosi.WriteOnly,
	}
	threeModes = map[cosipb.AccessModeB2_Mode]cosi.AccessMode{
		cosipb.AccessModeB2_ANY:        "", // which leaves it to the class
		cosipb.AccessModeB2_READ_WRITE: cosi.ReadWrite,
		cosipb.AccessModeB2_READ_ONLY:  cosi.ReadOnly,
		cosipb.AccessModeB2_WRITE_ONLY: cosi.WriteOnly,
	}
)

// formOf tells the two apart.
func formOf(b *cosipb.AccessedBucketB2) form {
	if b.GetObjectMetadataAccessMode() != nil || b.GetBucketMetadataAccessMode() != nil {
		return grantsThreeModes
	}
	return grantsOneMode
}

// accessed reads the buckets of a grant, each with its mode, and in which form the
// modes came, if there are any.
func accessed(buckets []*cosipb.AccessedBucketB2) ([]provisioner.BucketRequest, form, error) {
	var modes form
	out := make([]provisioner.BucketRequest, len(buckets))
	for i, b := range buckets {
		if i == 0 {
			modes = formOf(b)
		}
		if formOf(b) != modes {
			return nil, "", fault.New(fault.InvalidArgument, "some buckets have one access mode and others three, which are of two generations of v1alpha2; use one of them for all buckets")
		}
		mode, metadata, err := modesOf(b)
		if err != nil {
			return nil, "", fault.In(err, "bucket %q", b.GetBucketId())
		}
		out[i] = provisioner.BucketRequest{ID: b.GetBucketId(), Mode: mode, Metadata: metadata}
	}
	return out, modes, nil
}

// modesOf reads what a key may do with the objects of a bucket, and with the
// metadata; a mode that is not set is "".
func modesOf(b *cosipb.AccessedBucketB2) (mode cosi.AccessMode, metadata cosi.Metadata, err error) {
	if formOf(b) == grantsOneMode {
		mode, ok := oneMode[cosipb.AccessMode_Mode(b.GetObjectDataAccessMode().GetMode())]
		if !ok {
			return "", metadata, fault.New(fault.InvalidArgument, "the access mode is missing or unknown; set accessMode: ReadWrite, ReadOnly or WriteOnly in the BucketAccess")
		}
		return mode, metadata, nil
	}
	for _, category := range []struct {
		name cosi.Category
		sent *cosipb.AccessModeB2
		mode *cosi.AccessMode
	}{
		{cosi.ObjectData, b.GetObjectDataAccessMode(), &mode},
		{cosi.ObjectMetadata, b.GetObjectMetadataAccessMode(), &metadata.ObjectMetadata},
		{cosi.BucketMetadata, b.GetBucketMetadataAccessMode(), &metadata.BucketMetadata},
	} {
		m, known := threeModes[category.sent.GetMode()]
		if !known {
			return "", metadata, fault.New(fault.InvalidArgument, "the access mode accessModes.%s is missing or unknown; set ReadWrite, ReadOnly or WriteOnly in the BucketAccess, or leave it out there", category.name)
		}
		*category.mode = m
	}
	return mode, metadata, nil
}
