// Package harness runs the real parts — contractd with its S3 server, and the
// driver — as processes of their own in a private directory, for the tests,
// the demonstration and the benchmark.
package harness

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"google.golang.org/grpc"
)

// Binaries are the programs under test.
type Binaries struct{ Driver, Contractd string }

// Build compiles both programs into dir, from whatever Go has cached. With
// race, the driver is built with the race detector, which needs a C compiler.
func Build(ctx context.Context, dir string, race bool) (Binaries, error) {
	root, err := Root()
	if err != nil {
		return Binaries{}, err
	}
	b := Binaries{Driver: filepath.Join(dir, "contract-cosi-driver"), Contractd: filepath.Join(dir, "contractd")}
	args := []string{"build", "-tags", "grpcnotrace", "-trimpath", "-o", b.Driver}
	if race {
		args = append(args, "-race")
	}
	if err := goCommand(ctx, root, race, append(args, "./cmd/contract-cosi-driver")...); err != nil {
		return b, err
	}
	b.Contractd, err = BuildIn(ctx, dir, "cmd/contractd")
	return b, err
}

// BuildIn compiles the program of a module of its own, at a path of the
// repository, into dir, and returns where it is.
func BuildIn(ctx context.Context, dir, module string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, filepath.Base(module))
	return program, goCommand(ctx, filepath.Join(root, filepath.FromSlash(module)), false, "build", "-trimpath", "-o", program, ".")
}

func goCommand(ctx context.Context, dir string, cgo bool, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if cgo {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Root is the repository's directory.
func Root() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if root := filepath.Join(filepath.Dir(file), "..", ".."); ok && filepath.IsAbs(file) {
		return filepath.Clean(root), nil
	}
	return "", errors.New("the source directory is unknown: build without -trimpath")
}

// Process is a program that runs.
type Process struct {
	cmd  *exec.Cmd
	done chan error
	// Output is all that it has printed.
	Output *Buffer
}

// Buffer is a bytes.Buffer that one goroutine writes and others read.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Start runs a program; it dies with ctx.
func Start(ctx context.Context, program string, args ...string) (*Process, error) {
	return StartWith(ctx, nil, program, args...)
}

// StartWith is Start with more in the environment.
func StartWith(ctx context.Context, env []string, program string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.CommandContext(ctx, program, args...), done: make(chan error, 1), Output: &Buffer{}}
	p.cmd.Stdout, p.cmd.Stderr = p.Output, p.Output
	p.cmd.Env = append(withoutCOSI(os.Environ()), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.done <- p.cmd.Wait() }()
	return p, nil
}

func withoutCOSI(env []string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(e, "COSI_") {
			out = append(out, e)
		}
	}
	return out
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill is kill -9.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	p.done <- <-p.done
}

// Stop asks the process to end and waits; the error says how it ended.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	return p.Wait()
}

// Wait waits for the end.
func (p *Process) Wait() error {
	err := <-p.done
	p.done <- err
	return err
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case err := <-p.done:
		p.done <- err
		return true
	default:
		return false
	}
}

// Until calls ready until it returns nil, the process has ended or ctx is over.
func (p *Process) Until(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if p.Ended() {
			return fmt.Errorf("%s ended: %w\n%s", filepath.Base(p.cmd.Path), p.Wait(), p.Output)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", filepath.Base(p.cmd.Path), err, p.Output)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Contractd is a running contract service.
type Contractd struct {
	*Process
	// API and S3 are the servers' addresses.
	API, S3 string
	// Token opens the API; TokenFile holds it.
	Token, TokenFile string
}

// StartContractd runs contractd with its data in dir, which a later start may
// use again. Extra flags are passed on.
func StartContractd(ctx context.Context, b Binaries, dir string, flags ...string) (*Contractd, error) {
	c := &Contractd{TokenFile: filepath.Join(dir, "token")}
	if text, err := os.ReadFile(c.TokenFile); err == nil {
		c.Token = string(text)
	} else {
		c.Token = "token-" + rand.Text()
		if err := os.WriteFile(c.TokenFile, []byte(c.Token), 0o600); err != nil {
			return nil, err
		}
	}
	addresses := filepath.Join(dir, "addresses.json")
	_ = os.Remove(addresses)
	p, err := Start(ctx, b.Contractd, append([]string{"--data-dir", filepath.Join(dir, "data"), "--token-file", c.TokenFile, "--addresses-file", addresses}, flags...)...)
	if err != nil {
		return nil, err
	}
	c.Process = p
	err = p.Until(ctx, func() error {
		text, err := os.ReadFile(addresses)
		if err != nil {
			return err
		}
		var at struct{ API, S3 string }
		if err := json.Unmarshal(text, &at); err != nil {
			return err
		}
		c.API, c.S3 = at.API, at.S3
		return nil
	})
	if err != nil {
		p.Kill()
		return nil, err
	}
	return c, nil
}

// Driver is a running driver.
type Driver struct {
	*Process
	// Conn is connected to its socket.
	Conn *grpc.ClientConn
	// Endpoint is its socket.
	Endpoint string
	// HTTP is where it serves metrics and probes.
	HTTP string
}

// StartDriver runs the driver with a configuration file, its socket in dir.
func StartDriver(ctx context.Context, b Binaries, dir, configFile string, flags ...string) (*Driver, error) {
	d := &Driver{Endpoint: "unix://" + filepath.Join(dir, "cosi.sock")}
	p, err := Start(ctx, b.Driver, append([]string{"serve", "--config", configFile, "--endpoint", d.Endpoint, "--http-endpoint", "127.0.0.1:0"}, flags...)...)
	if err != nil {
		return nil, err
	}
	d.Process = p
	err = p.Until(ctx, func() error {
		if _, err := os.Stat(strings.TrimPrefix(d.Endpoint, "unix://")); err != nil {
			return err
		}
		_, rest, ok := strings.Cut(p.Output.String(), ` http="`)
		if !ok {
			return errors.New("its log does not say where HTTP is served")
		}
		d.HTTP, _, _ = strings.Cut(rest, `"`)
		return nil
	})
	if err == nil {
		d.Conn, err = Dial(ctx, d.Endpoint)
	}
	if err != nil {
		p.Kill()
		return nil, err
	}
	return d, nil
}

// Dial connects to a driver's socket as the sidecars do.
func Dial(ctx context.Context, endpoint string) (*grpc.ClientConn, error) {
	return connection.Connect(ctx, endpoint, nil, connection.WithTimeout(10*time.Second))
}

// Stop closes the connection and stops the driver.
func (d *Driver) Stop() error {
	_ = d.Conn.Close()
	return d.Process.Stop()
}

// Kill is kill -9.
func (d *Driver) Kill() {
	_ = d.Conn.Close()
	d.Process.Kill()
}

// ConfigText is a configuration with one backend, "main". Contracts is the
// YAML of its contracts and whatever else belongs to the file's top level.
func ConfigText(dir, api, tokenFile, contracts string) string {
	return configText(dir, fmt.Sprintf(`type: contractapi
    contractapi:
      url: %s
      tokenFile: %s`, api, tokenFile), contracts)
}

// configText is a configuration whose backend is given without its name.
func configText(dir, backend, contracts string) string {
	return fmt.Sprintf(`driver:
  name: contract.cosi.example.com
  owner: example-cluster
journal:
  file: %s
backends:
  - name: main
    %s
%s`, filepath.Join(dir, "journal.log"), backend, contracts)
}

// InSecrets is a configuration with its journal moved to Kubernetes Secrets.
func InSecrets(configuration, namespace, kubeconfig string) string {
	before, rest, _ := strings.Cut(configuration, "journal:\n")
	_, after, _ := strings.Cut(rest, "\nbackends:\n")
	return fmt.Sprintf("%sjournal:\n  secrets:\n    namespace: %s\n    kubeconfig: %s\nbackends:\n%s", before, namespace, kubeconfig, after)
}

// S3 is a client as an application would make one from its Secret.
func S3(endpoint, region, accessKeyID, secretAccessKey string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(endpoint), Region: region, UsePathStyle: true,
		Credentials:      credentials.NewStaticCredentialsProvider(accessKeyID, secretAccessKey, ""),
		RetryMaxAttempts: 1,
	})
}

// Copy writes what a process printed, indented.
func Copy(w io.Writer, p *Process) {
	for line := range strings.Lines(p.Output.String()) {
		_, _ = fmt.Fprint(w, "    ", line)
	}
}
