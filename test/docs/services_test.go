package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/rgw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/test/guide"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// services is the page, and each configuration on it with files of this machine.
func services(t *testing.T) (path, text string, configurations []*config.Config) {
	t.Helper()
	root, _ := readme(t)
	path = filepath.Join(root, "deploy", "storage-services.md")
	content, err := os.ReadFile(path)
	must(t, err)
	dir := t.TempDir()
	token, key, accounts := filepath.Join(dir, "token"), filepath.Join(dir, "credentials"), filepath.Join(dir, "accounts")
	must(t, os.WriteFile(token, []byte("x"), 0o600))
	must(t, os.WriteFile(key, []byte("aws_access_key_id = a\naws_secret_access_key = b\n"), 0o600))
	must(t, os.Mkdir(accounts, 0o700))
	must(t, os.WriteFile(filepath.Join(accounts, "team-blue"), []byte("aws_access_key_id = a\naws_secret_access_key = b\n"), 0o600))
	const etc = "/etc/contract-cosi-driver/"
	// The files of the TLS example are proved in pkg/transport.
	files := strings.NewReplacer(etc+"token", token, etc+"credentials", key, etc+"accounts", accounts, "/var/run/secrets/eks.amazonaws.com/serviceaccount/token", token)
	tls := regexp.MustCompile(`(?m)^ +(caFile|clientCertFile|clientKeyFile): .*\n`)
	for _, b := range guide.Parse("", string(content)) {
		if b.Language != "yaml" {
			continue
		}
		block := tls.ReplaceAllString(files.Replace(b.Text), "")
		if !strings.Contains(block, "contracts:") {
			block += "onDemand: {backend: " + regexp.MustCompile(`name: (\S+)`).FindStringSubmatch(block)[1] + "}\n"
		}
		c, err := config.Parse([]byte("driver: {name: d.example.com, owner: o}\njournal: {file: /j}\n"+block), driver.Types())
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		configurations = append(configurations, c)
	}
	return path, string(content), configurations
}

// Every configuration on the page is accepted, and there is one of each type.
func TestStorageServices(t *testing.T) {
	t.Parallel()
	_, text, configurations := services(t)
	var types []string
	for _, c := range configurations {
		b := c.Backends[0]
		types = append(types, b.Type)
		services, err := driver.Services(t.Context(), c)
		if err != nil {
			t.Error(err)
			continue
		}
		gateway, _ := b.Settings.(*rgw.Settings)
		if is := services[b.Name].Capabilities().MaxKeysPerSlot > 0; gateway != nil && is != gateway.Accounts {
			t.Errorf("backend %s is served by accounts: %v", b.Name, is)
		}
	}
	for _, kind := range harness.StorageTypes {
		if !slices.Contains(types, kind) || !strings.Contains(text, "| `"+kind+"` |") || !strings.Contains(text, "\n## "+kind+"\n") {
			t.Errorf("type %s is not in the table, or has no section or configuration", kind)
		}
	}
}

// The table of what each type can do is what the providers say.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	path, text, configurations := services(t)
	can := map[string]contract.Capabilities{}
	for _, c := range slices.Backward(configurations) { // the first of a type counts
		services, err := driver.Services(t.Context(), c)
		must(t, err)
		can[c.Backends[0].Type] = services[c.Backends[0].Name].Capabilities()
	}
	yes := func(ok bool) string {
		if ok {
			return "yes"
		}
		return "no"
	}
	rows := []struct {
		what string
		is   func(contract.Capabilities) string
	}{
		{"keys are limited by", func(c contract.Capabilities) string {
			return map[contract.ScopeBy]string{
				contract.ScopeByKey: "the key itself", contract.ScopeByIdentityPolicy: "a policy of its user", contract.ScopeByBucketPolicy: "the bucket's policy",
			}[c.ScopeBy]
		}},
		{"prefix", func(c contract.Capabilities) string { return yes(!c.WholeBuckets) }},
		{"sourceIP", func(c contract.Capabilities) string { return yes(c.SourceAddresses) }},
		{"one key for several buckets", func(c contract.Capabilities) string { return yes(c.SeveralBuckets) }},
		{"keys at once in a rotation", func(c contract.Capabilities) string {
			if c.MaxKeysPerSlot == 0 {
				return "any number"
			}
			return fmt.Sprint(c.MaxKeysPerSlot)
		}},
		{"contracts in one account", func(c contract.Capabilities) string { return yes(c.SharedBuckets) }},
		{"suspend", func(c contract.Capabilities) string { return yes(c.Suspend) }},
		{"plan", func(c contract.Capabilities) string { return yes(c.Plans) }},
		{"labels", func(c contract.Capabilities) string { return yes(c.Labels) }},
		{"quota.maxBuckets", func(c contract.Capabilities) string { return yes(c.Quota.Buckets) }},
		{"quota.maxKeys", func(c contract.Capabilities) string { return yes(c.Quota.Keys) }},
		{"maxBytes, maxObjects of a bucket", func(c contract.Capabilities) string { return yes(c.BucketBounds) }},
		{"quota.maxBytes, maxObjects", func(c contract.Capabilities) string { return yes(c.Quota.Bytes && c.Quota.Objects) }},
	}
	table := "| | " + strings.Join(harness.StorageTypes, " | ") + " |\n|---|" + strings.Repeat("---|", len(harness.StorageTypes)) + "\n"
	for _, row := range rows {
		table += "| " + row.what + " |"
		for _, kind := range harness.StorageTypes {
			table += " " + row.is(can[kind]) + " |"
		}
		table += "\n"
	}
	harness.HoldTable(t, path, text, "capabilities", table, *update)
}
