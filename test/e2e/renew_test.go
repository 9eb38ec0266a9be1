package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cosiapi "sigs.k8s.io/container-object-storage-interface/client/apis"
)

// renewFor is how long keys are renewed.
var renewFor = flag.Duration("renew", 75*time.Second, "how `long` keys are renewed while they are used")

// renewed rotates the keys of many accesses as fast as it can, while each application
// writes an object a second with whatever its Secret says, and parts are killed: no
// request with the Secret's key is refused, no access ever has three keys, and in the
// end there is one for each.
func renewed(s *scenario) {
	const (
		claims, perClaim = 4, 5
		older, grace     = 8 * time.Second, 5 * time.Second
		between          = 12 * time.Second // two kills
	)
	lasts := *renewFor
	s.mayWriteSecrets()
	n := s.tenant("renewed", classes{parameters: map[string]string{"onDelete": "empty"}})
	var names []string
	for i := range claims {
		s.must(n.claim(numbered(i), ""))
		for j := range perClaim {
			name := fmt.Sprintf("%s-%d", numbered(i), j)
			names = append(names, name)
			s.must(n.access(name, numbered(i)))
		}
	}
	n.ready()
	// What is due is looked for each second.
	s.drift = "{interval: 1s}"
	s.must(s.writeConfig())
	defer func() {
		s.drift = ""
		s.must(s.writeConfig())
	}()

	ctx, stop := context.WithTimeout(s.ctx, lasts)
	defer stop()
	var running sync.WaitGroup
	var mu sync.Mutex
	var faults []string
	used, requests := map[string]map[string]bool{}, 0
	fault := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	for _, name := range names {
		used[name] = map[string]bool{}
		running.Go(func() {
			each := time.NewTicker(time.Second)
			defer each.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				select {
				case <-ctx.Done():
					return
				case <-each.C:
				}
				c, err := n.read(ctx, name)
				if err != nil { // the API server is away
					continue
				}
				err = put(ctx, c.client(), c.Bucket, fmt.Sprint(i))
				if refusal(err) == nil {
					fault("%s is refused with %s: %v", name, c.AccessKeyID, err)
				}
				if err == nil {
					mu.Lock()
					used[name][c.AccessKeyID] = true
					requests++
					mu.Unlock()
				}
			}
		})
	}
	contract, most := n.name, 0
	running.Go(func() {
		for ctx.Err() == nil {
			keys, err := s.listed("/v1/contracts/" + contract + "/keys")
			if all := len(names)*2 + 1; err == nil && len(keys) > all {
				fault("%d keys, and %d accesses", len(keys), len(names))
			}
			mu.Lock()
			most = max(most, len(keys))
			mu.Unlock()
			s.pass(200 * time.Millisecond)
		}
	})
	rotations := 0
	running.Go(func() {
		for ctx.Err() == nil {
			out, err := exec.CommandContext(s.ctx, s.build.Driver, "rotate", "--contract", contract, "--older-than", older.String(), "--grace", grace.String(),
				"-o", "json", "--config", filepath.Join(s.dir, "driver.yaml")).Output()
			if err == nil {
				rotations += strings.Count(string(out), `"accessKeyID"`)
			}
			s.pass(time.Second)
		}
	})
	parts := []struct {
		name string
		back func() error
	}{
		{"driver", s.startDriver}, {"contractd", s.startContractd}, {"sidecar", func() error { return s.startCOSI("sidecar", fast) }},
		{"driver", s.startDriver}, {"apiserver", s.restartAPIServer},
	}
	end := time.Now().Add(lasts)
	for i := 0; time.Until(end) > between; i++ {
		s.pass(between)
		part := parts[i%len(parts)]
		s.kill(part.name)
		s.must(part.back())
	}
	running.Wait()
	s.until("one key for each", func() error {
		keys, err := s.listed("/v1/contracts/" + contract + "/keys")
		if err == nil && len(keys) != len(names)+1 {
			err = fmt.Errorf("%d keys for %d accesses", len(keys), len(names))
		}
		return err
	})
	s.must(errors.Join(some("renewal", faults)))
	fewest := len(used[names[0]])
	for _, name := range names {
		fewest = min(fewest, len(used[name]))
		s.must(n.secret(name).works(s.ctx))
	}
	if fewest < 3 || requests < len(names)*int(lasts/time.Second)/4 {
		s.Errorf("%d requests, and %d keys of an access at least, are too few to prove anything", requests, fewest)
	}
	s.note("%d accesses, %d rotations, %d requests, none refused; at most %d keys; %d keys of an access at least", len(names), rotations, requests, most, fewest)
	// All at once, for keys that have leaked.
	leaked := map[string]credentials{}
	for _, name := range names {
		leaked[name] = n.secret(name)
	}
	out, err := exec.CommandContext(s.ctx, s.build.Driver, "rotate", "--contract", contract, "--now", "--grace", "3s", "--config", filepath.Join(s.dir, "driver.yaml")).CombinedOutput()
	if err != nil {
		s.Errorf("rotate --now: %v\n%s", err, tail(string(out), 40))
	}
	for _, name := range names {
		s.must(s.refused(leaked[name]))
		s.must(n.secret(name).works(s.ctx))
	}
	n.deleteAll()
	n.vanish()
}

// read reads the Secret of an access.
func (n *tenant) read(ctx context.Context, access string) (credentials, error) {
	s, err := n.kube.CoreV1().Secrets(n.name).Get(ctx, access, metav1.GetOptions{})
	if err != nil {
		return credentials{}, err
	}
	var info cosiapi.BucketInfo
	if err := json.Unmarshal(s.Data["BucketInfo"], &info); err != nil {
		return credentials{}, err
	}
	return credentials{info.Spec.BucketName, info.Spec.S3.Endpoint, info.Spec.S3.Region, info.Spec.S3.AccessKeyID, info.Spec.S3.AccessSecretKey}, nil
}
