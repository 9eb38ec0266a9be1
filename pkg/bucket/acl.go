package bucket

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

const (
	allUsers           = "http://acs.amazonaws.com/groups/global/AllUsers"
	authenticatedUsers = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"
)

// cannedGrants is what each canned ACL grants beside the owner's full control
// (Amazon S3 User Guide, "Canned ACL").
var cannedGrants = map[string][]grant{
	"private":            nil,
	"public-read":        {{"uri=" + allUsers, types.PermissionRead}},
	"public-read-write":  {{"uri=" + allUsers, types.PermissionRead}, {"uri=" + allUsers, types.PermissionWrite}},
	"authenticated-read": {{"uri=" + authenticatedUsers, types.PermissionRead}},
}

// grant is one entry of an ACL, its grantee in the notation of the parameters.
type grant struct {
	grantee    string
	permission types.Permission
}

// acl sets the canned ACL by its name and explicit grants as a document: the
// grant headers are written differently at each service, and some let them
// replace the owner's own entry.
func (e *Engine) acl(name string, spec params.Bucket) option {
	grants := cannedGrants[spec.ACL]
	if spec.ACL == "" {
		grants = explicitGrants(spec.Grants)
	}
	read := func(ctx context.Context) (*s3.GetBucketAclOutput, error) {
		have, err := e.s3.GetBucketAcl(ctx, &s3.GetBucketAclInput{Bucket: &name})
		if err == nil && have.Owner == nil {
			return nil, fault.New(fault.Unsupported, "the storage names no owner in its ACL, so it cannot be edited; use a BucketClass without acl and grants")
		}
		return have, classify(err, "GetBucketAcl")
	}
	o := option{
		name: "acl",
		none: grantText(nil),
		read: func(ctx context.Context) (string, error) {
			have, err := read(ctx)
			if err != nil {
				return "", err
			}
			return grantText(othersGrants(have)), nil
		},
		write: func(ctx context.Context) error {
			in := &s3.PutBucketAclInput{Bucket: &name, ACL: types.BucketCannedACL(spec.ACL)}
			if spec.ACL == "" {
				have, err := read(ctx)
				if err != nil {
					return err
				}
				in.AccessControlPolicy = document(have.Owner, grants)
			}
			_, err := e.s3.PutBucketAcl(ctx, in)
			if signed.Code(err) == "AccessControlListNotSupported" && spec.ObjectOwnership == "" { // the bucket was not made with this class
				if err := e.putOwnership(ctx, name, ownership(spec)); err != nil {
					return err
				}
				_, err = e.s3.PutBucketAcl(ctx, in)
			}
			return classify(err, "PutBucketAcl")
		},
		remove: func(ctx context.Context) error {
			_, err := e.s3.PutBucketAcl(ctx, &s3.PutBucketAclInput{Bucket: &name, ACL: types.BucketCannedACLPrivate})
			return classify(err, "PutBucketAcl")
		},
	}
	if spec.ACL != "" || len(grants) > 0 {
		o.want = grantText(grants)
	}
	return o
}

func explicitGrants(g params.Grants) []grant {
	var out []grant
	for _, list := range []struct {
		grantees   []string
		permission types.Permission
	}{
		{g.Read, types.PermissionRead}, {g.Write, types.PermissionWrite}, {g.ReadACP, types.PermissionReadAcp},
		{g.WriteACP, types.PermissionWriteAcp}, {g.FullControl, types.PermissionFullControl},
	} {
		for _, who := range list.grantees {
			out = append(out, grant{who, list.permission})
		}
	}
	return out
}

// document is an ACL with the owner's full control and the grants.
func document(owner *types.Owner, grants []grant) *types.AccessControlPolicy {
	acl := &types.AccessControlPolicy{Owner: owner, Grants: []types.Grant{{
		Grantee:    &types.Grantee{Type: types.TypeCanonicalUser, ID: owner.ID},
		Permission: types.PermissionFullControl,
	}}}
	for _, g := range grants {
		kind, who, _ := strings.Cut(g.grantee, "=")
		grantee := &types.Grantee{}
		switch kind {
		case "id":
			grantee.Type, grantee.ID = types.TypeCanonicalUser, &who
		case "uri":
			grantee.Type, grantee.URI = types.TypeGroup, &who
		case "emailAddress":
			grantee.Type, grantee.EmailAddress = types.TypeAmazonCustomerByEmail, &who
		}
		acl.Grants = append(acl.Grants, types.Grant{Grantee: grantee, Permission: g.permission})
	}
	return acl
}

// othersGrants are the entries of an ACL that are not the owner's own.
func othersGrants(acl *s3.GetBucketAclOutput) []grant {
	owner := aws.ToString(acl.Owner.ID)
	var out []grant
	for _, g := range acl.Grants {
		if g.Grantee == nil || g.Grantee.Type != types.TypeGroup && aws.ToString(g.Grantee.ID) == owner {
			continue
		}
		out = append(out, grant{granteeOf(g.Grantee), g.Permission})
	}
	return out
}

func granteeOf(g *types.Grantee) string {
	switch {
	case aws.ToString(g.ID) == "all-users": // versitygw's name of the group
		return "uri=" + allUsers
	case g.URI != nil:
		return "uri=" + *g.URI
	case g.Type == types.TypeGroup:
		return "uri=" + aws.ToString(g.ID)
	case g.EmailAddress != nil:
		return "emailAddress=" + *g.EmailAddress
	}
	return "id=" + aws.ToString(g.ID)
}

// grantText is a list of grants in the order of the text.
func grantText(grants []grant) string {
	lines := make([]string, len(grants))
	for i, g := range grants {
		lines[i] = string(g.permission) + " " + g.grantee
	}
	slices.Sort(lines)
	return "[" + strings.Join(slices.Compact(lines), ", ") + "]"
}
