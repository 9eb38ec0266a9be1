package sanity

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// object is a Bucket as the controller makes it, before the sidecar calls the
// driver. Some drivers read it.
func (s *session) object(r bucketRequest) map[string]any {
	claim := map[string]any{"name": "cosi-sanity", "namespace": "default"}
	spec := map[string]any{"driverName": s.driver, "deletionPolicy": "Delete", "protocols": []string{"S3"}}
	if len(r.parameters) > 0 {
		spec["parameters"] = r.parameters
	}
	if s.Version == V1Alpha1 {
		spec["bucketClassName"], spec["bucketClaim"] = "cosi-sanity", claim
	} else {
		spec["bucketClaimRef"] = claim
	}
	return map[string]any{
		"apiVersion": "objectstorage.k8s.io/" + string(s.Version), "kind": "Bucket",
		"metadata": map[string]any{"name": r.name}, "spec": spec,
	}
}

// objectName is how an object of Kubernetes may be called, but for its length.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// announce has the user's command make the Bucket object of a request.
func (s *session) announce(r bucketRequest) {
	if s.cfg.Objects == "" {
		return
	}
	object := s.object(r)
	err := s.cfg.kube("apply", object)
	s.objects.Lock()
	defer s.objects.Unlock()
	s.objects.made = append(s.objects.made, object)
	if s.objects.err == nil {
		s.objects.err = err
	}
}

// withdraw deletes the Bucket objects again.
func (s *session) withdraw() {
	s.objects.Lock()
	defer s.objects.Unlock()
	if len(s.objects.made) == 0 {
		return
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": s.objects.made}
	if err := s.cfg.kube("delete", list); err != nil {
		s.leftovers = append(s.leftovers, err.Error())
	}
	s.objects.made = nil
}

// kube runs the user's command with a verb, and a manifest at its standard input.
func (c *Config) kube(verb string, manifest map[string]any) error {
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	// The calls of a run that was cut short have to be cleaned up as well.
	cmd := exec.CommandContext(context.Background(), "sh", "-c", c.Objects, "sh", verb) //nolint:gosec // the user's own
	cmd.Stdin = strings.NewReader(string(text))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the command of --bucket-objects, with %s: %w: %s", verb, err, shorten(string(out)))
	}
	return nil
}
