package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// node is a Kubernetes node with its control plane.
type node struct {
	dir   string // of all that it writes, gone with it
	group string // its cgroup, in each hierarchy
	kube  string // etcd and Kubernetes' programs
	bin   string // helm, and the images
	root  string // the repository

	cosi, cosiClient string // upstream's modules, as published

	mu    sync.Mutex
	parts map[string]*part
}

// part is a running program of the node.
type part struct {
	command []string
	process *os.Process
	ended   chan struct{} // closed when the process has ended
	asked   bool          // it was stopped, and its end is no fault
}

const (
	address  = "192.168.77.1" // the node's, and the DNS server's
	podRange = "10.88.0.0/16"
	hostname = "node"
	domain   = "cluster.local"
)

// start brings the node up, until it is Ready and has its images.
func (n *node) start(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"mounts", n.mounts},
		{"network", n.network},
		{"cgroups", n.cgroups},
		{"files", n.files},
		{"etcd and API server", n.controlPlane},
		{"containerd and images", n.runtime},
		{"kubelet", n.kubelet},
		{"the node is Ready", n.ready},
	} {
		from := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Printf("  %-24s %5.1f s\n", step.what, time.Since(from).Seconds())
	}
	return nil
}

// mounts puts directories of the node's own where its parts write, and files in the
// place of the machine's settings that kubelet changes.
func (n *node) mounts(context.Context) error {
	if err := syscall.Mount("none", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, over := range []string{"/var/lib", "/var/log"} {
		dir := filepath.Join(n.dir, over)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(dir, over, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return err
		}
		file := n.path("sysctl-" + filepath.Base(name))
		if err := os.WriteFile(file, value, 0o600); err != nil {
			return err
		}
		if err := syscall.Mount(file, "/proc/sys/"+name, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return syscall.Sethostname([]byte(hostname))
}

// network is a bridge without ports, which has the node's address, and routes to it.
func (n *node) network(ctx context.Context) error {
	for _, line := range []string{
		"ip link set lo up",
		"ip link add node0 type bridge",
		"ip address add " + address + "/24 dev node0",
		"ip link set node0 up",
		"ip route add default dev node0",
	} {
		if out, err := exec.CommandContext(ctx, "bash", "-c", line).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s", line, out)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// cgroups makes the node's group in each hierarchy.
func (n *node) cgroups(context.Context) error {
	const top = "/sys/fs/cgroup"
	if controllers, err := os.ReadFile(top + "/cgroup.controllers"); err == nil { // version 2
		var all []string
		for c := range strings.FieldsSeq(string(controllers)) {
			all = append(all, "+"+c)
		}
		if err := os.WriteFile(top+"/cgroup.subtree_control", []byte(strings.Join(all, " ")), 0); err != nil {
			return err
		}
		return os.Mkdir(filepath.Join(top, n.group), 0o755)
	}
	hierarchies, err := os.ReadDir(top)
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if !h.IsDir() {
			continue
		}
		if err := os.Mkdir(filepath.Join(top, h.Name(), n.group), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new group
		value, err := os.ReadFile(filepath.Join(top, "cpuset", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(top, "cpuset", n.group, name), value, 0); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// users of the API server, with their groups. A user's token is in its kubeconfig.
var users = map[string]string{
	"admin":                          "system:masters",
	"system:kube-controller-manager": "",
	"system:kube-scheduler":          "",
	"system:kube-proxy":              "",
	"system:node:" + hostname:        "system:nodes",
}

func (n *node) files(context.Context) error {
	var tokens strings.Builder
	for user, group := range users {
		token := rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, user, user, group)
		if err := n.write(n.kubeconfig(user), fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: node
clusters: [{name: node, cluster: {server: "https://%s:6443", certificate-authority: %s/apiserver.crt}}]
users: [{name: user, user: {token: %s}}]
contexts: [{name: node, context: {cluster: node, user: user}}]
`, address, n.path("certs"), token)); err != nil {
			return err
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	snapshotter := "overlayfs"
	if !n.overlays() {
		snapshotter = "native"
	}
	for name, text := range map[string]string{
		"tokens.csv":  tokens.String(),
		"sa.key":      string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"hosts":       "",
		"resolv.conf": "nameserver " + address + "\n",
		"cni/10-node.conflist": `{"cniVersion": "0.4.0", "name": "node", "plugins": [
{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "` + podRange + `", "routes": [{"dst": "0.0.0.0/0"}]}},
{"type": "portmap", "capabilities": {"portMappings": true}}]}`,
		"containerd.toml": `version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "` + n.path("opt") + `"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true # runc may not raise it everywhere
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "` + n.path("cni") + `"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "` + snapshotter + `"
`,
		"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}} # no one else is in its network
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /` + n.group + `
failCgroupV1: false
failSwapOn: false
clusterDNS: [` + address + `]
clusterDomain: ` + domain + `
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: ` + n.path("resolv.conf") + `
volumePluginDir: ` + n.path("plugins") + `
imageGCHighThresholdPercent: 100 # the disk is the machine's
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
evictionPressureTransitionPeriod: 5s
`,
	} {
		if err := n.write(n.path(name), text); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// overlays reports whether the node's directory can be below an overlay.
func (n *node) overlays() bool {
	dir := n.path("overlay")
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return false
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if syscall.Mount("none", dir+"/merged", "overlay", 0, options) != nil {
		return false
	}
	return syscall.Unmount(dir+"/merged", 0) == nil
}

// kubeconfig is a user's file.
func (n *node) kubeconfig(user string) string { return n.path(user + ".kubeconfig") }

func (n *node) controlPlane(ctx context.Context) error {
	n.launch("etcd", "--name", "e", "--data-dir", n.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn")
	n.launch("kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379", "--advertise-address", address, "--cert-dir", n.path("certs"),
		"--token-auth-file", n.path("tokens.csv"), "--authorization-mode", "Node,RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", n.path("sa.key"), "--service-account-signing-key-file", n.path("sa.key"),
		"--service-cluster-ip-range", "10.0.0.0/24", "--kubelet-preferred-address-types", "InternalIP", "--profiling=false", "--v", "1")
	if err := n.until(ctx, func() error {
		out, err := n.kubectl(ctx, "get", "--raw", "/readyz")
		if err != nil {
			return err
		}
		if out != "ok" {
			return errors.New(out)
		}
		return nil
	}); err != nil {
		return err
	}
	n.launch("kube-controller-manager", "--kubeconfig", n.kubeconfig("system:kube-controller-manager"), "--leader-elect=false",
		"--use-service-account-credentials", "--service-account-private-key-file", n.path("sa.key"), "--root-ca-file", n.path("certs/apiserver.crt"),
		"--node-monitor-grace-period", "20s")
	n.launch("kube-scheduler", "--kubeconfig", n.kubeconfig("system:kube-scheduler"), "--leader-elect=false")
	n.launch("kube-proxy", "--kubeconfig", n.kubeconfig("system:kube-proxy"), "--hostname-override", hostname, "--proxy-mode", "iptables", "--cluster-cidr", podRange,
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0")
	// Names of Services, in the place of CoreDNS.
	n.launch("dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--user=root", "--pid-file=", "--log-facility=-",
		"--listen-address", address, "--bind-interfaces", "--local=/"+domain+"/", "--address=/"+contracts+"/"+address, "--addn-hosts", n.path("hosts"))
	// A signal that comes before the server knows what to do with it would end it.
	if err := n.until(ctx, func() error { return answers(ctx, net.JoinHostPort(address, "53")) }); err != nil {
		return fmt.Errorf("the DNS server: %w", err)
	}
	go n.names(ctx)
	return nil
}

// answers dials an address.
func answers(ctx context.Context, at string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// names tells the DNS server of Services, as long as the node runs.
func (n *node) names(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for before := ""; ctx.Err() == nil; <-tick.C {
		now, err := n.kubectl(ctx, "get", "services", "--all-namespaces",
			"-o", `jsonpath={range .items[*]}{.spec.clusterIP} {.metadata.name}.{.metadata.namespace}.svc.`+domain+`{"\n"}{end}`)
		if err != nil || now == before {
			continue
		}
		if os.WriteFile(n.path("hosts"), []byte(now), 0o600) == nil && n.signal("dnsmasq", syscall.SIGHUP) == nil {
			before = now
		}
	}
}

func (n *node) runtime(ctx context.Context) error {
	n.launch("containerd", "--config", n.path("containerd.toml"), "--log-level", "warn")
	if err := n.until(ctx, func() error { return n.ctr(ctx, "version") }); err != nil {
		return err
	}
	return n.images(ctx)
}

// images imports all images, as a registry would have them.
func (n *node) images(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(n.bin, "images", "*.tar"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%d images: %w", len(files), err)
	}
	for _, file := range files {
		if err := n.ctr(ctx, "images", "import", file); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) ctr(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ctr", append([]string{"--namespace", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (n *node) kubelet(context.Context) error {
	n.launch("kubelet", "--config", n.path("kubelet.yaml"), "--kubeconfig", n.kubeconfig("system:node:"+hostname), "--hostname-override", hostname, "--node-ip", address)
	return nil
}

func (n *node) ready(ctx context.Context) error {
	return n.until(ctx, func() error {
		_, err := n.kubectl(ctx, "wait", "node", hostname, "--for=condition=Ready", "--timeout=1s")
		return err
	})
}

// kubectl runs kubectl as the administrator, and returns what it prints.
func (n *node) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(n.kube, "kubectl"), args...)
	cmd.Env = n.environment()
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("kubectl %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

func (n *node) environment() []string {
	return append(os.Environ(), "KUBECONFIG="+n.kubeconfig("admin"), "HOME="+n.dir, "GIT_CONFIG_GLOBAL="+n.path("gitconfig"),
		"PATH="+strings.Join([]string{n.kube, filepath.Join(n.bin, "path"), os.Getenv("PATH")}, ":"))
}

// launch starts a part, which has to run until it is stopped.
func (n *node) launch(name string, args ...string) {
	program := filepath.Join(n.kube, name)
	if _, err := os.Stat(program); err != nil {
		program = name
	}
	n.run(name, append([]string{program}, args...))
}

func (n *node) run(name string, command []string) {
	p := &part{command: command, ended: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.parts[name] = p
	log, err := os.OpenFile(n.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err) // the directory is the node's own
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the scenarios alone
	err = cmd.Start()
	_ = log.Close()
	if err != nil {
		fmt.Printf("%s: %v\n", name, err)
		close(p.ended)
		return
	}
	p.process = cmd.Process
	go func() {
		err := cmd.Wait()
		n.mu.Lock()
		if !p.asked {
			fmt.Printf("%s ended: %v\n", name, err)
		}
		n.mu.Unlock()
		close(p.ended)
	}()
}

func (n *node) signal(name string, s os.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.parts[name].process.Signal(s)
}

// restart kills a part, and starts it again.
func (n *node) restart(name string, s os.Signal) error {
	n.mu.Lock()
	p := n.parts[name]
	p.asked = true
	n.mu.Unlock()
	if err := p.process.Signal(s); err != nil {
		return err
	}
	<-p.ended
	n.run(name, p.command)
	return nil
}

// until repeats what fails for up to two minutes.
func (n *node) until(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(250 * time.Millisecond):
		}
	}
}
