package main

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
)

// recordBytes is what a record of the driver has, in a file or a Secret.
const recordBytes = 512

// journalWrites is how often the driver writes its journal in each RPC, which a
// test of test/integration holds.
var journalWrites = map[string]int{"create": 1, "grant": 2, "revoke": 1, "delete": 1}

// records are what a floor makes durable, where the driver keeps its journal.
type records interface {
	write(ctx context.Context, op, name string) error
}

// newRecords makes those of a side: in files of a directory or, given a kubeconfig, in Secrets.
func (o options) newRecords(dir, side string, inSecrets bool) (records, error) {
	if inSecrets {
		return newSecrets(o.kubeconfig, o.namespace, side)
	}
	return newDisk(dir, side)
}

type disk chan *os.File // one for each caller, as appending to one would queue them

func newDisk(dir, name string) (disk, error) {
	d := make(disk, parallelism)
	for i := range parallelism {
		file, err := os.OpenFile(filepath.Join(dir, name+"-"+strconv.Itoa(i)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		d <- file
	}
	return d, nil
}

func (d disk) write(_ context.Context, op, _ string) error {
	file := <-d
	defer func() { d <- file }()
	for range journalWrites[op] {
		if _, err := file.Write(make([]byte, recordBytes)); err != nil {
			return err
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			return err
		}
	}
	return nil
}

// inSecrets writes as many Secrets as the driver, with a bare client.
type inSecrets struct {
	client          *rest.RESTClient
	namespace, mark string // the mark is of this run and side
}

func newSecrets(kubeconfig, namespace, side string) (*inSecrets, error) {
	at, err := kube.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	at.APIPath, at.GroupVersion, at.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	at.ContentType, at.QPS = runtime.ContentTypeProtobuf, -1
	client, err := rest.RESTClientFor(at)
	return &inSecrets{client, namespace, side + "-" + strings.ToLower(rand.Text())}, err
}

func (s *inSecrets) write(ctx context.Context, op, name string) error {
	bucket, account := "bucket."+name+"."+s.mark, "account."+name+"."+s.mark
	switch op {
	case "create":
		_, err := s.put(ctx, bucket, "")
		return err
	case "grant":
		version, err := s.put(ctx, account, "")
		if err == nil {
			_, err = s.put(ctx, account, version)
		}
		return err
	case "revoke":
		bucket = account
	}
	return s.client.Delete().Namespace(s.namespace).Resource("secrets").Name(bucket).Do(ctx).Error()
}

// put creates a Secret, or replaces the one of a version. It returns its version.
func (s *inSecrets) put(ctx context.Context, name, version string) (string, error) {
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, ResourceVersion: version, Labels: map[string]string{"bench": s.mark}},
		Data:       map[string][]byte{"record.json": make([]byte, recordBytes)},
	}
	request := s.client.Post()
	if version != "" {
		request = s.client.Put().Name(name)
		secret.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
	out := &corev1.Secret{}
	err := request.Namespace(s.namespace).Resource("secrets").Body(secret).Do(ctx).Into(out)
	return out.ResourceVersion, err
}
