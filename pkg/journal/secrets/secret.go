package secrets

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// record is an entry with what the API server knows its Secret by.
type record struct {
	journal.Entry
	revision uint64 // the Secret's resourceVersion, which grows with every write in the cluster
	uid      types.UID
	write    string // the writeAnnotation
	damage   error  // why the entry cannot be used; nil if it can
}

// content is what dataKey holds.
type content struct {
	Key   journal.Key     `json:"key"`
	Refs  []journal.Key   `json:"refs,omitempty"`
	Value json.RawMessage `json:"value"`
}

// secretOf writes a record as a Secret.
func secretOf(namespace, owner string, r record) (*corev1.Secret, error) {
	text, err := json.Marshal(content{r.Key, r.Refs, r.Value})
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "journal record %s cannot be written as JSON", r.Key)
	}
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: nameOf(owner, r.Key), UID: r.uid, ResourceVersion: r.Version,
			Labels:      map[string]string{kube.OwnerLabel: kube.OwnerMark(owner), kindLabel: string(r.Key.Kind)},
			Annotations: map[string]string{ownerAnnotation: owner, idAnnotation: r.Key.ID, writeAnnotation: r.write},
		},
		Type: secretType,
		Data: map[string][]byte{dataKey: text},
	}, nil
}

// recordOf reads a Secret. What is there under a record's name and is none
// comes back as damage: it must never be taken for "there is no record".
func recordOf(owner string, s *corev1.Secret) (record, error) {
	revision, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
	if err != nil {
		return record{}, fault.Wrap(fault.Internal, err, "the Kubernetes API server gave Secret %s a resourceVersion that is no number", s.Name)
	}
	r := record{revision: revision, uid: s.UID, write: s.Annotations[writeAnnotation]}
	var c content
	switch {
	case s.Type != secretType || s.Labels[kube.OwnerLabel] != kube.OwnerMark(owner):
		err = fmt.Errorf("its type is not %s or its label %s is not this driver's", secretType, kube.OwnerLabel)
	case s.Annotations[ownerAnnotation] != owner:
		err = fmt.Errorf("its annotation %s names another owner", ownerAnnotation)
	default:
		if err = json.Unmarshal(s.Data[dataKey], &c); err != nil {
			err = fmt.Errorf("its %s cannot be understood", dataKey)
		} else if nameOf(owner, c.Key) != s.Name {
			err = fmt.Errorf("its %s is the record of something else", dataKey)
		}
	}
	r.Entry = journal.Entry{Key: c.Key, Refs: c.Refs, Value: c.Value, Version: s.ResourceVersion}
	if err != nil {
		r.Key = journal.Key{Kind: journal.RecordKind(s.Labels[kindLabel]), ID: s.Annotations[idAnnotation]}
		r.damage = fault.New(fault.Internal, "Secret %s/%s is not a journal record of this driver (%s); restore it from a backup, or remove it", s.Namespace, s.Name, err)
	}
	return r, nil
}
