package delivery

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// typed is how the type of a Secret in a format begins. A Secret's type never changes, so
// no Secret of a user's becomes the driver's.
const typed = "contract-cosi-driver/"

// format is a form that applications read. All its entries are the driver's; others stay.
type format struct {
	name   string
	bucket provisioner.Bucket
	ca     []byte // certificates as PEM
}

// ca are the certificates for the format that has them.
func (s *Secrets) ca(d provisioner.Delivery) ([]byte, error) {
	if !slices.Contains(d.Formats, params.FileFormat) {
		return nil, nil
	}
	text, err := s.CA(d.Access.Backend)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the CA file of backend %s cannot be read", d.Access.Backend)
	}
	return certificates(text), nil
}

// formatted are the Secrets of an access in the formats that its class asks for, beside
// those of the sidecar.
func formatted(beside []target, formats []string, ca []byte) []target {
	var out []target
	for _, t := range beside {
		for _, name := range formats {
			f := format{name: name, bucket: t.bucket}
			if name == params.FileFormat {
				f.ca = ca
			}
			out = append(out, target{formatName(t.secret, name), t.bucket, f})
		}
	}
	return out
}

func formatName(beside, format string) string { return beside + "-" + format }

// Withdraw implements provisioner.Deliverer.
func (s *Secrets) Withdraw(ctx context.Context, of cosi.AccountID, formats []string) error {
	if s.remote != nil {
		_, err := s.remote.ask(ctx, asked{Delivery: provisioner.Delivery{Access: of, Formats: formats}, Withdraw: true})
		return err
	}
	access, _, err := s.locate(ctx, of)
	if err != nil {
		return err
	}
	names := []string{access.Spec.CredentialsSecretName} // "" in v1alpha2
	for _, claim := range access.Spec.BucketClaims {
		names = append(names, claim.AccessSecretName)
	}
	for _, beside := range names {
		for _, name := range formats {
			if beside == "" {
				continue
			}
			if one := s.remove(ctx, access, of, format{name: name}, formatName(beside, name)); one != nil && !fault.Is(one, fault.NotFound) {
				err = one
			}
		}
	}
	return err
}

// remove deletes a Secret in a format, if it is the access's.
func (s *Secrets) remove(ctx context.Context, access *objects.BucketAccess, of cosi.AccountID, f format, name string) error {
	at := func(r *rest.Request) *rest.Request { return r.Namespace(access.Namespace).Name(name) }
	have := &corev1.Secret{}
	if err := s.secrets.Do(ctx, "get", have, at); err != nil || !f.owns(access, have) {
		return err
	}
	err := s.change(ctx, "delete", nil, func(r *rest.Request) *rest.Request {
		return at(r).Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
	})
	if held, _ := f.read(have, secret.KeyPair{}); err == nil {
		audit(ctx, "Secret deleted", of, access.Namespace+"/"+name, held)
	}
	return err
}

func (f format) read(s *corev1.Secret, key secret.KeyPair) (held string, whole bool) {
	held = string(s.Data["AWS_ACCESS_KEY_ID"])
	if f.name == params.FileFormat {
		_, rest, _ := strings.Cut(string(s.Data["credentials"]), idLine)
		held, _, _ = strings.Cut(rest, "\n")
	}
	want, err := f.render(key)
	for name, text := range want {
		whole = err == nil && bytes.Equal(s.Data[name], text)
		if !whole {
			break
		}
	}
	return held, whole
}

func (f format) owns(access *objects.BucketAccess, s *corev1.Secret) bool {
	return s.Type == corev1.SecretType(typed+f.name) && owned(access, s)
}

func (f format) own(s *corev1.Secret, access *objects.BucketAccess, version string) {
	s.Type = corev1.SecretType(typed + f.name)
	setOwner(s, access, version)
}

func (f format) write(s *corev1.Secret, _ *objects.BucketAccess, _ provisioner.Bucket, key secret.KeyPair) error {
	want, err := f.render(key)
	if err != nil {
		return err
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for name, text := range want {
		if s.Data[name] = text; text == nil {
			delete(s.Data, name)
		}
	}
	return nil
}

// render returns the entries of a format; nil is one that is not there.
func (f format) render(key secret.KeyPair) (map[string][]byte, error) {
	e, secretKey := f.bucket.Endpoint, key.SecretAccessKey.Reveal()
	for what, value := range map[string]string{
		"access key id": key.AccessKeyID, "secret access key": secretKey, "endpoint": e.URL, "region": e.Region, "name of the bucket": f.bucket.ID.Bucket,
	} {
		switch {
		case value == "" || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
			return nil, fmt.Errorf("the %s is empty, or has a control character", what)
		case f.name == params.FileFormat && !plain.MatchString(value):
			return nil, fmt.Errorf("the %s has a character that not all of the files can hold; use secretFormat: env", what)
		}
	}
	if f.name == params.EnvFormat {
		return map[string][]byte{
			"AWS_ACCESS_KEY_ID": []byte(key.AccessKeyID), "AWS_SECRET_ACCESS_KEY": []byte(secretKey),
			"AWS_ENDPOINT_URL_S3": []byte(e.URL), "AWS_REGION": []byte(e.Region), "BUCKET_NAME": []byte(f.bucket.ID.Bucket),
		}, nil
	}
	at, err := url.Parse(e.URL)
	if err != nil || at.Host == "" {
		return nil, errors.New("the endpoint is no URL with a host")
	}
	style, host := "virtual", "%(bucket)s."+at.Host
	if e.PathStyle {
		style, host = "path", at.Host
	}
	return map[string][]byte{
		"credentials": fmt.Appendf(nil, "[default]\n"+idLine+"%s\naws_secret_access_key = %s\n", key.AccessKeyID, secretKey),
		"config": fmt.Appendf(nil, `[default]
region = %s
services = bucket
request_checksum_calculation = when_required
response_checksum_validation = when_required
s3 =
  addressing_style = %s

[services bucket]
s3 =
  endpoint_url = %s
`, e.Region, style, e.URL),
		"rclone.conf": fmt.Appendf(nil, `[s3]
type = s3
provider = Other
access_key_id = %s
secret_access_key = %s
endpoint = %s
region = %s
force_path_style = %t
no_check_bucket = true

[bucket]
type = alias
remote = s3:%s
`, key.AccessKeyID, secretKey, e.URL, e.Region, e.PathStyle, f.bucket.ID.Bucket),
		"s3cfg": fmt.Appendf(nil, `[default]
access_key = %s
secret_key = %s
host_base = %s
host_bucket = %s
use_https = %t
bucket_location = %s
`, key.AccessKeyID, secretKey, at.Host, host, at.Scheme == "https", e.Region),
		"ca.crt": f.ca,
	}, nil
}

// idLine is what the access key id stands behind in a credentials file.
const idLine = "aws_access_key_id = "

// plain is what all of the files can hold as it is. None of their formats has an escape
// that the others know: quotes, %, $, # and ; mean something in one or the other.
var plain = regexp.MustCompile(`^[A-Za-z0-9/+=._:@,~!*()&\[\]-]+$`)

// certificates are those of a CA file, and nothing else that may be in it.
func certificates(text []byte) (out []byte) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
	}
	return out
}
