package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/container-object-storage-interface/client/clientset/versioned"

	apiclient "github.com/contract-cosi/contract-cosi-driver/pkg/apis/client"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// cluster is etcd and an API server.
type cluster struct {
	bin, dir, address string
	flags             []string // the API server's, which a restart has to repeat
	adminToken        string
	kubeconfig        string // the administrator's
	etcd, apiserver   *harness.Process
	kube              kubernetes.Interface
	cosi              versioned.Interface // v1alpha1
	dynamic           dynamic.Interface   // any version
	own               *apiclient.Client   // of the driver's types
}

// startCluster runs etcd and an API server that only the administrator may use.
// What it started is in the cluster, also when it fails.
func startCluster(ctx context.Context, bin, dir string) (*cluster, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bin, dir: dir, address: "127.0.0.1:" + ports[2], adminToken: rand.Text(), kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	c.etcd, err = harness.Start(ctx, filepath.Join(bin, "etcd"), "--name", "e", "--data-dir", filepath.Join(dir, "etcd"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "e="+peer,
		"--unsafe-no-fsync", "--log-level", "warn") // what it holds need not outlive the machine
	if err != nil {
		return c, err
	}
	tokens, saKey := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "sa.key")
	if err := os.WriteFile(tokens, []byte(c.adminToken+",admin,admin-uid,system:masters\n"), 0o600); err != nil {
		return c, err
	}
	if err := writeKey(saKey); err != nil {
		return c, err
	}
	c.flags = []string{
		"--etcd-servers", client, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", ports[2],
		"--cert-dir", filepath.Join(dir, "certs"), "--token-auth-file", tokens, "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", saKey, "--service-account-signing-key-file", saKey,
		"--service-cluster-ip-range", "10.0.0.0/24", "--endpoint-reconciler-type", "none", "--profiling=false", "--v", "1",
	}
	if err := c.startAPIServer(ctx); err != nil {
		return c, err
	}
	if err := c.writeKubeconfig(c.kubeconfig, c.adminToken); err != nil {
		return c, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return c, err
	}
	config.QPS, config.Burst = 1000, 2000
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return c, err
	}
	if c.cosi, err = versioned.NewForConfig(config); err != nil {
		return c, err
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	c.own, err = apiclient.New(config)
	return c, err
}

// startAPIServer starts it, or starts it again, and waits until it is ready.
func (c *cluster) startAPIServer(ctx context.Context) (err error) {
	if c.apiserver, err = harness.Start(ctx, filepath.Join(c.bin, "kube-apiserver"), c.flags...); err != nil {
		return err
	}
	return c.apiserver.Until(ctx, func() error {
		if c.etcd.Ended() {
			return fmt.Errorf("etcd ended: %s", c.etcd.Output)
		}
		return c.readyz(ctx)
	})
}

func (c *cluster) readyz(ctx context.Context) error {
	ca, err := os.ReadFile(c.ca())
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return errors.New("the API server's certificate is not written yet")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.address+"/readyz", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.adminToken)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("readyz: HTTP %d: %s", resp.StatusCode, text)
	}
	return nil
}

// ca is the certificate that the API server made for itself.
func (c *cluster) ca() string { return filepath.Join(c.dir, "certs", "apiserver.crt") }

func (c *cluster) writeKubeconfig(path, token string) error {
	return os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority: "%s"}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, c.address, c.ca(), token), 0o600)
}

// serviceAccount writes a kubeconfig with a ServiceAccount's token and nothing
// else, and returns its path.
func (c *cluster) serviceAccount(ctx context.Context, namespace, name string) (string, error) {
	token, err := c.kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, name+".kubeconfig")
	return path, c.writeKubeconfig(path, token.Status.Token)
}

// kubectl runs kubectl as the administrator and returns what it prints.
func (c *cluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "KUBECACHEDIR="+filepath.Join(c.dir, "kubectl"))
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// approval is what the API server wants to see on types of a *.k8s.io group;
// the value is that of upstream's kustomization.
const approval = "api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1979-object-storage-support"

// installCOSI applies the CRDs of an API version.
func (c *cluster) installCOSI(ctx context.Context, version string) error {
	files, err := filepath.Abs("v1alpha2.yaml")
	if version == "v1alpha1" {
		files, err = released(ctx)
	}
	if err != nil {
		return err
	}
	annotated, err := c.kubectl(ctx, "", "annotate", "--local", "-f", files, approval, "-o", "yaml")
	if err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, annotated, "apply", "--validate=strict", "-f", "-"); err != nil {
		return err
	}
	_, err = c.kubectl(ctx, "", "wait", "--for", "condition=Established", "crd", "--all", "--timeout", "30s")
	return err
}

// released is where the client module has its CRDs.
func released(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/container-object-storage-interface/client").Output()
	if err != nil {
		return "", fmt.Errorf("where the client module is: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "config", "crd"), nil
}

// apply applies manifests as users should: the API server names every field
// that it does not know.
func (c *cluster) apply(ctx context.Context, args ...string) error {
	_, err := c.kubectl(ctx, "", append([]string{"apply", "--validate=strict"}, args...)...)
	return err
}

// install applies one variant of deploy/manifests, with the part that newer API
// servers take.
func (c *cluster) install(ctx context.Context, variant, version string) error {
	dir := filepath.Join(deployDir, "manifests", variant)
	for _, args := range [][]string{{"-f", filepath.Join(dir, "namespace.yaml")}, {"-k", dir}} {
		if err := c.apply(ctx, args...); err != nil {
			return err
		}
	}
	if err := c.apply(ctx, "-f", filepath.Join(dir, "admission-mutating.yaml")); err != nil {
		return err
	}
	return c.enforced(ctx, version)
}

// enforced waits until the policies are in force. An API server that has just
// learnt of the types refuses everything for a while, and lets everything pass.
func (c *cluster) enforced(ctx context.Context, version string) error {
	return c.apiserver.Until(ctx, func() error {
		for _, of := range []struct {
			kind              string
			parameters        map[string]string
			defaulted, become string
		}{
			{"BucketClass", map[string]string{"contract": "probe"}, "onDelete", "refuse"},
			{"BucketAccessClass", nil, "access", "ReadWrite"},
		} {
			made, err := c.takesClass(ctx, version, classCase{Class: of.kind, Parameters: of.parameters})
			if err != nil {
				return err
			}
			path := []string{"spec", "parameters", of.defaulted}
			if version == "v1alpha1" {
				path = path[1:]
			}
			if got, _, _ := unstructured.NestedString(made.Object, path...); got != of.become {
				return fmt.Errorf("a %s gets no defaults", of.kind)
			}
			if _, err := c.takesClass(ctx, version, classCase{Class: of.kind, Parameters: map[string]string{"probe": ""}}); err == nil {
				return fmt.Errorf("a bad %s is accepted", of.kind)
			}
		}
		return nil
	})
}

// freePorts returns ports that are free. They are below those that the
// system gives to clients, so that one stays free while its server is away.
func freePorts(n int) (ports []string, err error) {
	for tries := 0; len(ports) < n; tries++ {
		port := strconv.Itoa(10000 + mathrand.IntN(20000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			err = l.Close()
		}
		if err != nil && tries > 100 {
			return nil, err
		}
		if err == nil && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// writeKey makes the key that ServiceAccount tokens are signed with.
func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return os.WriteFile(path, text, 0o600)
}
