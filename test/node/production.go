package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// contracts is the storage service of the guide's production: contractd, outside
// the cluster, behind TLS. The images trust its certificate as those of a company
// trust the company's.
const contracts = "contracts.example.com"

// makeCertificate writes service.crt and service.key.
func makeCertificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: contracts}, DNSNames: []string{contracts},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "service.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "service.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

const (
	apiAddress = "127.0.0.1:8080"
	s3Address  = "127.0.0.1:8081"
	s3Port     = ":7070"
	token      = "deploy/examples/kustomize/token"
)

// contractService starts the service, with the token of the examples.
func (w *walker) contractService() {
	data := w.path("contractd")
	if err := os.Mkdir(data, 0o700); err != nil {
		w.fail("%w", err)
	}
	w.run("contractd", []string{filepath.Join(w.bin, "contractd"), "--data-dir", data, "--token-file", filepath.Join(w.path("repository"), token),
		"--api-address", apiAddress, "--s3-address", s3Address, "--s3-url", "https://" + contracts + s3Port})
	for at, to := range map[string]string{":443": apiAddress, s3Port: s3Address} {
		proxy := &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: to})
				r.Out.Host = r.In.Host // it is signed
			},
			ErrorLog: log.New(os.Stdout, "  proxy: ", 0),
		}
		go func() {
			server := http.Server{Addr: address + at, Handler: proxy, ErrorLog: proxy.ErrorLog, ReadHeaderTimeout: time.Minute}
			fmt.Println("  proxy:", server.ListenAndServeTLS(filepath.Join(w.bin, "service.crt"), filepath.Join(w.bin, "service.key")))
		}()
	}
	if err := w.until(w.ctx, func() error { return w.service(http.MethodGet, "regions", nil, nil) }); err != nil {
		w.fail("%w", err)
	}
}

// service calls the contract API, as the operator of the service can.
func (w *walker) service(method, path string, in, out any) error {
	secret, err := os.ReadFile(filepath.Join(w.path("repository"), token))
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(w.ctx, method, "http://"+apiAddress+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret)))
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode/100 != 2 {
		return errors.New(answer.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(out)
}

// madeByHand makes a bucket under a contract without the driver.
func (w *walker) madeByHand(contract, bucket string) {
	var key struct {
		Key             struct{ AccessKeyID string }
		SecretAccessKey string
	}
	spec := map[string]any{"spec": map[string]string{"slot": "operator"}}
	if err := w.service(http.MethodPut, "contracts/"+contract+"/keys/operator", spec, &key); err != nil {
		w.fail("a key of contract %s: %w", contract, err)
	}
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String("http://" + s3Address), Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(key.Key.AccessKeyID, key.SecretAccessKey, ""),
	})
	fmt.Println("  # bucket", bucket, "is made without the driver")
	if _, err := client.CreateBucket(w.ctx, &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		w.fail("%w", err)
	}
}

// granted waits for the key of an access.
func (w *walker) granted(namespace, access string) {
	w.sh("kubectl -n " + namespace + " wait bucketaccess/" + access + " --for=jsonpath='{.status.accessGranted}'=true --timeout=2m")
}

const (
	installGuide    = "deploy/README.md"
	operationsGuide = "deploy/operations.md"
	rollout         = "kubectl -n " + system + " rollout status " + driver
)

// production follows the guides past the first bucket, from the installation for a
// storage service to the end of COSI.
func production(w *walker) {
	w.contractService()
	w.get("ctr --namespace k8s.io images tag docker.io/library/contract-cosi-driver:0.1.0 registry.example.com/contract-cosi-driver:0.1.0")
	w.sh("cp " + token + " token")
	install := w.guide(installGuide, "Install")
	w.overlay(install[3:])
	w.journalMoves(install[:3])

	w.follow(install[:3]...)
	w.sh(rollout)
	w.helmTestQuietly()
	w.tenant()
	w.follow(w.guide(installGuide, "An application that only reads")...)
	w.granted("blue", "photos-reader")
	w.formats()
	w.madeByHand("team-blue", "archive")
	w.follow(w.guide(installGuide, "Adopt an existing bucket")...)
	w.granted("blue", "archive")

	ordered := w.guide(installGuide, "A contract, ordered with kubectl")
	last := len(ordered) - 2 // takes the finalizers off when there is no driver
	w.follow(ordered[:last]...)
	w.granted("green", "photos")

	w.follow(w.guide(installGuide, "Change the configuration or a token")...)
	w.sh(rollout)
	w.operations()

	for _, line := range w.guide(installGuide, "Claims that are not ready") {
		w.with(line, "-n NAMESPACE", "-n blue", "bucketclaim CLAIM", "bucketclaim photos", `"BUCKET"`,
			`"`+w.get("kubectl -n blue get bucketclaim photos -o jsonpath='{.status.bucketName}'")+`"`)
	}
	w.toV1alpha2()
	w.follow(w.guide(installGuide, "Uninstall without losing data")...)
	if saved := w.get("grep -c 'type: contract-cosi-driver/journal' journal.yaml"); saved == "0" {
		w.fail("the journal is empty")
	}
	w.sh("kubectl -n green delete contract/media contractclass/standard --wait=false")
	w.follow(ordered[last:]...)
	w.sh("kubectl delete -f deploy/crds --timeout=1m")
	w.sh("kubectl delete namespace blue red green " + system + " " + system + "-journal")
}

// overlay installs with kustomize, and removes that again.
func (w *walker) overlay(lines []string) {
	w.follow(lines...)
	w.sh(rollout)
	w.sh("kubectl delete -k deploy/examples/kustomize --ignore-not-found")
	w.sh("kubectl delete namespace " + system + " " + system + "-journal")
}

// journalMoves begins as old releases did, with the journal beside the driver.
func (w *walker) journalMoves(install []string) {
	w.follow(install[:2]...)
	w.sh(install[2] + " --set journal.namespace=" + system + ",journal.createNamespace=false")
	tenant := w.guide(installGuide, "A tenant, from contract to application")
	w.follow(tenant[:len(tenant)-1]...) // without the application, whose data would keep the bucket
	w.granted("blue", "photos")
	w.sh("(cat deploy/examples/values.yaml; echo 'journal: {createNamespace: false}') > values.yaml")
	w.follow(w.guide(operationsGuide, "Move the journal to a namespace of its own")...)
	w.sh(rollout)
	w.sh("kubectl -n blue delete bucketaccess photos --timeout=2m") // by the record that was moved
	w.sh("kubectl -n blue delete bucketclaim photos --timeout=2m")
	w.sh("helm uninstall contract-cosi-driver --namespace " + system)
	w.sh("kubectl delete namespace blue red " + system + " " + system + "-journal")
	// The next driver has the same owner and not this journal.
	if err := w.service(http.MethodDelete, "contracts/team-blue", nil, nil); err != nil {
		w.fail("the contract is not cancelled: %w", err)
	}
}

// tenant goes from a contract to an application that writes into its bucket.
func (w *walker) tenant() {
	w.follow(w.guide(installGuide, "A tenant, from contract to application")...)
	w.granted("blue", "photos")
	w.sh("kubectl -n blue rollout status deployment/photos --timeout=2m")
	w.within(time.Minute, "find "+w.path("contractd")+" -name alive | grep alive")
}

// formats follows the guide to applications that read the environment, or files.
func (w *walker) formats() {
	w.sh("helm upgrade " + chart + " --reuse-values --set applicationSecrets.enabled=true")
	w.sh(rollout)
	w.sh("mkdir /var/lib/data && hostname > /var/lib/data/hostname")
	w.sh("kubectl apply -f " + w.root + "/test/node/volume.yaml") // the one that the backup is of
	w.follow(w.guide(installGuide, "Forms that applications read")...)
	w.granted("blue", "gallery")
	w.sh("kubectl -n blue rollout status deployment/uploader --timeout=2m")
	w.sh("kubectl -n blue rollout status deployment/gallery --timeout=2m")
	w.sh("kubectl -n blue exec deployment/gallery -- busybox wget -q -O - http://127.0.0.1:8080/alive")
	w.sh("kubectl -n blue create job now --from=cronjob/backup")
	w.sh("kubectl -n blue wait job/now --for=condition=Complete --timeout=2m")
	w.sh("find " + w.path("contractd") + " -path '*/backup/hostname' | grep .")
}

// operations follows the page on a running driver.
func (w *walker) operations() {
	w.follow(w.guide(operationsGuide, "Which driver makes changes")...)
	w.follow(w.guide(operationsGuide, "Encrypt the journal")...)
	for _, line := range w.guide(operationsGuide, "Events for teams") {
		w.with(line, "team-blue", "blue")
	}
	rotate := w.guide(operationsGuide, "Rotate keys")
	key := "kubectl -n blue get secret photos -o jsonpath='{.data.BucketInfo}'"
	before := w.get(key)
	for _, line := range rotate {
		w.ran[line] = true
	}
	w.sh(strings.ReplaceAll(strings.Join(rotate, "\n"), "team-blue", "blue"))
	if w.get(key) == before {
		w.fail("the Secret has the key that it had")
	}
}

// toV1alpha2 follows the guide as far as there are releases: the keys are revoked,
// COSI is removed, and the buckets and their data stay.
func (w *walker) toV1alpha2() {
	w.follow(w.guide(installGuide, "From v1alpha1 to v1alpha2")...)
	w.within(10*time.Second, "find "+w.path("contractd")+" -name alive | grep alive")
}
