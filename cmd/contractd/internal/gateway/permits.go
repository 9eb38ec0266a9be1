package gateway

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/versity/versitygw/auth"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// request is one action on one resource, as the gateway describes it.
type request struct {
	action    auth.Action
	bucket    string
	object    string // "" for the bucket itself
	condition map[string][]string
}

func parseResource(arn string) (bucket, object string) {
	bucket, object, _ = strings.Cut(strings.TrimPrefix(arn, auth.ResourceArnPrefix), "/")
	return bucket, object
}

// comesFrom reports whether the request's peer is in one of the blocks; no
// block means anywhere. A peer without an address is nowhere.
func (r request) comesFrom(sources []netip.Prefix) bool {
	if len(sources) == 0 {
		return true
	}
	peers := r.condition["aws:SourceIp"]
	if len(peers) == 0 {
		return false
	}
	peer, err := netip.ParseAddr(peers[0])
	return err == nil && slices.ContainsFunc(sources, func(block netip.Prefix) bool {
		return block.Contains(peer.Unmap())
	})
}

// permits reports whether a grant of the request's bucket covers the request.
func permits(grant store.Grant, r request) bool {
	switch effect := effectOf(r.action); {
	case !effect.in(grant):
		return false
	case len(grant.Actions) > 0 && !slices.Contains(grant.Actions, string(r.action)):
		return false
	case effect.onObject:
		return r.object != "" && strings.HasPrefix(r.object, grant.Prefix)
	case effect.listsKeys:
		return grant.Prefix == "" || listsBelow(r.condition["s3:prefix"], grant.Prefix)
	default:
		return true
	}
}

// listsBelow reports whether a listing asks for a prefix below the granted one.
// A path with dot segments is not below anything: the storage keeps objects in
// directories, and would resolve them.
func listsBelow(asked []string, granted string) bool {
	if len(asked) == 0 || !strings.HasPrefix(asked[0], granted) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(asked[0], "/"), func(segment string) bool {
		return segment == "." || segment == ".."
	})
}

// effect is what an action means for a scoped key.
type effect struct {
	modes     []store.Access
	onObject  bool // named by object, so a prefix limits the object
	listsKeys bool // shows object keys, so a prefix limits what is asked for

	of     category
	byData bool           // if the category has no mode, that of the objects decides
	with   []store.Access // that of the objects has to be one of them as well
}

// category is what an action is about.
type category int

const (
	objectData category = iota
	objectMetadata
	bucketMetadata
)

func (e effect) in(grant store.Grant) bool {
	decides := []store.Access{grant.Access, grant.ObjectMetadata, grant.BucketMetadata}[e.of]
	if decides == "" && e.byData {
		decides = grant.Access
	}
	return slices.Contains(e.modes, decides) && (e.with == nil || slices.Contains(e.with, grant.Access))
}

// effectOf is the table of modes. What is not in it, the bucket's policy, ACL and
// tags, the ACLs of objects, object lock and the bypass of it, no scoped key may
// change.
//
//   - HeadBucket is s3:ListBucket without a prefix: a key with a prefix cannot
//     do it.
//   - Old versions can be deleted by readWrite only: a writeOnly key, which may
//     sit in an exposed place, cannot destroy history. A lifecycle can do it too.
//   - Unfinished uploads of others can be listed by readWrite only, as it takes
//     both reading names and writing.
func effectOf(action auth.Action) effect {
	reads := []store.Access{store.ReadOnly, store.ReadWrite}
	writes := []store.Access{store.WriteOnly, store.ReadWrite}
	both := []store.Access{store.ReadWrite}
	switch action {
	case auth.GetBucketLocationAction:
		return effect{modes: reads, of: bucketMetadata, byData: true}
	case auth.GetBucketAclAction, auth.GetBucketCorsAction, auth.GetBucketPolicyAction, auth.GetBucketTaggingAction,
		auth.GetBucketVersioningAction, auth.GetLifecycleConfigurationAction:
		return effect{modes: reads, of: bucketMetadata}
	case auth.PutBucketCorsAction, auth.PutBucketVersioningAction:
		return effect{modes: writes, of: bucketMetadata}
	case auth.PutLifecycleConfigurationAction:
		return effect{modes: writes, of: bucketMetadata, with: both}
	case auth.ListBucketAction, auth.ListBucketVersionsAction:
		return effect{modes: reads, listsKeys: true}
	case auth.ListBucketMultipartUploadsAction:
		return effect{modes: both, listsKeys: true}
	case auth.GetObjectAction, auth.GetObjectVersionAction:
		return effect{modes: reads, onObject: true}
	case auth.GetObjectAttributesAction, auth.GetObjectVersionAttributesAction,
		auth.GetObjectTaggingAction, auth.GetObjectVersionTaggingAction:
		return effect{modes: reads, onObject: true, of: objectMetadata, byData: true}
	case auth.GetObjectAclAction:
		return effect{modes: reads, onObject: true, of: objectMetadata}
	case auth.PutObjectAction, auth.DeleteObjectAction,
		auth.AbortMultipartUploadAction, auth.ListMultipartUploadPartsAction:
		return effect{modes: writes, onObject: true}
	case auth.PutObjectTaggingAction, auth.PutObjectVersionTaggingAction,
		auth.DeleteObjectTaggingAction, auth.DeleteObjectVersionTaggingAction:
		return effect{modes: writes, onObject: true, of: objectMetadata, byData: true}
	case auth.DeleteObjectVersionAction:
		return effect{modes: both, onObject: true}
	}
	return effect{}
}

// verdict has the numbers of the gateway's own, unexported, decision type.
type verdict int

const (
	noMatch verdict = iota
	allow
	deny
)

// fill sets one decision for each resource and action. The type parameter
// stands for the gateway's decision type, which can be inferred but not named.
func fill[D ~int](matrix *[][]D, resources []string, actions []auth.Action, judge func(resource string, action auth.Action) verdict) {
	*matrix = make([][]D, len(resources))
	for i, resource := range resources {
		row := make([]D, len(actions))
		for j, action := range actions {
			row[j] = D(judge(resource, action))
		}
		(*matrix)[i] = row
	}
}
