package v1alpha2

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// published is COSI v1alpha2 as upstream has published it: proto/cosi.proto at
// commit ee00c2690b877f9af3733acb8d03ea2c2a4bd521 of
// github.com/kubernetes-sigs/container-object-storage-interface. It is written
// down here, and not generated from our own file, so that a slip in that file
// is seen.
const published = `
package sigs.k8s.io.cosi.v1alpha2 proto3
message DriverGetInfoRequest
message DriverGetInfoResponse
message DriverGetInfoResponse name=1 optional string
message DriverGetInfoResponse supported_protocols=2 repeated ObjectProtocol
message ObjectProtocol
message ObjectProtocol type=1 optional ObjectProtocol.Type
enum ObjectProtocol.Type UNKNOWN=0
enum ObjectProtocol.Type S3=1
enum ObjectProtocol.Type AZURE=2
enum ObjectProtocol.Type GCS=3
message ObjectProtocolAndBucketInfo
message ObjectProtocolAndBucketInfo s3=1 optional S3BucketInfo
message ObjectProtocolAndBucketInfo azure=2 optional AzureBucketInfo
message ObjectProtocolAndBucketInfo gcs=3 optional GcsBucketInfo
message CredentialInfo
message CredentialInfo s3=1 optional S3CredentialInfo
message CredentialInfo azure=2 optional AzureCredentialInfo
message CredentialInfo gcs=3 optional GcsCredentialInfo
message S3BucketInfo
message S3BucketInfo bucket_id=1 optional string
message S3BucketInfo endpoint=2 optional string
message S3BucketInfo region=3 optional string
message S3BucketInfo addressing_style=4 optional S3AddressingStyle
message S3CredentialInfo
message S3CredentialInfo access_key_id=1 optional string
message S3CredentialInfo access_secret_key=2 optional string
message S3AddressingStyle
message S3AddressingStyle style=1 optional S3AddressingStyle.Style
enum S3AddressingStyle.Style UNKNOWN=0
enum S3AddressingStyle.Style PATH=1
enum S3AddressingStyle.Style VIRTUAL=2
message AzureBucketInfo
message AzureBucketInfo storage_account=1 optional string
message AzureCredentialInfo
message AzureCredentialInfo access_token=1 optional string
message AzureCredentialInfo expiry_timestamp=2 optional string
message GcsBucketInfo
message GcsBucketInfo project_id=1 optional string
message GcsBucketInfo bucket_name=2 optional string
message GcsCredentialInfo
message GcsCredentialInfo access_id=1 optional string
message GcsCredentialInfo access_secret=2 optional string
message GcsCredentialInfo private_key_name=3 optional string
message GcsCredentialInfo service_account=4 optional string
message AuthenticationType
message AuthenticationType type=1 optional AuthenticationType.Type
enum AuthenticationType.Type UNKNOWN=0
enum AuthenticationType.Type KEY=1
enum AuthenticationType.Type SERVICE_ACCOUNT=2
message AccessMode
message AccessMode mode=1 optional AccessMode.Mode
enum AccessMode.Mode UNKNOWN=0
enum AccessMode.Mode READ_WRITE=1
enum AccessMode.Mode READ_ONLY=2
enum AccessMode.Mode WRITE_ONLY=3
message DriverCreateBucketRequest
message DriverCreateBucketRequest name=1 optional string
message DriverCreateBucketRequest protocols=2 repeated ObjectProtocol
message DriverCreateBucketRequest parameters=4 repeated map<string,string>
message DriverCreateBucketResponse
message DriverCreateBucketResponse bucket_id=1 optional string
message DriverCreateBucketResponse protocols=2 optional ObjectProtocolAndBucketInfo
message DriverGetExistingBucketRequest
message DriverGetExistingBucketRequest existing_bucket_id=1 optional string
message DriverGetExistingBucketRequest protocols=2 repeated ObjectProtocol
message DriverGetExistingBucketRequest parameters=4 repeated map<string,string>
message DriverGetExistingBucketResponse
message DriverGetExistingBucketResponse bucket_id=1 optional string
message DriverGetExistingBucketResponse protocols=2 optional ObjectProtocolAndBucketInfo
message DriverDeleteBucketRequest
message DriverDeleteBucketRequest bucket_id=1 optional string
message DriverDeleteBucketRequest parameters=4 repeated map<string,string>
message DriverDeleteBucketResponse
message DriverGrantBucketAccessRequest
message DriverGrantBucketAccessRequest account_name=1 optional string
message DriverGrantBucketAccessRequest protocol=2 optional ObjectProtocol
message DriverGrantBucketAccessRequest authentication_type=3 optional AuthenticationType
message DriverGrantBucketAccessRequest service_account_name=4 optional string
message DriverGrantBucketAccessRequest parameters=5 repeated map<string,string>
message DriverGrantBucketAccessRequest buckets=6 repeated DriverGrantBucketAccessRequest.AccessedBucket
message DriverGrantBucketAccessRequest.AccessedBucket
message DriverGrantBucketAccessRequest.AccessedBucket bucket_id=1 optional string
message DriverGrantBucketAccessRequest.AccessedBucket access_mode=2 optional AccessMode
message DriverGrantBucketAccessResponse
message DriverGrantBucketAccessResponse account_id=1 optional string
message DriverGrantBucketAccessResponse buckets=2 repeated DriverGrantBucketAccessResponse.BucketInfo
message DriverGrantBucketAccessResponse credentials=3 optional CredentialInfo
message DriverGrantBucketAccessResponse.BucketInfo
message DriverGrantBucketAccessResponse.BucketInfo bucket_id=1 optional string
message DriverGrantBucketAccessResponse.BucketInfo bucket_info=2 optional ObjectProtocolAndBucketInfo
message DriverRevokeBucketAccessRequest
message DriverRevokeBucketAccessRequest account_id=1 optional string
message DriverRevokeBucketAccessRequest protocol=2 optional ObjectProtocol
message DriverRevokeBucketAccessRequest authentication_type=3 optional AuthenticationType
message DriverRevokeBucketAccessRequest service_account_name=4 optional string
message DriverRevokeBucketAccessRequest parameters=5 repeated map<string,string>
message DriverRevokeBucketAccessRequest buckets=6 repeated DriverRevokeBucketAccessRequest.AccessedBucket
message DriverRevokeBucketAccessRequest.AccessedBucket
message DriverRevokeBucketAccessRequest.AccessedBucket bucket_id=1 optional string
message DriverRevokeBucketAccessResponse
service Identity DriverGetInfo DriverGetInfoRequest DriverGetInfoResponse false false
service Provisioner DriverCreateBucket DriverCreateBucketRequest DriverCreateBucketResponse false false
service Provisioner DriverGetExistingBucket DriverGetExistingBucketRequest DriverGetExistingBucketResponse false false
service Provisioner DriverDeleteBucket DriverDeleteBucketRequest DriverDeleteBucketResponse false false
service Provisioner DriverGrantBucketAccess DriverGrantBucketAccessRequest DriverGrantBucketAccessResponse false false
service Provisioner DriverRevokeBucketAccess DriverRevokeBucketAccessRequest DriverRevokeBucketAccessResponse false false`

// later is what the generations after that have changed, as v1alpha2.md tells them
// apart; their messages have names of our own.
const later = `
message DriverGenerateBucketIdRequest
message DriverGenerateBucketIdRequest name=1 optional string
message DriverGenerateBucketIdRequest protocols=2 repeated ObjectProtocol
message DriverGenerateBucketIdRequest parameters=4 repeated map<string,string>
message DriverGenerateBucketIdResponse
message DriverGenerateBucketIdResponse bucket_id=1 optional string
message DriverCreateBucketResponseC1
message DriverCreateBucketResponseC1 protocols=1 optional ObjectProtocolAndBucketInfo
message DriverCreateBucketResponseC1 draft_protocols=2 optional ObjectProtocolAndBucketInfo
message DriverGetBucketRequest
message DriverGetBucketRequest bucket_id=1 optional string
message DriverGetBucketRequest protocols=2 repeated ObjectProtocol
message DriverGetBucketRequest parameters=4 repeated map<string,string>
message DriverGetBucketResponse
message DriverGetBucketResponse bucket_id=1 optional string
message DriverGetBucketResponse protocols=2 optional ObjectProtocolAndBucketInfo
message AccessModeB2
message AccessModeB2 mode=1 optional AccessModeB2.Mode
enum AccessModeB2.Mode UNKNOWN=0
enum AccessModeB2.Mode ANY=1
enum AccessModeB2.Mode READ_WRITE=2
enum AccessModeB2.Mode READ_ONLY=3
enum AccessModeB2.Mode WRITE_ONLY=4
message AccessedBucketB2
message AccessedBucketB2 bucket_id=1 optional string
message AccessedBucketB2 object_data_access_mode=2 optional AccessModeB2
message AccessedBucketB2 object_metadata_access_mode=3 optional AccessModeB2
message AccessedBucketB2 bucket_metadata_access_mode=4 optional AccessModeB2
message DriverGrantBucketAccessRequestB2
message DriverGrantBucketAccessRequestB2 account=1 optional string
message DriverGrantBucketAccessRequestB2 protocol=2 optional ObjectProtocol
message DriverGrantBucketAccessRequestB2 authentication_type=3 optional AuthenticationType
message DriverGrantBucketAccessRequestB2 service_account_name=4 optional string
message DriverGrantBucketAccessRequestB2 parameters=5 repeated map<string,string>
message DriverGrantBucketAccessRequestB2 buckets=6 repeated AccessedBucketB2
message DriverGenerateBucketAccessIdRequest
message DriverGenerateBucketAccessIdRequest account_name=1 optional string
message DriverGenerateBucketAccessIdRequest protocol=2 optional ObjectProtocol
message DriverGenerateBucketAccessIdRequest authentication_type=3 optional AuthenticationType
message DriverGenerateBucketAccessIdRequest service_account_name=4 optional string
message DriverGenerateBucketAccessIdRequest parameters=5 repeated map<string,string>
message DriverGenerateBucketAccessIdRequest buckets=6 repeated AccessedBucketB2
message DriverGenerateBucketAccessIdResponse
message DriverGenerateBucketAccessIdResponse account_id=1 optional string
service Provisioner DriverGenerateBucketId DriverGenerateBucketIdRequest DriverGenerateBucketIdResponse false false
service Provisioner DriverGetBucket DriverGetBucketRequest DriverGetBucketResponse false false
service Provisioner DriverGenerateBucketAccessId DriverGenerateBucketAccessIdRequest DriverGenerateBucketAccessIdResponse false false`

func TestWireIsThePublishedOne(t *testing.T) {
	t.Parallel()
	file := File_cosi_v1alpha2_proto
	want := strings.Split(strings.TrimSpace(published+later), "\n")
	got := wire(file)
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("not published: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	if n := file.Extensions().Len(); n > 0 {
		t.Errorf("%d extensions, which cannot be linked beside v1alpha1's", n)
	}
}

// wire is all of a file that decides what its messages look like on the wire
// and which methods carry them, one fact a line.
func wire(file protoreflect.FileDescriptor) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	local := func(d protoreflect.Descriptor) string {
		return strings.TrimPrefix(string(d.FullName()), string(file.Package())+".")
	}
	enums := func(list protoreflect.EnumDescriptors) {
		for i := range list.Len() {
			values := list.Get(i).Values()
			for j := range values.Len() {
				add("enum %s %s=%d", local(list.Get(i)), values.Get(j).Name(), values.Get(j).Number())
			}
		}
	}
	var messages func(protoreflect.MessageDescriptors)
	messages = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			m := list.Get(i)
			if m.IsMapEntry() {
				continue
			}
			add("message %s", local(m))
			for j := range m.Fields().Len() {
				f := m.Fields().Get(j)
				add("message %s %s=%d %s %s", local(m), f.Name(), f.Number(), f.Cardinality(), typeOf(f, local))
			}
			enums(m.Enums())
			messages(m.Messages())
		}
	}
	add("package %s %s", file.Package(), file.Syntax())
	messages(file.Messages())
	enums(file.Enums())
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			add("service %s %s %s %s %v %v", local(s), m.Name(), local(m.Input()), local(m.Output()), m.IsStreamingClient(), m.IsStreamingServer())
		}
	}
	return out
}

func typeOf(f protoreflect.FieldDescriptor, local func(protoreflect.Descriptor) string) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s,%s>", typeOf(f.MapKey(), local), typeOf(f.MapValue(), local))
	case f.Message() != nil:
		return local(f.Message())
	case f.Enum() != nil:
		return local(f.Enum())
	}
	return f.Kind().String()
}
