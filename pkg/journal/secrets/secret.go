package secrets

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
)

// What a record's Secret carries. The record itself, with its key and what it
// hangs on, is in one data key, so that a Secret that was saved with kubectl is
// a whole record. Names and label values have no room for an owner mark of any
// form, so its hash stands there and the mark itself in an annotation.
const (
	secretType = "contract-cosi-driver/journal"

	kindLabel = "contract-cosi-driver/kind"

	ownerAnnotation = kube.OwnerLabel
	idAnnotation    = "contract-cosi-driver/id"
	// writeAnnotation is random and new with every write. It tells a writer
	// whose answer was lost whether what stands there is what it wrote.
	writeAnnotation = "contract-cosi-driver/write"

	dataKey = "record.json"
)

// nameOf is a pure function of the owner and the key, which is what makes
// "create only if absent" hold between two drivers. It shows the id, where the
// id can stand in a name of Kubernetes.
func nameOf(owner string, key journal.Key) string {
	name := string(key.Kind) + "." + key.ID + "." + kube.OwnerMark(owner)
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		sum := sha256.Sum256([]byte(key.ID))
		name = string(key.Kind) + "-" + hex.EncodeToString(sum[:20]) + "." + kube.OwnerMark(owner)
	}
	return name
}

// strayOf is the key under which a Secret is known that does not say whose record
// it is. It is the record's own, unless the name shows that as a hash only.
func strayOf(owner, name string) journal.Key {
	if stem, ours := strings.CutSuffix(name, "."+kube.OwnerMark(owner)); ours {
		if kind, id, ok := strings.Cut(stem, "."); ok {
			return journal.Key{Kind: journal.RecordKind(kind), ID: id}
		}
	}
	return journal.Key{Kind: journal.RecordKind(name)}
}

// record is an entry with what is known of its Secret.
type record struct {
	journal.Entry // its Version is the Secret's resourceVersion
	stray         journal.Key
	write         string // the writeAnnotation
}

// read reads the entry. Text that was saved with kubectl may be spaced in another way.
func (r *record) read(text []byte) (ok bool) {
	if r.Entry, ok = journal.ReadEntry(text); ok && json.Valid(r.Value) {
		return true
	}
	r.Entry = journal.Entry{}
	return json.Unmarshal(text, &r.Entry) == nil
}

// secretOf writes an entry as a Secret.
func secretOf(namespace, owner, write string, e journal.Entry) (*corev1.Secret, error) {
	version := ""
	if e.Version != 0 {
		version = strconv.FormatUint(e.Version, 10)
		e.Version = 0
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "journal record %s cannot be written as JSON", e.Key)
	}
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: nameOf(owner, e.Key), ResourceVersion: version,
			Labels:      map[string]string{kube.OwnerLabel: kube.OwnerMark(owner), kindLabel: string(e.Key.Kind)},
			Annotations: map[string]string{ownerAnnotation: owner, idAnnotation: e.Key.ID, writeAnnotation: write},
		},
		Type: secretType,
		Data: map[string][]byte{dataKey: text},
	}, nil
}

// recordOf reads a Secret. What is there under a record's name and is none
// comes back as damage: it must never be taken for "there is no record".
func recordOf(owner string, s *corev1.Secret) (record, error) {
	version, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
	if err != nil {
		return record{}, fault.Wrap(fault.Internal, err, "the Kubernetes API server gave Secret %s a resourceVersion that is no number", s.Name)
	}
	r := record{stray: strayOf(owner, s.Name), write: s.Annotations[writeAnnotation]}
	switch {
	case s.Type != secretType || s.Labels[kube.OwnerLabel] != kube.OwnerMark(owner):
		err = fmt.Errorf("its type is not %s or its label %s is not this driver's", secretType, kube.OwnerLabel)
	case s.Annotations[ownerAnnotation] != owner:
		err = fmt.Errorf("its annotation %s names another owner", ownerAnnotation)
	case !r.read(s.Data[dataKey]):
		err = fmt.Errorf("its %s cannot be understood", dataKey)
	case nameOf(owner, r.Key) != s.Name:
		err = fmt.Errorf("its %s is the record of something else", dataKey)
	}
	if err != nil {
		r.Entry = journal.Entry{Key: journal.Key{Kind: journal.RecordKind(s.Labels[kindLabel]), ID: s.Annotations[idAnnotation]}}
		if nameOf(owner, r.Key) != s.Name {
			r.Key = r.stray
		}
		r.Damage = fault.New(fault.Internal, "Secret %s/%s is not a journal record of this driver (%s); restore it from a backup, or remove it", s.Namespace, s.Name, err)
	}
	r.Version = version
	return r, nil
}
