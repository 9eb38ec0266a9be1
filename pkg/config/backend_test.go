package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/iam"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
)

const keyText = "[default]\naws_access_key_id = AKID\naws_secret_access_key = planted-secret\n"

func withBackend(t *testing.T, backend string) string {
	t.Helper()
	before, _, _ := strings.Cut(valid(t), "backends:\n")
	return before + "backends:\n  - name: main\n    " + backend + "\ncontracts:\n  - {name: team-a, backend: main}\n"
}

func TestBackendsOfEachType(t *testing.T) {
	t.Parallel()
	key, token := tokenFile(t, keyText), tokenFile(t, "planted-token\n")
	endpoints := `endpoints: [{region: r, url: "https://s3.example.com"}]`
	for name, c := range map[string]struct{ backend, want string }{
		"iam":                {"{type: iam, iam: {url: 'https://iam.example.com', " + endpoints + ", credentialsFile: " + key + "}}", ""},
		"rgw":                {"{type: rgw, rgw: {" + endpoints + ", credentialsFile: " + key + "}}", ""},
		"versitygw":          {"{type: versitygw, versitygw: {" + endpoints + ", credentialsFile: " + key + "}}", ""},
		"rgw with accounts":  {"{type: rgw, rgw: {accounts: true, " + endpoints + ", credentialsFile: " + key + "}}", ""},
		"no accounts":        {"{type: versitygw, versitygw: {accounts: true, " + endpoints + ", credentialsFile: " + key + "}}", "accounts"},
		"unknown":            {"{type: nfs}", `type: "nfs" is no type of backend; known are contractapi, iam, rgw, versitygw`},
		"no section":         {"{type: iam}", "backends[0].iam: missing"},
		"another's section":  {"{type: rgw, rgw: {" + endpoints + ", credentialsFile: " + key + "}, iam: {}}", "backends[0].iam: the backend is of type rgw"},
		"no endpoint":        {"{type: rgw, rgw: {credentialsFile: " + key + "}}", "backends[0].rgw.endpoints: there is none"},
		"one region twice":   {`{type: rgw, rgw: {endpoints: [{region: r, url: "http://a"}, {region: r, url: "http://b"}], credentialsFile: ` + key + "}}", "endpoints[1].region"},
		"no credentials":     {"{type: versitygw, versitygw: {" + endpoints + "}}", "versitygw.credentialsFile: missing"},
		"no file":            {"{type: versitygw, versitygw: {" + endpoints + ", credentialsFile: /no/such}}", "versitygw.credentialsFile: open /no/such"},
		"two places":         {"{type: iam, iam: {url: 'http://i', " + endpoints + ", credentialsFile: " + key + ", credentialsDir: /tmp}}", "give one of credentialsFile"},
		"no place":           {"{type: iam, iam: {url: 'http://i', " + endpoints + "}}", "give one of credentialsFile"},
		"a role":             {"{type: iam, iam: {url: 'http://i', " + endpoints + ", webIdentity: {url: 'http://sts', roleARN: 'arn:aws:iam::1:role/r', tokenFile: " + key + "}}}", ""},
		"no token":           {"{type: iam, iam: {url: 'http://i', " + endpoints + ", webIdentity: {url: 'http://sts', roleARN: 'arn:aws:iam::1:role/r', tokenFile: /no/such}}}", "iam.webIdentity.tokenFile: open /no/such"},
		"no ARN":             {"{type: iam, iam: {url: 'http://i', " + endpoints + ", webIdentity: {url: 'http://sts', roleARN: r, tokenFile: " + key + "}}}", "iam.webIdentity.roleARN:"},
		"the pod's role":     {"{type: iam, iam: {url: 'http://i', " + endpoints + ", podIdentity: {tokenFile: " + key + "}}}", ""},
		"no token of a pod":  {"{type: iam, iam: {url: 'http://i', " + endpoints + ", podIdentity: {}}}", "iam.podIdentity.tokenFile: open /var/run/secrets/pods.eks.amazonaws.com/"},
		"a machine's role":   {"{type: iam, iam: {url: 'http://i', " + endpoints + ", instanceProfile: {}}}", ""},
		"two roles":          {"{type: iam, iam: {url: 'http://i', " + endpoints + ", instanceProfile: {}, podIdentity: {}}}", "give one of credentialsFile"},
		"no directory":       {"{type: iam, iam: {url: 'http://i', " + endpoints + ", credentialsDir: /no/such}}", "iam.credentialsDir: open /no/such"},
		"bad path":           {"{type: iam, iam: {url: 'http://i', path: users, " + endpoints + ", credentialsFile: " + key + "}}", "iam.path:"},
		"long to settle":     {"{type: iam, iam: {url: 'http://i', settleTime: 1h, " + endpoints + ", credentialsFile: " + key + "}}", "iam.settleTime:"},
		"half a certificate": {"{type: rgw, connection: {clientCertFile: /c}, rgw: {" + endpoints + ", credentialsFile: " + key + "}}", "connection: clientCertFile and clientKeyFile go together"},
		"no CA":              {"{type: rgw, connection: {caFile: " + key + "}, rgw: {" + endpoints + ", credentialsFile: " + key + "}}", "holds no certificate"},
		"password for proxy": {"{type: rgw, connection: {proxy: 'http://u:hunter2@p'}, rgw: {" + endpoints + ", credentialsFile: " + key + "}}", "connection.proxy:"},
		"long attempts":      {"{type: rgw, connection: {answerTimeout: 1m}, rgw: {" + endpoints + ", credentialsFile: " + key + "}}", "connection.answerTimeout: 1m0s is not between 0s and 20s"},
		"addresses":          {"{type: contractapi, contractapi: {url: 'https://c.example.com', allowedEndpoints: ['https://*.s3.example.com', 'https://s3.example.com:9000', 10.0.0.0/8], tokenFile: " + token + "}}", ""},
		"a name alone":       {"{type: contractapi, contractapi: {url: 'https://c.example.com', allowedEndpoints: [s3.example.com], tokenFile: " + token + "}}", "contractapi.allowedEndpoints: [0]: it is neither an address"},
		"http from https":    {"{type: contractapi, contractapi: {url: 'https://c.example.com', allowedEndpoints: ['https://a.b', 'http://s3.example.com'], tokenFile: " + token + "}}", "contractapi.allowedEndpoints: [1]: it is http"},
		"negative timeout":   {"{type: rgw, connection: {answerTimeout: -1s}, rgw: {" + endpoints + ", credentialsFile: " + key + "}}", "connection.answerTimeout:"},
	} {
		_, err := config.Parse([]byte(strings.Replace(withBackend(t, c.backend), "- name: main\n    {", "- {name: main, ", 1)), driver.Types())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "planted")) {
			t.Errorf("%s: a secret is told: %v", name, err)
		}
	}
}

func TestDefaultsOfBackends(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"team-a": keyText, "..data": "a mount's own", "team-b": keyText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Parse([]byte(strings.Replace(withBackend(t, "{type: iam, iam: {url: 'http://i', endpoints: [{region: r, url: 'http://s'}], credentialsDir: "+dir+"}}"), "- name: main\n    {", "- {name: main, ", 1)), driver.Types())
	if err != nil {
		t.Fatal(err)
	}
	i := c.Backends[0].Settings.(*iam.Settings)
	if i.Region != "us-east-1" || i.Path != "/contract-cosi/" || i.MaxKeys != 2 || i.MaxPolicyBytes != 2048 || i.Dialect.ActionPrefix != "s3:" {
		t.Errorf("defaults %+v", i)
	}
	if got := i.Accounts(); len(got) != 2 || got[0] != "team-a" || got[1] != "team-b" {
		t.Errorf("accounts %q", got)
	}
	var out strings.Builder
	if err := c.Print(&out); err != nil || strings.Contains(out.String(), "planted") || !strings.Contains(out.String(), "credentials of contract team-a read from") {
		t.Errorf("printed %v:\n%s", err, out.String())
	}
}
