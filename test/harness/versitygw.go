package harness

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// VersityGW is a running S3 gateway of that name.
type VersityGW struct {
	*Process
	// S3 and IAM are the servers' addresses; IAM is "" for a gateway that keeps
	// its own accounts.
	S3, IAM string
	// AccessKeyID and Secret are root's; CredentialsFile holds them.
	AccessKeyID, Secret, CredentialsFile string

	program, dir string
	args         []string
}

// VersityGWRegion is the only region of the gateway.
const VersityGWRegion = "us-east-1"

// VersityGWLacks are the actions of keys that the gateway does not have.
func VersityGWLacks() []string {
	return []string{"s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration", "s3:GetObjectAcl", "s3:GetObjectVersionAcl"}
}

// StartVersityGW runs the gateway with its data in dir: with the accounts of
// its admin API or, with iam, of an IAM service beside it.
func StartVersityGW(ctx context.Context, program, dir string, iam bool) (*VersityGW, error) {
	g := &VersityGW{
		AccessKeyID: "ROOT" + rand.Text()[:16], Secret: rand.Text(), CredentialsFile: filepath.Join(dir, "credentials"),
		program: program, dir: dir,
	}
	text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", g.AccessKeyID, g.Secret)
	if err := os.WriteFile(g.CredentialsFile, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s3, err := freeAddress()
	if err != nil {
		return nil, err
	}
	g.args = []string{"-dir", filepath.Join(dir, "data"), "-s3", s3, "-access", g.AccessKeyID, "-addresses-file", filepath.Join(dir, "addresses.json")}
	if iam {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		g.args = append(g.args, "-iam", address)
	}
	return g, g.Restart(ctx)
}

// Restart runs the gateway, which has ended, again: with the same data at the
// same addresses.
func (g *VersityGW) Restart(ctx context.Context) error {
	addresses := filepath.Join(g.dir, "addresses.json")
	if err := os.Remove(addresses); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p, err := StartWith(ctx, []string{"ROOT_SECRET_KEY=" + g.Secret}, g.program, g.args...)
	if err != nil {
		return err
	}
	g.Process = p
	err = p.Until(ctx, func() error {
		text, err := os.ReadFile(addresses)
		if err != nil {
			return err
		}
		var at struct{ S3, IAM string }
		err = json.Unmarshal(text, &at)
		if g.S3, g.IAM = at.S3, at.IAM; at.IAM == "http://" {
			g.IAM = ""
		}
		return err
	})
	if err != nil {
		p.Kill()
	}
	return err
}

// freeAddress is one that no process listens on, for servers that do not tell which
// port they got.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
