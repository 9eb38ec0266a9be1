package delivery

import (
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// A process that takes a request and never answers holds up no command that has no end of
// its own, nor the locks that it has.
func TestAnswersAreWaitedForWithAnEnd(t *testing.T) {
	t.Parallel()
	if got := newRemote("/none.sock", nil).http.Timeout; got != serveWithin {
		t.Errorf("an answer is waited for as long as %s, want %s", got, serveWithin)
	}
}

// parse reads a file of sections as the least careful of its readers does: one that cuts
// comments off, takes quotes away, and replaces variables.
func parse(t *testing.T, text string) map[string]string {
	out, section := map[string]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line == "" {
			continue
		}
		if name, is := strings.CutPrefix(line, "["); is && strings.HasSuffix(name, "]") {
			section = name
			continue
		}
		name, value, is := strings.Cut(line, "=")
		if !is {
			t.Errorf("%q is no line", line)
		}
		if value = strings.TrimSpace(value); value == "" {
			section += name
		}
		if strings.ContainsAny(value, "#;\"'`$\\ \t\r") || strings.Contains(strings.ReplaceAll(value, "%(bucket)s", ""), "%") {
			t.Errorf("%q is not what every reader takes it for", value)
		}
		out[section+" "+strings.TrimSpace(name)] = value
	}
	return out
}

// Whatever a service calls its keys, regions, endpoints and buckets: it is read as it is,
// or refused.
func FuzzFormats(f *testing.F) {
	f.Add("AKIA0", "wJalr/+=", "https://s3.example.com:8443", "us-east-1", "data", true)
	f.Add("a b", "%(x)s$HOME'\"`#;", "http://[::1]:9000/x?y", "x\n[y]", "../x", false)
	for _, special := range "%$#;\"'`\\ \t\r\n" {
		f.Add("id", "a"+string(special)+"b", "https://s3.example", "r", "data", true)
	}
	f.Add("a", "b", "9", "c", "d", false)
	f.Add("a\x00", "\xff", "://", "", "é", false)
	f.Fuzz(func(t *testing.T, id, key, endpoint, region, bucket string, path bool) {
		pair := secret.KeyPair{AccessKeyID: id, SecretAccessKey: secret.New(key)}
		at := provisioner.Bucket{ID: cosi.BucketID{Bucket: bucket}, Endpoint: cosi.Endpoint{URL: endpoint, Region: region, PathStyle: path}}
		env, envErr := format{name: params.EnvFormat, bucket: at}.render(pair)
		files, err := format{name: params.FileFormat, bucket: at}.render(pair)
		for _, err := range []error{err, envErr} {
			if err != nil && len(key) > 8 && strings.Contains(err.Error(), key) {
				t.Errorf("%v", err)
			}
		}
		if envErr == nil {
			for name, want := range map[string]string{"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": key, "AWS_ENDPOINT_URL_S3": endpoint, "AWS_REGION": region, "BUCKET_NAME": bucket} {
				if got := string(env[name]); got != want || strings.ContainsAny(got, "\x00\n\r") {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		}
		if err != nil {
			return
		}
		if envErr != nil {
			t.Error("the files hold what the environment cannot")
		}
		for file, want := range map[string]map[string]string{
			"credentials": {"default] aws_access_key_id": id, "default] aws_secret_access_key": key},
			"config":      {"default] region": region, "services bucket]s3  endpoint_url": endpoint},
			"rclone.conf": {"s3] access_key_id": id, "s3] secret_access_key": key, "s3] endpoint": endpoint, "s3] region": region, "bucket] remote": "s3:" + bucket},
			"s3cfg":       {"default] access_key": id, "default] secret_key": key, "default] bucket_location": region},
		} {
			got := parse(t, string(files[file]))
			for name, value := range want {
				if got[name] != value {
					t.Errorf("%s: %s is %q, want %q", file, name, got[name], value)
				}
			}
			if lines := map[string]int{"credentials": 2, "config": 8, "rclone.conf": 10, "s3cfg": 6}[file]; len(got) != lines {
				t.Errorf("%s has %d entries: %q", file, len(got), files[file])
			}
		}
	})
}
