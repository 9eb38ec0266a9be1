package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// What is installed. The driver and the sidecar get along with the rights that
// the chart gives them.
const (
	deployDir        = "../../deploy"
	driverNamespace  = "contract-cosi-system"
	journalNamespace = driverNamespace + "-journal"
	release          = "contract-cosi-driver"
	driverAccount    = release + "-driver"
	sidecarAccount   = release + "-sidecar"
	deliverAccount   = release + "-deliver"

	controllerRBAC      = "controller.yaml"
	controllerNamespace = "cosi"
	controllerAccount   = "controller"
)

// driverName is what classes give.
const driverName = "contract.cosi.example.com"

// fast is a rate limit that limits nothing here; upstream's default is 5
// requests a second.
const fast = "1000"

// world is the cluster with all that runs in it.
type world struct {
	*cluster
	ctx     context.Context
	version string // of COSI
	dir     string
	cosiBin string
	build   harness.Binaries

	contractd      *harness.Contractd
	contractdPorts []string
	drift, terms   string // the settings, of a scenario that has them
	delivery       string // the socket at which another process writes applications' Secrets
	driver         *harness.Driver
	accounts       map[string]string           // kubeconfigs, by account
	restarts       int                         // of the API server, which is unjust while it starts
	running        map[string]*harness.Process // what has to run now
	logs           []log
}

// log is what a process printed, which outlives it.
type log struct {
	name   string
	output *harness.Buffer
}

func newWorld(ctx context.Context, version, bin, dir string) *world {
	return &world{
		ctx: ctx, version: version, cluster: &cluster{}, dir: dir, cosiBin: filepath.Join(bin, "cosi"), accounts: map[string]string{}, running: map[string]*harness.Process{},
		build: harness.Binaries{Driver: filepath.Join(bin, "contract-cosi-driver"), Contractd: filepath.Join(bin, "contractd")},
	}
}

// start starts everything. What it started is in the world, also when it fails.
func (w *world) start(kubeBin string) (err error) {
	w.cluster, err = startCluster(w.ctx, kubeBin, w.dir)
	if w.cluster != nil {
		w.runs("etcd", w.etcd)
		w.runs("apiserver", w.apiserver)
	}
	if err != nil {
		return err
	}
	if err := w.installCOSI(w.ctx, w.version); err != nil {
		return err
	}
	if err := w.install(w.ctx, w.version, w.version); err != nil {
		return err
	}
	if err := w.apply(w.ctx, "-f", controllerRBAC); err != nil {
		return err
	}
	if err := w.apply(w.ctx, "-f", filepath.Join(deployDir, "crds")); err != nil {
		return err
	}
	for _, option := range []string{"events", "contracts"} {
		rights, err := rightsOf(option, driverAccount)
		if err != nil {
			return err
		}
		if _, err := w.kubectl(w.ctx, rights, "apply", "--validate=strict", "-f", "-"); err != nil {
			return err
		}
	}
	for _, a := range []struct{ namespace, name string }{
		{driverNamespace, driverAccount}, {driverNamespace, sidecarAccount}, {controllerNamespace, controllerAccount},
	} {
		if w.accounts[a.name], err = w.serviceAccount(w.ctx, a.namespace, a.name); err != nil {
			return err
		}
	}
	if err := w.startContractd(); err != nil {
		return err
	}
	if err := w.startDriver(); err != nil {
		return err
	}
	if w.version != "v1alpha1" {
		return w.startStandIn()
	}
	return errors.Join(w.startCOSI("controller", fast), w.startCOSI("sidecar", fast))
}

// rightsOf are what the chart gives the driver with an option that is off in the
// manifests: events, contracts, or application-secrets in every namespace. An account
// other than the driver's can have these.
func rightsOf(option, account string) (string, error) {
	text, err := os.ReadFile(filepath.Join(deployDir, "chart", "templates", option+".yaml"))
	if rules, rest, is := strings.Cut(string(text), "{{- end }}\n"); is && strings.HasPrefix(rules, "{{- define") {
		_, rules, _ = strings.Cut(rules, "\n")
		_, rest, _ = strings.Cut(rest, "}}\n")
		rest, _, _ = strings.Cut(rest, "{{- end }}")
		text = []byte(strings.Replace(rest, ` {{- include "contract-cosi-driver.renewedSecrets" . | nindent 2 }}`, "\n"+rules, 1))
	}
	return strings.NewReplacer(
		`{{ include "contract-cosi-driver.secretsAccount" . }}`, account, `{{ include "contract-cosi-driver.name" . }}`, release, `{{- include "contract-cosi-driver.labels" . | nindent 4 }}`, "{}",
		"{{ .Release.Namespace }}", driverNamespace, "{{- if .Values."+option+".enabled }}", "", "{{- end }}", "",
	).Replace(string(text)), err
}

// mayWriteSecrets gives an account what applicationSecrets needs, in every namespace,
// for one scenario: others show what the driver cannot do without.
func (s *scenario) mayWriteSecrets(account string) {
	s.Helper()
	rights, err := rightsOf("application-secrets", account)
	s.must(err)
	_, err = s.kubectl(s.ctx, rights, "apply", "--validate=strict", "-f", "-")
	s.must(err)
	s.Cleanup(func() {
		_, err := s.kubectl(s.ctx, rights, "delete", "-f", "-")
		s.must(err)
	})
}

// runs notes that a process has to run from now on, and keeps what it prints.
func (w *world) runs(name string, p *harness.Process) {
	if p != nil {
		w.running[name] = p
		w.logs = append(w.logs, log{name, p.Output})
	}
}

// kill is kill -9, from outside.
func (w *world) kill(name string) {
	p, ok := w.running[name]
	if !ok {
		return
	}
	p.Kill()
	if name == "driver" {
		_ = w.driver.Conn.Close()
	}
	delete(w.running, name)
}

func (w *world) startContractd() (err error) {
	if w.contractdPorts == nil { // which the applications know
		if w.contractdPorts, err = freePorts(2); err != nil {
			return err
		}
	}
	api, s3 := "127.0.0.1:"+w.contractdPorts[0], "127.0.0.1:"+w.contractdPorts[1]
	if w.contractd, err = harness.StartContractd(w.ctx, w.build, w.dir, "--api-address", api, "--s3-address", s3); err == nil {
		w.runs("contractd", w.contractd.Process)
	}
	return err
}

// config is the driver's. A contract goes with its last bucket, so a scenario
// that leaves one has left a bucket.
func (w *world) config() string {
	secrets := ""
	if w.delivery != "" {
		secrets = "socket: " + w.delivery
	}
	return fmt.Sprintf(`driver: {name: %s, owner: e2e, events: true}
journal:
  secrets: {namespace: %s, kubeconfig: %s}
backends:
- name: main
  type: contractapi
  contractapi: {url: "%s", tokenFile: %s}
onDemand: {backend: main, onLastBucket: cancel, adoptBuckets: true%s}
objects: {}
applicationSecrets: {%s}
drift: %s
`, driverName, journalNamespace, w.accounts[driverAccount], w.contractd.API, w.contractd.TokenFile, w.terms, secrets, cmp.Or(w.drift, "{}"))
}

// writeConfig writes the driver's configuration, which it reads again by itself.
func (w *world) writeConfig() error {
	return os.WriteFile(filepath.Join(w.dir, "driver.yaml"), []byte(w.config()), 0o600)
}

func (w *world) startDriver() (err error) {
	file := filepath.Join(w.dir, "driver.yaml")
	if err := w.writeConfig(); err != nil {
		return err
	}
	if w.driver, err = harness.StartDriver(w.ctx, w.build, w.dir, file, "-v", "2"); err == nil {
		w.runs("driver", w.driver.Process)
	}
	return err
}

// restartAPIServer starts it again.
func (w *world) restartAPIServer() error {
	w.restarts++
	err := w.startAPIServer(w.ctx)
	w.runs("apiserver", w.apiserver)
	return err
}

// startCOSI starts one of upstream's two programs, under its own account. They
// wait less than upstream's 30 s between attempts, for the run to be short.
func (w *world) startCOSI(role, qps string) error {
	account := map[string]string{"controller": controllerAccount, "sidecar": sidecarAccount}[role]
	p, err := harness.Start(w.ctx, w.cosiBin, role, "--kubeconfig", w.accounts[account], "--driver-addr", w.driver.Endpoint,
		"--qps", qps, "--retry-max", "2s", "-v", "3")
	w.runs(role, p)
	return err
}

// startStandIn starts what stands in for the controller and the sidecar of v1alpha2,
// which upstream has not released.
func (w *world) startStandIn() error {
	p, err := harness.Start(w.ctx, w.cosiBin, "v1alpha2", "--kubeconfig", w.kubeconfig, "--driver-addr", w.driver.Endpoint, "--qps", fast)
	w.runs("sidecar", p)
	return err
}

// startDeliver starts what writes applications' Secrets in the driver's place.
func (w *world) startDeliver() error {
	p, err := harness.Start(w.ctx, w.build.Driver, "deliver", "--endpoint", "unix://"+w.delivery, "--kubeconfig", w.accounts[deliverAccount], "--v", "2")
	w.runs("deliver", p)
	return err
}

// alive fails when something ended that the test did not end, by a panic of upstream's
// for one, and when someone lacks a right.
func (w *world) alive() error {
	for name, p := range w.running {
		for line := range strings.Lines(p.Output.String()) {
			denied := strings.Contains(line, "cannot") && strings.Contains(line, "system:serviceaccount:") || strings.Contains(line, "does not let the driver")
			if denied && w.restarts == 0 {
				return fmt.Errorf("%s lacks a right: %s", name, line)
			}
		}
		if p.Ended() {
			return fmt.Errorf("%s ended by itself: %w\n%s", name, p.Wait(), tail(p.Output.String(), 40))
		}
	}
	return nil
}

// tells reports which processes have ever printed a text.
func (w *world) tells(text string) (names []string) {
	for _, l := range w.logs {
		if strings.Contains(l.output.String(), text) {
			names = append(names, l.name)
		}
	}
	return names
}

// tail is the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// stop ends all processes and waits for their end.
func (w *world) stop() {
	for name := range w.running {
		w.kill(name)
	}
}

// saveLogs writes what the processes printed.
func (w *world) saveLogs(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var all []error
	for i, l := range w.logs {
		all = append(all, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d-%s.log", i, l.name)), []byte(l.output.String()), 0o600))
	}
	return errors.Join(all...)
}

// api calls the contract service as its operator would.
func (w *world) api(method, path, body string, into any) (int, error) {
	req, err := http.NewRequestWithContext(w.ctx, method, w.contractd.API+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+w.contractd.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && into != nil && resp.StatusCode < 300 {
		err = json.Unmarshal(text, into)
	}
	return resp.StatusCode, err
}

// left names everything that claims and accesses bring about, anywhere.
func (w *world) left() ([]string, error) {
	var left []string
	api := w.cosi.ObjectstorageV1alpha1()
	all := metav1.ListOptions{}
	accesses, err := api.BucketAccesses("").List(w.ctx, all)
	if err != nil {
		return nil, err
	}
	claims, err := api.BucketClaims("").List(w.ctx, all)
	if err != nil {
		return nil, err
	}
	buckets, err := api.Buckets().List(w.ctx, all)
	if err != nil {
		return nil, err
	}
	secrets, err := w.kube.CoreV1().Secrets("").List(w.ctx, all)
	if err != nil {
		return nil, err
	}
	for i := range accesses.Items {
		left = append(left, "BucketAccess "+path(&accesses.Items[i]))
	}
	for i := range claims.Items {
		left = append(left, "BucketClaim "+path(&claims.Items[i]))
	}
	for i := range buckets.Items {
		left = append(left, "Bucket "+path(&buckets.Items[i]))
	}
	for i := range secrets.Items { // no one else makes Secrets here, but for the driver's token; a journal keeps its identity
		if s := &secrets.Items[i]; s.Type == v1.SecretTypeServiceAccountToken || s.Labels["contract-cosi-driver/kind"] == "identity" {
			continue
		}
		left = append(left, "Secret "+path(&secrets.Items[i])+" of type "+string(secrets.Items[i].Type))
	}
	contracts, err := w.listed("/v1/contracts")
	if err != nil {
		return nil, err
	}
	for _, c := range contracts {
		left = append(left, "contract "+c+", so a bucket of it")
		keys, err := w.listed("/v1/contracts/" + c + "/keys")
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			left = append(left, "key "+c+"/"+k)
		}
	}
	return left, nil
}

// path is an object's namespace and name.
func path(o metav1.Object) string { return strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/") }

// listed are the names that contractd lists.
func (w *world) listed(what string) ([]string, error) {
	var page struct {
		Items         []struct{ Name string }
		NextPageToken string
	}
	code, err := w.api(http.MethodGet, what+"?pageSize=500", "", &page)
	if err != nil || code != http.StatusOK || page.NextPageToken != "" {
		return nil, fmt.Errorf("contractd does not list all of %s: HTTP %d, %w", what, code, err)
	}
	var names []string
	for _, item := range page.Items {
		names = append(names, item.Name)
	}
	return names, nil
}

// metric is the sum of the samples of one of the driver's metrics that have all
// the labels.
func (w *world) metric(name string, labels ...string) (float64, error) {
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://"+w.driver.HTTP+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if !strings.Contains(string(text), "\n"+name) {
		return 0, fmt.Errorf("the driver has no metric %s", name)
	}
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") ||
			slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &v); err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}
