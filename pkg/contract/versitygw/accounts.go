package versitygw

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// An account has an access key, which is its name, and nothing else that could
// say what it is for. So the names say it:
//
//	<contract>.<owner>        a contract, with a hash of its owner's mark
//	<contract>.<slot>.<key>   a key of one of its slots
//	<contract>._journal.<id>  the mark of the journal that signed it
//
// Contracts, slots and keys are DNS labels, which have no dots. Accounts with
// other names are other people's.

// role is an account's in the gateway.
type role string

const (
	// mayNothing is of the keys, which policies give their rights, and of a
	// contract that has no key yet.
	mayNothing role = "user"
	// makesBuckets is of a contract that is in use.
	makesBuckets role = "userplus"
)

// account is one of the gateway's.
type account struct {
	Access string
	Secret string
	Role   role
}

func (a account) parts() []string { return strings.Split(a.Access, ".") }

// isContract reports whether the account is a contract of this name.
func (a account) isContract(name string) bool {
	parts := a.parts()
	return len(parts) == 2 && parts[0] == name && len(parts[1]) == 2*ownerBytes
}

// slot is the slot that the account is a key of, "" if it is none of the
// contract's.
func (a account) slot(contract string) string {
	if parts := a.parts(); len(parts) == 3 && parts[0] == contract && parts[1] != journalSlot {
		return parts[1]
	}
	if a.isContract(contract) && a.Role == makesBuckets {
		return cosi.ContractSlot
	}
	return ""
}

// journalSlot stands where keys have their slot. An earlier build of the driver
// takes the account for a key that nothing is known of.
const journalSlot = "_journal"

// markOf is the journal that signed a contract, "" if the contract has no such
// mark. Of two that did so at once it is the one that is first by name.
func markOf(all []account, contract string) string {
	first := ""
	for _, a := range all {
		if id, ok := strings.CutPrefix(a.Access, keyAccount(contract, journalSlot, "")); ok && (first == "" || id < first) {
			first = id
		}
	}
	return first
}

const ownerBytes = 8

// hashOf stands for an owner's mark, which may be longer than a name and have
// any characters.
func hashOf(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:ownerBytes])
}

func contractAccount(name, owner string) string { return name + "." + hashOf(owner) }

func keyAccount(contract, slot, key string) string { return contract + "." + slot + "." + key }

// isOf reports whether an account is a key of a slot.
func isOf(access, contract, slot string) bool {
	return strings.HasPrefix(access, keyAccount(contract, slot, ""))
}

// admin calls the admin API.
func (p *Provider) admin(ctx context.Context, operation, path string, query url.Values, body any) ([]byte, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = xml.Marshal(body); err != nil {
			return nil, fault.Wrap(fault.Internal, err, "%s cannot be written", operation)
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	// The lists of the API have no pages.
	return p.client.Do(transport.Listing(ctx), signed.Call{Operation: operation, Method: http.MethodPatch, API: transport.S3, URL: p.adminURL + path, Body: text})
}

// accounts are all that the gateway has. It tells their secrets as well, which
// are not kept.
func (p *Provider) accounts(ctx context.Context) ([]account, error) {
	text, err := p.admin(transport.Reading(ctx), "ListUsers", "/list-users", nil, nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		XMLName  xml.Name  `xml:"ListUserAccountsResult"`
		Accounts []account `xml:"Accounts"`
	}
	if err := xml.Unmarshal(text, &list); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the gateway's list of accounts cannot be read; check that the backend's adminURL is a versitygw")
	}
	return list.Accounts, nil
}

func (p *Provider) create(ctx context.Context, access string, with secret.String, as role) error {
	type Account struct { // the element's name
		Access, Secret string
		Role           role
	}
	_, err := p.admin(ctx, "CreateUser", "/create-user", nil, Account{access, with.Reveal(), as})
	return err
}

func (p *Provider) update(ctx context.Context, access string, with *secret.String, as role) error {
	type MutableProps struct {
		Secret *string `xml:",omitempty"`
		Role   role    `xml:",omitempty"`
	}
	props := MutableProps{Role: as}
	if with != nil {
		text := with.Reveal()
		props.Secret = &text
	}
	_, err := p.admin(ctx, "UpdateUser", "/update-user", url.Values{"access": {access}}, props)
	return err
}

// remove deletes an account; the gateway says nothing of one that is not there.
func (p *Provider) remove(ctx context.Context, access string) error {
	_, err := p.admin(ctx, "DeleteUser", "/delete-user", url.Values{"access": {access}}, nil)
	return fault.IgnoreNotFound(err)
}

// removeAll deletes accounts, each once.
func (p *Provider) removeAll(ctx context.Context, accesses []string) error {
	slices.Sort(accesses)
	for _, access := range slices.Compact(accesses) {
		if err := p.remove(ctx, access); err != nil {
			return err
		}
	}
	return nil
}

// bucketsOf are the buckets that an account owns.
func (p *Provider) bucketsOf(ctx context.Context, access string) ([]string, error) {
	text, err := p.admin(ctx, "ListBuckets", "/list-buckets", nil, nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		XMLName xml.Name `xml:"ListBucketsResult"`
		Buckets []struct{ Name, Owner string }
	}
	if err := xml.Unmarshal(text, &list); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the gateway's list of buckets cannot be read; check that the backend's adminURL is a versitygw")
	}
	var out []string
	for _, b := range list.Buckets {
		if b.Owner == access {
			out = append(out, b.Name)
		}
	}
	return out, nil
}

// find returns the contract's account among all: NotFound if there is none,
// Conflict if two owners have one of this name.
func find(all []account, name string) (account, error) {
	i := slices.IndexFunc(all, func(a account) bool { return a.isContract(name) })
	if i < 0 {
		return account{}, noAccount()
	}
	if slices.ContainsFunc(all[i+1:], func(a account) bool { return a.isContract(name) }) {
		return account{}, fault.New(fault.Conflict, "two owners have an account of this name; choose another contract name")
	}
	return all[i], nil
}

func noAccount() error { return fault.New(fault.NotFound, "the gateway has no such account") }

func has(all []account, access string) bool {
	return slices.ContainsFunc(all, func(a account) bool { return a.Access == access })
}
