package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// client is the application's, made from its Secret and nothing else.
func (c credentials) client() *s3.Client {
	return harness.S3(c.Endpoint, c.Region, c.AccessKeyID, c.SecretAccessKey)
}

func put(ctx context.Context, c *s3.Client, bucket, key string) error {
	_, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("content of " + key)})
	return err
}

func get(ctx context.Context, c *s3.Client, bucket, key string) error {
	out, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	defer func() { _ = out.Body.Close() }()
	text, err := io.ReadAll(out.Body)
	if err == nil && string(text) != "content of "+key {
		err = fmt.Errorf("object %s holds %q", key, text)
	}
	return err
}

// list returns the keys of a bucket's objects.
func list(ctx context.Context, c *s3.Client, bucket string) ([]string, error) {
	out, err := c.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket})
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, o := range out.Contents {
		keys = append(keys, *o.Key)
	}
	return keys, nil
}

func remove(ctx context.Context, c *s3.Client, bucket, key string) error {
	_, err := c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
	return err
}

// works puts an object, reads it, finds it in the list and takes it away.
func (c credentials) works(ctx context.Context) error {
	s3, key := c.client(), "a/"+c.AccessKeyID
	if err := put(ctx, s3, c.Bucket, key); err != nil {
		return err
	}
	if err := get(ctx, s3, c.Bucket, key); err != nil {
		return err
	}
	if keys, err := list(ctx, s3, c.Bucket); err != nil || !slices.Contains(keys, key) {
		return fmt.Errorf("the list has %q, not %s: %w", keys, key, err)
	}
	return remove(ctx, s3, c.Bucket, key)
}

// refusal is nil if err is the storage's refusal, and says what it is otherwise.
func refusal(err error) error {
	if err == nil {
		return errors.New("not refused")
	}
	var answer smithy.APIError
	if !errors.As(err, &answer) || !slices.Contains([]string{"AccessDenied", "InvalidAccessKeyId", "Forbidden"}, answer.ErrorCode()) {
		return fmt.Errorf("not refused, but %w", err)
	}
	return nil
}

// refused is nil if the storage refuses a key.
func (s *scenario) refused(c credentials) error {
	_, err := list(s.ctx, c.client(), c.Bucket)
	if err == nil {
		return errors.New("the key still works")
	}
	return refusal(err)
}

// s3cmd runs Debian's s3cmd, a client that shares no code with the SDK, with a
// configuration made from a Secret alone.
func (s *scenario) s3cmd(c credentials, args ...string) string {
	s.Helper()
	scheme, host, _ := strings.Cut(c.Endpoint, "://")
	config := filepath.Join(s.TempDir(), "s3cfg")
	s.must(os.WriteFile(config, fmt.Appendf(nil, "[default]\naccess_key = %s\nsecret_key = %s\nhost_base = %s\nhost_bucket = %s\nuse_https = %t\nbucket_location = %s\n",
		c.AccessKeyID, c.SecretAccessKey, host, host, scheme == "https", c.Region), 0o600))
	cmd := exec.CommandContext(s.ctx, "s3cmd", append([]string{"--config", config, "--no-progress"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		s.Fatalf("s3cmd %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}
