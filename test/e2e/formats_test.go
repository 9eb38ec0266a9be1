package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// readable has applications read their keys in the forms that their class asks for: those
// of the guide, as they stand there, with the Go SDK in place of the AWS CLI, with
// rclone, and with s3cmd. A key is renewed while they run.
func readable(s *scenario) {
	s.mayWriteSecrets(driverAccount)
	n := s.tenant("readable", classes{parameters: map[string]string{"onDelete": "empty"}, access: map[string]string{"secretFormat": "file, env"}})
	_, err := s.kube.CoreV1().Secrets(n.name).Create(s.ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other-env"}, Data: map[string][]byte{"mine": []byte("x")}}, metav1.CreateOptions{})
	s.must(err)
	s.must(errors.Join(n.claim("photos", ""), n.access("gallery", "photos"), n.access("other", "photos")))
	n.ready()
	first := n.secret("gallery")
	s.until("formatted", func() error {
		return errors.Join(n.formatted("gallery", first), n.formatted("other-file", credentials{}))
	})

	// A user's Secret is theirs.
	s.until("told", func() error {
		return s.described("bucketaccess", "other", n.name, "SecretNotWritten", "Secret readable/other-env was not written for this BucketAccess")
	})
	mine, err := s.kube.CoreV1().Secrets(n.name).Get(s.ctx, "other-env", metav1.GetOptions{})
	if err != nil || string(mine.Data["mine"]) != "x" || len(mine.Data) != 1 {
		s.Errorf("a user's Secret is %v, %v", mine.Data, err)
	}
	s.must(s.kube.CoreV1().Secrets(n.name).Delete(s.ctx, "other-env", metav1.DeleteOptions{}))
	s.until("formatted", func() error { return n.formatted("other", n.secret("other")) })

	// The guide's applications.
	uploader, gallery, backup := n.pod("environment.yaml"), n.pod("reload.yaml"), n.pod("backup.yaml")
	stop := uploader.start()
	s.until("uploaded", func() error { return exists(s.ctx, first.client(), first.Bucket, "alive") })
	stop()
	s.must(os.WriteFile(filepath.Join(backup.dirs["/data"], "file"), []byte("content of backup/file"), 0o600))
	backup.start()()
	s.must(get(s.ctx, first.client(), first.Bucket, "backup/file"))
	s.must(put(s.ctx, first.client(), first.Bucket, "first"))
	defer gallery.start()()
	s.until("served", func() error { return gallery.serves("first") })
	s.must(n.clients(backup.dirs["/s3"], first.Bucket))

	// The next key arrives in all that they read before the old one goes.
	out, err := exec.CommandContext(s.ctx, s.build.Driver, "rotate", "--contract", n.name, "--now", "--grace", "2s", "--config", filepath.Join(s.dir, "driver.yaml")).CombinedOutput()
	if err != nil {
		s.Fatalf("rotate --now: %v\n%s", err, tail(string(out), 40))
	}
	s.until("revoked", func() error { return s.refused(first) })
	next := n.secret("gallery")
	s.must(n.formatted("gallery", next))
	s.must(put(s.ctx, next.client(), next.Bucket, "second"))
	gallery.mount() // as the kubelet does
	s.until("served", func() error { return gallery.serves("second") })
	backup.mount()
	backup.start()()
	s.must(n.clients(backup.dirs["/s3"], next.Bucket))
	uploader = n.pod("environment.yaml") // envFrom takes a restart
	s.must(remove(s.ctx, next.client(), next.Bucket, "alive"))
	stop = uploader.start()
	s.until("uploaded", func() error { return exists(s.ctx, next.client(), next.Bucket, "alive") })
	stop()

	// What is deleted by hand is drift.
	s.drift = "{interval: 1s, mode: repair}"
	s.must(s.writeConfig())
	defer func() {
		s.drift = ""
		s.must(s.writeConfig())
	}()
	s.must(s.kube.CoreV1().Secrets(n.name).Delete(s.ctx, "gallery-env", metav1.DeleteOptions{}))
	s.until("repaired", func() error { return n.formatted("gallery", next) })
	s.note("the guide's three applications, Go SDK, rclone and s3cmd: granted, renewed, repaired, revoked")

	// No garbage collector runs here: the driver takes them away.
	n.deleteAll()
	n.vanish()
}

// formatted is nil if the forms of an access have a key, or if there are any for the zero key.
func (n *tenant) formatted(access string, c credentials) error {
	if c == (credentials{}) {
		_, err := n.kube.CoreV1().Secrets(n.name).Get(n.ctx, access, metav1.GetOptions{})
		return err
	}
	for name, entry := range map[string]string{access + "-env": "AWS_SECRET_ACCESS_KEY", access + "-file": "credentials"} {
		secret, err := n.kube.CoreV1().Secrets(n.name).Get(n.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !strings.Contains(string(secret.Data[entry]), c.SecretAccessKey) {
			return fmt.Errorf("Secret %s has another key than the access's own", name)
		}
	}
	return nil
}

func exists(ctx context.Context, c *s3.Client, bucket, key string) error {
	_, err := c.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
	return err
}

// clients use the files of a Secret that no application of the guide does.
func (n *tenant) clients(dir, bucket string) error {
	for _, c := range []struct {
		env     []string
		command []string
	}{
		{[]string{"AWS_SHARED_CREDENTIALS_FILE=" + dir + "/credentials", "AWS_CONFIG_FILE=" + dir + "/config"}, []string{"aws", "s3", "cp", "-", "s3://" + bucket + "/by-aws"}},
		{nil, []string{"s3cmd", "--config", dir + "/s3cfg", "put", dir + "/s3cfg", "s3://" + bucket + "/by-s3cmd"}},
		{nil, []string{"s3cmd", "--config", dir + "/s3cfg", "ls", "s3://" + bucket + "/by-s3cmd"}},
		{nil, []string{"rclone", "--config", dir + "/rclone.conf", "cat", "s3:" + bucket + "/by-aws"}},
	} {
		cmd := exec.CommandContext(n.ctx, c.command[0], c.command[1:]...)
		cmd.Path = n.program(c.command[0])
		cmd.Env = append([]string{"HOME=" + n.TempDir()}, c.env...)
		cmd.Stdin = strings.NewReader("content")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c.command[0], err, tail(string(out), 20))
		}
	}
	return nil
}

// program is where a command is. The AWS CLI is this program, under its name: Debian's
// does not read AWS_ENDPOINT_URL_S3 yet.
func (s *scenario) program(name string) string {
	s.Helper()
	if name != "aws" {
		path, err := exec.LookPath(name)
		s.must(err)
		return path
	}
	self, err := os.Executable()
	s.must(err)
	link := filepath.Join(s.dir, "aws")
	if err := os.Symlink(self, link); !errors.Is(err, os.ErrExist) {
		s.must(err)
	}
	return link
}

// awsCopy is `aws s3 cp - URL` with what the Go SDK makes of the environment and the files
// that it names.
func awsCopy(args []string) error {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(args[len(args)-1], "s3://"), "/")
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	c, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		return err
	}
	_, err = s3.NewFromConfig(c).PutObject(context.Background(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(text)})
	return err
}

// pod is a container of the guide's, without one: its command runs here.
type pod struct {
	*tenant
	command, env []string
	port         string            // that it listens on in place of its own
	dirs         map[string]string // by mountPath
	secrets      map[string]string // by directory
	job          bool              // it ends by itself
}

func (n *tenant) pod(file string) *pod {
	n.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, "examples", "formats", file))
	n.must(err)
	var object struct {
		Spec struct {
			Template    v1.PodTemplateSpec
			JobTemplate struct {
				Spec struct{ Template v1.PodTemplateSpec }
			}
		}
	}
	n.must(yaml.Unmarshal(text, &object))
	ports, err := freePorts(1)
	n.must(err)
	p := &pod{tenant: n, port: ports[0], dirs: map[string]string{}, secrets: map[string]string{}}
	spec := object.Spec.Template.Spec
	if p.job = len(spec.Containers) == 0; p.job {
		spec = object.Spec.JobTemplate.Spec.Template.Spec
	}
	c := spec.Containers[0]
	here := []string{":8080", "127.0.0.1:" + p.port}
	for _, m := range c.VolumeMounts {
		dir := n.TempDir()
		p.dirs[m.MountPath], here = dir, append(here, m.MountPath, dir)
		for _, v := range spec.Volumes {
			if v.Name == m.Name && v.Secret != nil {
				p.secrets[dir] = v.Secret.SecretName
			}
		}
	}
	replace := strings.NewReplacer(here...)
	for _, word := range c.Command {
		p.command = append(p.command, replace.Replace(word))
	}
	p.env = []string{"PATH=" + filepath.Dir(n.program("aws")) + ":" + os.Getenv("PATH")}
	for _, e := range c.Env {
		p.env = append(p.env, e.Name+"="+replace.Replace(e.Value))
	}
	for _, from := range c.EnvFrom {
		secret, err := n.kube.CoreV1().Secrets(n.name).Get(n.ctx, from.SecretRef.Name, metav1.GetOptions{})
		n.must(err)
		for name, value := range secret.Data {
			p.env = append(p.env, name+"="+string(value))
		}
	}
	p.mount()
	return p
}

// mount brings Secrets into their volumes.
func (p *pod) mount() {
	p.Helper()
	for dir, name := range p.secrets {
		secret, err := p.kube.CoreV1().Secrets(p.name).Get(p.ctx, name, metav1.GetOptions{})
		p.must(err)
		for entry, text := range secret.Data {
			next := filepath.Join(dir, "..next")
			p.must(os.WriteFile(next, text, 0o600))
			p.must(os.Rename(next, filepath.Join(dir, entry)))
		}
	}
}

// start runs the command. stop ends it, with all that it has started; a job's waits for
// its end.
func (p *pod) start() (stop func()) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	cmd := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	cmd.Env, cmd.SysProcAttr = p.env, &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p.must(cmd.Start())
	return func() {
		if !p.job {
			cancel()
		}
		err := cmd.Wait()
		cancel()
		if p.job && err != nil {
			p.Fatalf("%s: %v: %s", p.command, err, tail(out.String(), 20))
		}
	}
}

// serves is nil if a pod's server has an object.
func (p *pod) serves(key string) error {
	req, err := http.NewRequestWithContext(p.ctx, http.MethodGet, "http://127.0.0.1:"+p.port+"/"+key, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && string(text) != "content of "+key {
		err = fmt.Errorf("%s has %q", key, text)
	}
	return err
}
