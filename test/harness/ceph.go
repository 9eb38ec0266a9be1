package harness

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	insecure "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Ceph is a cluster of one machine with an object gateway: a monitor, a storage
// daemon that keeps all in memory, and radosgw.
type Ceph struct {
	// URL is where the gateway serves S3 and the Admin Ops API.
	URL string
	// AccessKeyID and Secret are the key of a user who administers users;
	// CredentialsFile holds them.
	AccessKeyID, Secret, CredentialsFile string

	dir       string
	gateway   string // its address
	radosgw   *Process
	processes []*Process // all that were started
}

// CephRegion is the name of the gateway's only region.
const CephRegion = "default"

// cephPackages are Debian's, and what is needed of each.
var cephPackages = map[string][]string{
	"ceph-mon": {"ceph-mon", "monmaptool"}, "ceph-osd": {"ceph-osd"}, "radosgw": {"radosgw"}, "ceph-common": {"ceph", "radosgw-admin"},
}

// MissingCeph names the Debian packages that [StartCeph] needs and this machine
// does not have.
func MissingCeph() []string {
	var missing []string
	for name, programs := range cephPackages {
		for _, program := range programs {
			if _, err := exec.LookPath(program); err != nil {
				missing = append(missing, name)
				break
			}
		}
	}
	return missing
}

// StartCeph runs a cluster with all that it has in dir, a private directory. It
// takes about 12 seconds, most of it the gateway's own pools.
func StartCeph(ctx context.Context, dir string) (_ *Ceph, err error) {
	if missing := MissingCeph(); len(missing) > 0 {
		return nil, fmt.Errorf("a Ceph gateway needs Debian's packages %s: run make test-backends as root, or apt-get install them", strings.Join(missing, ", "))
	}
	c := &Ceph{dir: dir, AccessKeyID: "administrator", Secret: rand.Text(), CredentialsFile: filepath.Join(dir, "credentials")}
	defer func() {
		if err != nil {
			c.Kill()
		}
	}()
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	monitor := fmt.Sprintf("[v2:127.0.0.1:%d,v1:127.0.0.1:%d]", ports[0], ports[1])
	c.gateway = fmt.Sprintf("127.0.0.1:%d", ports[2])
	c.URL = "http://" + c.gateway
	cluster, disk := uuid(), uuid()
	if err := errors.Join(os.Mkdir(c.in("mon"), 0o700), os.Mkdir(c.in("osd"), 0o700)); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.config(), []byte(cephConfig(dir, cluster, monitor)), 0o600); err != nil {
		return nil, err
	}
	if _, err := c.command(ctx, "monmaptool", "--create", "--fsid", cluster, "--addv", "a", monitor, c.in("monmap")); err != nil {
		return nil, err
	}
	if _, err := c.command(ctx, "ceph-mon", "--mkfs", "-i", "a", "--monmap", c.in("monmap")); err != nil {
		return nil, err
	}
	if _, err := c.daemon(ctx, "ceph-mon", "-i", "a"); err != nil {
		return nil, err
	}
	if _, err := c.command(ctx, "ceph", "osd", "new", disk); err != nil {
		return nil, err
	}
	// With another id than the monitor was told, it passes over the daemon forever.
	if _, err := c.command(ctx, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk); err != nil {
		return nil, err
	}
	if _, err := c.daemon(ctx, "ceph-osd", "-i", "0"); err != nil {
		return nil, err
	}
	if err := c.startGateway(ctx); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", c.AccessKeyID, c.Secret)
	if err := os.WriteFile(c.CredentialsFile, []byte(text), 0o600); err != nil {
		return nil, err
	}
	_, err = c.Admin(ctx, "user", "create", "--uid=administrator", "--display-name=administrator",
		"--access-key="+c.AccessKeyID, "--secret-key="+c.Secret, "--caps=users=*;user-policy=*;buckets=*")
	return c, err
}

func (c *Ceph) startGateway(ctx context.Context) (err error) {
	// Without tcp_nodelay each answer to a write waits for some 45 ms.
	c.radosgw, err = c.daemon(ctx, "radosgw", "-n", "client.rgw.a", "--rgw-frontends", "beast endpoint="+c.gateway+" tcp_nodelay=1")
	if err != nil {
		return err
	}
	return c.radosgw.Until(ctx, func() error { return answers(ctx, c.URL) })
}

// StopGateway ends the gateway alone, until [Ceph.RestartGateway].
func (c *Ceph) StopGateway() { _ = c.radosgw.Stop() }

// RestartGateway runs the gateway again, with the same data at the same address.
func (c *Ceph) RestartGateway(ctx context.Context) error { return c.startGateway(ctx) }

// Admin runs radosgw-admin, as the cluster's operator would.
func (c *Ceph) Admin(ctx context.Context, args ...string) (string, error) {
	return c.command(ctx, "radosgw-admin", args...)
}

// Kill ends all of it.
func (c *Ceph) Kill() {
	for _, p := range c.processes {
		p.Kill()
	}
}

// Log is all that the daemons have printed.
func (c *Ceph) Log() string {
	var out strings.Builder
	for _, p := range c.processes {
		out.WriteString(p.Output.String())
	}
	return out.String()
}

func (c *Ceph) in(name string) string { return filepath.Join(c.dir, name) }

func (c *Ceph) config() string { return c.in("ceph.conf") }

func (c *Ceph) command(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"-c", c.config()}, args...)...)
	if program == "monmaptool" { // which knows no cluster
		cmd.Args = append([]string{program}, args...)
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", program, err, said.String())
	}
	return out.String(), nil
}

func (c *Ceph) daemon(ctx context.Context, program string, args ...string) (*Process, error) {
	p, err := Start(ctx, program, append([]string{"-c", c.config(), "-f"}, args...)...)
	if err == nil {
		c.processes = append(c.processes, p)
	}
	return p, err
}

// cephConfig keeps every path in dir. There is no authentication inside of the
// cluster, which leaves crc as the only mode of its messages: the other one
// waits forever.
func cephConfig(dir, cluster, monitor string) string {
	return fmt.Sprintf(`[global]
fsid = %[2]s
mon host = %[3]s
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
ms client mode = crc
run dir = %[1]s
mon data = %[1]s/mon
osd data = %[1]s/osd
rgw data = %[1]s/rgw
keyring = %[1]s/keyring
crash dir = %[1]s/crash
admin socket =
pid file =
log file =
log to stderr = true
err to stderr = true
mon cluster log file =
debug rocksdb = 0
osd objectstore = memstore
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
mon allow pool size one = true
rgw enable apis = s3, admin, iam
`, dir, cluster, monitor)
}

// answers reports why a web server does not answer.
func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// freePorts finds free ports, below those that the system
// gives to outgoing connections, which could take one before it is used.
func freePorts(n int) ([]int, error) {
	const lowest, number = 20000, 12000
	var out []int
	for range 1000 {
		port := lowest + insecure.IntN(number)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		if out = append(out, port); len(out) == n {
			return out, nil
		}
	}
	return nil, errors.New("no free ports")
}

func uuid() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
