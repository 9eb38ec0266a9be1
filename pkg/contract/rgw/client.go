package rgw

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// client makes the calls of the Admin Ops API, and the few of the IAM API that
// radosgw serves beside it (Ceph documentation, "Admin Operations" and "REST
// APIs for manipulating user policies").
type client struct {
	url string
	signed.Client
}

// user is what is read of a user. The service tells secrets with it.
type user struct {
	DisplayName string       `json:"display_name"`
	Suspended   int          `json:"suspended"`
	MaxBuckets  int64        `json:"max_buckets"`
	Keys        []key        `json:"keys"`
	Caps        []capability `json:"caps"`
	Quota       quota        `json:"user_quota"`
	Admin       any          `json:"admin"` // a string at release 16, a boolean later
	AccountID   string       `json:"account_id"`
}

// account is what is read of an account.
type account struct {
	Name       string `json:"name"`
	MaxBuckets int64  `json:"max_buckets"`
}

// capability is what a user may do at the Admin Ops API.
type capability struct {
	Type string `json:"type"`
	Perm string `json:"perm"`
}

type key struct {
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
}

// quota bounds what a bucket or all of a user hold; a negative bound is none.
type quota struct {
	Enabled    bool  `json:"enabled"`
	MaxSize    int64 `json:"max_size"` // bytes
	MaxObjects int64 `json:"max_objects"`
}

func (c *client) getUser(ctx context.Context, uid string) (user, error) {
	var u user
	err := c.admin(ctx, "GetUser", http.MethodGet, "user", "", url.Values{"uid": {uid}}, &u)
	return u, err
}

// userOfKey is the user that has a key.
func (c *client) userOfKey(ctx context.Context, accessKeyID string) (user, error) {
	var u user
	err := c.admin(ctx, "GetUser", http.MethodGet, "user", "", url.Values{"access-key": {accessKeyID}}, &u)
	return u, err
}

// createUser makes a user; Conflict if there is one. With the id of a key, the
// user gets that key with a secret of the service's making.
func (c *client) createUser(ctx context.Context, uid, accessKeyID string, attributes url.Values) (user, error) {
	attributes.Set("uid", uid)
	attributes.Set("generate-key", strconv.FormatBool(accessKeyID != ""))
	if accessKeyID != "" {
		attributes.Set("access-key", accessKeyID)
	}
	var u user
	err := c.admin(ctx, "CreateUser", http.MethodPut, "user", "", attributes, &u)
	return u, err
}

func (c *client) modifyUser(ctx context.Context, uid string, attributes url.Values) error {
	attributes.Set("uid", uid)
	return c.admin(ctx, "ModifyUser", http.MethodPost, "user", "", attributes, nil)
}

func (c *client) deleteUser(ctx context.Context, uid string) error {
	return c.admin(ctx, "DeleteUser", http.MethodDelete, "user", "", url.Values{"uid": {uid}}, nil)
}

// listUsers calls each with the id of every user of the cluster.
func (c *client) listUsers(ctx context.Context, each func(uid string)) error {
	return transport.Pages(ctx, func(ctx context.Context, token string) (string, bool, error) {
		var page struct {
			Keys      []string `json:"keys"`
			Truncated bool     `json:"truncated"`
			Marker    string   `json:"marker"`
		}
		query := url.Values{"max-entries": {"1000"}}
		if token != "" {
			query.Set("marker", token)
		}
		if err := c.admin(ctx, "ListUsers", http.MethodGet, "user", "list", query, &page); err != nil {
			return "", false, err
		}
		for _, uid := range page.Keys {
			each(uid)
		}
		return page.Marker, page.Truncated, nil
	})
}

// makeKey gives a user a key with a secret of the service's making. One of that
// id that the user has gets another secret.
func (c *client) makeKey(ctx context.Context, uid, accessKeyID string) ([]key, error) {
	var keys []key
	err := c.admin(ctx, "CreateKey", http.MethodPut, "user", "key", url.Values{"uid": {uid}, "access-key": {accessKeyID}, "key-type": {"s3"}}, &keys)
	return keys, err
}

func (c *client) deleteKey(ctx context.Context, uid, accessKeyID string) error {
	return c.admin(ctx, "DeleteKey", http.MethodDelete, "user", "key", url.Values{"uid": {uid}, "access-key": {accessKeyID}, "key-type": {"s3"}}, nil)
}

func (c *client) setQuota(ctx context.Context, uid string, q quota) error {
	return c.admin(ctx, "SetQuota", http.MethodPut, "user", "quota", url.Values{
		"uid": {uid}, "quota-type": {"user"}, "enabled": {strconv.FormatBool(q.Enabled)},
		"max-size": {strconv.FormatInt(q.MaxSize, 10)}, "max-objects": {strconv.FormatInt(q.MaxObjects, 10)},
	}, nil)
}

// bucket is what is read of a bucket.
type bucket struct {
	Name  string `json:"bucket"`
	Quota quota  `json:"bucket_quota"`
	Usage map[string]struct {
		Size    int64 `json:"size"` // bytes
		Objects int64 `json:"num_objects"`
	} `json:"usage"` // by category
}

// getBucket reads a bucket by <tenant>/<name>.
func (c *client) getBucket(ctx context.Context, name string) (bucket, error) {
	var b bucket
	err := c.admin(ctx, "GetBucket", http.MethodGet, "bucket", "", url.Values{"bucket": {name}, "stats": {"true"}}, &b)
	return b, err
}

// getBuckets reads all buckets of a user; none of a user who is not there.
func (c *client) getBuckets(ctx context.Context, uid string) ([]bucket, error) {
	var all []bucket
	err := c.admin(transport.Listing(ctx), "GetBuckets", http.MethodGet, "bucket", "", url.Values{"uid": {uid}, "stats": {"true"}}, &all)
	return all, err
}

// setBucketQuota bounds what a bucket of a user holds. The size goes in KiB: release
// 16 passes over max-size here, and takes no document in a signed body.
func (c *client) setBucketQuota(ctx context.Context, uid, name string, q quota) error {
	kib := q.MaxSize
	if kib > 0 {
		kib /= 1024
	}
	return c.admin(ctx, "SetBucketQuota", http.MethodPut, "bucket", "quota", url.Values{
		"uid": {uid}, "bucket": {name}, "enabled": {strconv.FormatBool(q.Enabled)},
		"max-size-kb": {strconv.FormatInt(kib, 10)}, "max-objects": {strconv.FormatInt(q.MaxObjects, 10)},
	}, nil)
}

func (c *client) getAccount(ctx context.Context, id string) (account, error) {
	var a account
	err := c.admin(ctx, "GetAccount", http.MethodGet, "account", "", url.Values{"id": {id}}, &a)
	return a, err
}

// createAccount makes an account; Conflict if its id or its name is taken.
func (c *client) createAccount(ctx context.Context, id string, attributes url.Values) (account, error) {
	attributes.Set("id", id)
	var a account
	err := c.admin(ctx, "CreateAccount", http.MethodPost, "account", "", attributes, &a)
	return a, err
}

func (c *client) modifyAccount(ctx context.Context, id string, attributes url.Values) error {
	attributes.Set("id", id)
	return c.admin(ctx, "ModifyAccount", http.MethodPut, "account", "", attributes, nil)
}

func (c *client) deleteAccount(ctx context.Context, id string) error {
	return c.admin(ctx, "DeleteAccount", http.MethodDelete, "account", "", url.Values{"id": {id}}, nil)
}

// putUserPolicy writes one of a user's policies.
func (c *client) putUserPolicy(ctx context.Context, uid, name, document string) error {
	return c.iam(ctx, "PutUserPolicy", uid, url.Values{"PolicyName": {name}, "PolicyDocument": {document}}, nil)
}

// deleteUserPolicy deletes one of a user's policies; nil if there is none.
func (c *client) deleteUserPolicy(ctx context.Context, uid, name string) error {
	err := c.iam(ctx, "DeleteUserPolicy", uid, url.Values{"PolicyName": {name}}, nil)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// userPolicies are the names of a user's policies; none of a user who is not
// there.
func (c *client) userPolicies(ctx context.Context, uid string) ([]string, error) {
	var answer struct {
		Names []string `xml:"ListUserPoliciesResult>PolicyNames>member"`
	}
	err := c.iam(ctx, "ListUserPolicies", uid, nil, &answer)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return answer.Names, err
}

// userPolicy is one of a user's policies, "" if there is none.
func (c *client) userPolicy(ctx context.Context, uid, name string) (string, error) {
	var answer struct {
		Document string `xml:"GetUserPolicyResult>PolicyDocument"`
	}
	err := c.iam(ctx, "GetUserPolicy", uid, url.Values{"PolicyName": {name}}, &answer)
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	return answer.Document, err
}

// iam makes a call of the IAM API.
func (c *client) iam(ctx context.Context, action, uid string, more url.Values, into any) error {
	form := url.Values{"Action": {action}, "Version": {"2010-05-08"}, "UserName": {uid}}
	maps.Copy(form, more)
	return c.call(ctx, signed.Call{
		Operation: action, Method: http.MethodPost, API: transport.IAM, URL: c.url + "/", Body: []byte(form.Encode()), Type: "application/x-www-form-urlencoded",
	}, xml.Unmarshal, into)
}

// admin makes a call of the Admin Ops API. Its parameters stand in the query,
// which radosgw writes into its log: a secret must not be among them.
func (c *client) admin(ctx context.Context, operation, method, resource, part string, query url.Values, into any) error {
	if part != "" {
		part += "&"
	}
	return c.call(ctx, signed.Call{
		Operation: operation, Method: method, API: transport.JSON, URL: c.url + "/admin/" + resource + "?" + part + query.Encode(),
	}, json.Unmarshal, into)
}

// call makes a call, again where that may help: what a first attempt has done
// the second one finds, and says so.
func (c *client) call(ctx context.Context, call signed.Call, read func([]byte, any) error, into any) error {
	text, err := c.Do(ctx, call)
	if err != nil || into == nil {
		return err
	}
	if err := read(text, into); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the Ceph gateway's answer to %s is not what its API promises; check the backend's url", call.Operation)
	}
	return nil
}
