package delivery

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// The sidecars' finalizers on Secrets.
const (
	finalizerV1alpha1 = "cosi.objectstorage.k8s.io/secret-protection"
	finalizerV1alpha2 = "objectstorage.k8s.io/protection"
)

// bucketInfo is v1alpha1's form: one entry, in JSON.
type bucketInfo struct{}

// entry is its name.
const entry = "BucketInfo"

// fields is a JSON object that keeps what it does not know.
type fields map[string]json.RawMessage

func (f fields) object(name string) fields {
	var out fields
	if json.Unmarshal(f[name], &out) != nil || out == nil {
		out = fields{}
	}
	return out
}

func (f fields) text(name string) string {
	var out string
	_ = json.Unmarshal(f[name], &out) // what is no text is not what was written
	return out
}

func (f fields) set(name string, v any) error {
	text, err := json.Marshal(v)
	f[name] = text
	return err
}

func infoOf(s *corev1.Secret) fields {
	var info fields
	_ = json.Unmarshal(s.Data[entry], &info) // what is no JSON is not what was written
	return info
}

func (bucketInfo) read(s *corev1.Secret, key secret.KeyPair) (held string, whole bool) {
	pair := infoOf(s).object("spec").object("secretS3")
	held = pair.text("accessKeyID")
	return held, held == key.AccessKeyID && pair.text("accessSecretKey") == key.SecretAccessKey.Reveal()
}

func (bucketInfo) owns(access *objects.BucketAccess, s *corev1.Secret) bool {
	return slices.Contains(s.Finalizers, finalizerV1alpha1) && infoOf(s).object("metadata").text("name") == infoName(access)
}

func infoName(access *objects.BucketAccess) string { return "bc-" + string(access.UID) }

func (bucketInfo) write(s *corev1.Secret, access *objects.BucketAccess, bucket provisioner.Bucket, key secret.KeyPair) error {
	info := fields{}
	if text, is := s.Data[entry]; is {
		if err := json.Unmarshal(text, &info); err != nil {
			return err
		}
	}
	spec := info.object("spec")
	pair := spec.object("secretS3")
	var errs []error
	put := func(in fields, name string, v any, always bool) {
		if _, is := in[name]; always || !is {
			errs = append(errs, in.set(name, v))
		}
	}
	put(pair, "accessKeyID", key.AccessKeyID, true)
	put(pair, "accessSecretKey", key.SecretAccessKey.Reveal(), true)
	put(pair, "endpoint", bucket.Endpoint.URL, false)
	put(pair, "region", bucket.Endpoint.Region, false)
	put(spec, "secretS3", pair, true)
	put(spec, "secretAzure", nil, false)
	put(spec, "bucketName", bucket.ID.Bucket, false)
	put(spec, "authenticationType", "Key", false)
	put(spec, "protocols", []string{access.Spec.Protocol}, false)
	put(info, "spec", spec, true)
	put(info, "metadata", map[string]any{"name": infoName(access), "creationTimestamp": nil}, false)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	text, err := json.Marshal(info)
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	s.Data[entry] = text
	return err
}

func (bucketInfo) own(s *corev1.Secret, _ *objects.BucketAccess, _ string) {
	s.Finalizers = []string{finalizerV1alpha1}
}

// entries is v1alpha2's form: an entry for each thing. The enhancement proposal names
// those of the key in another way, which is kept to where it is found.
type entries struct{}

var keyEntries = []struct{ id, secret string }{
	{"COSI_S3_ACCESS_KEY_ID", "COSI_S3_ACCESS_SECRET_KEY"},
	{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
}

func (entries) read(s *corev1.Secret, key secret.KeyPair) (held string, whole bool) {
	for _, e := range keyEntries {
		if id, is := s.Data[e.id]; is {
			return string(id), string(id) == key.AccessKeyID && string(s.Data[e.secret]) == key.SecretAccessKey.Reveal()
		}
	}
	return "", false
}

func (entries) owns(access *objects.BucketAccess, s *corev1.Secret) bool {
	return !strings.HasPrefix(string(s.Type), typed) && owned(access, s)
}

// owned reports whether an access is the controller of a Secret.
func owned(access *objects.BucketAccess, s *corev1.Secret) bool {
	owner := metav1.GetControllerOf(s)
	return owner != nil && owner.UID == access.UID
}

func (entries) write(s *corev1.Secret, _ *objects.BucketAccess, bucket provisioner.Bucket, key secret.KeyPair) error {
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	var before []byte // the key that is replaced; a user's own key stays
	found := false
	for _, e := range keyEntries {
		if id, is := s.Data[e.id]; is && (!found || bytes.Equal(id, before)) {
			s.Data[e.id], s.Data[e.secret] = []byte(key.AccessKeyID), []byte(key.SecretAccessKey.Reveal())
			before, found = id, true
		}
	}
	if found {
		return nil
	}
	style := "virtual"
	if bucket.Endpoint.PathStyle {
		style = "path"
	}
	for name, text := range map[string]string{
		"COSI_S3_BUCKET_ID": bucket.ID.Bucket, "COSI_S3_ENDPOINT": bucket.Endpoint.URL, "COSI_S3_REGION": bucket.Endpoint.Region,
		"COSI_S3_ADDRESSING_STYLE": style, keyEntries[0].id: key.AccessKeyID, keyEntries[0].secret: key.SecretAccessKey.Reveal(),
	} {
		s.Data[name] = []byte(text)
	}
	return nil
}

func (entries) own(s *corev1.Secret, access *objects.BucketAccess, version string) {
	s.Finalizers = []string{finalizerV1alpha2}
	setOwner(s, access, version)
}

func setOwner(s *corev1.Secret, access *objects.BucketAccess, version string) {
	controller := true
	s.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: objects.Group + "/" + version, Kind: "BucketAccess", Name: access.Name, UID: access.UID, Controller: &controller,
	}}
}
