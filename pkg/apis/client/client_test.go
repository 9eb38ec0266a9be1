package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/client"
	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
)

// A program orders a contract, and configures a bucket under it.
func Example() {
	ctx := context.Background()
	c, err := client.New(clusterConfig()) // of a kubeconfig, or rest.InClusterConfig()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Contracts("team-blue").Apply(ctx, &v1alpha1.Contract{
		ObjectMeta: metav1.ObjectMeta{Name: "media"},
		Spec:       v1alpha1.ContractSpec{ClassName: "standard"},
	}, metav1.ApplyOptions{FieldManager: "portal", Force: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	contract, err := c.Contracts("team-blue").Get(ctx, "media", metav1.GetOptions{})
	if err == nil && meta.IsStatusConditionTrue(contract.Status.Conditions, v1alpha1.Ready) {
		fmt.Println("claim buckets of", contract.Status.BucketClasses[0].Name)
	}
	_, err = c.BucketSettings("team-blue").Create(ctx, &v1alpha1.BucketSettings{
		ObjectMeta: metav1.ObjectMeta{Name: "photos"},
		Spec:       v1alpha1.BucketSettingsSpec{BucketClaimName: "photos", Versioning: "Enabled"},
	}, metav1.CreateOptions{})
	fmt.Println(err)
	// Output:
	// claim buckets of standard--aaaabbbbccccdddd
	// <nil>
}

// clusterConfig is of an API server that has the Contract media, and takes everything.
func clusterConfig() *rest.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			_, _ = io.Copy(w, r.Body)
			return
		}
		_, _ = io.WriteString(w, `{"apiVersion":"contract-cosi.github.io/v1alpha1","kind":"Contract","metadata":{"name":"media"},
			"status":{"conditions":[{"type":"Ready","status":"True"}],"bucketClasses":[{"template":"standard","name":"standard--aaaabbbbccccdddd"}]}}`)
	}))
	return &rest.Config{Host: server.URL}
}

// Each call asks for what it says, and reads what comes.
func TestCalls(t *testing.T) {
	t.Parallel()
	var asked string
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = strings.TrimSpace(fmt.Sprint(r.Method, " ", r.URL.RequestURI(), " ", r.Header.Get("Content-Type"), " ", string(body)))
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(answer, `"code":404`) {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	c, err := client.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	contracts, classes, settings := c.Contracts("blue"), c.ContractClasses(), c.BucketSettings("")
	media := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "media", ResourceVersion: "7"}}
	const object = `{"apiVersion":"contract-cosi.github.io/v1alpha1","kind":"Contract","metadata":{"name":"media","resourceVersion":"7"}`
	const list = `{"apiVersion":"contract-cosi.github.io/v1alpha1","kind":"BucketSettingsList","metadata":{},"items":[{"metadata":{"name":"a"}}]}`
	const ok = `{"apiVersion":"v1","kind":"Status","status":"Success"}`
	is := func(o *v1alpha1.Contract, err error) error {
		if err == nil && o.Name != "media" {
			err = fmt.Errorf("it is %q", o.Name)
		}
		return err
	}
	for _, call := range []struct {
		what, answer, asks string
		do                 func() error
	}{
		{"get", object + "}", "GET /apis/contract-cosi.github.io/v1alpha1/namespaces/blue/contracts/media", func() error { return is(contracts.Get(ctx, "media", metav1.GetOptions{})) }},
		{"list", list, "GET /apis/contract-cosi.github.io/v1alpha1/bucketsettings?labelSelector=a%3Db", func() error {
			all, err := settings.List(ctx, metav1.ListOptions{LabelSelector: "a=b"})
			if err == nil && (len(all.Items) != 1 || all.Items[0].Name != "a") {
				err = fmt.Errorf("they are %v", all.Items)
			}
			return err
		}},
		{"watch", `{"type":"DELETED","object":` + object + "}}\n", "GET /apis/contract-cosi.github.io/v1alpha1/namespaces/blue/contracts?watch=true", func() error {
			w, err := contracts.Watch(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			defer w.Stop()
			event := <-w.ResultChan()
			if o, _ := event.Object.(*v1alpha1.Contract); event.Type != watch.Deleted || o == nil {
				return fmt.Errorf("it tells of %v", event)
			}
			return nil
		}},
		{"create", object + "}", "POST /apis/contract-cosi.github.io/v1alpha1/namespaces/blue/contracts?dryRun=All application/json {", func() error {
			return is(contracts.Create(ctx, media, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
		}},
		{"update", object + "}", "PUT /apis/contract-cosi.github.io/v1alpha1/namespaces/blue/contracts/media application/json {", func() error { return is(contracts.Update(ctx, media, metav1.UpdateOptions{})) }},
		{"status", object + "}", "PUT /apis/contract-cosi.github.io/v1alpha1/namespaces/blue/contracts/media/status application/json {", func() error { return is(contracts.UpdateStatus(ctx, media, metav1.UpdateOptions{})) }},
		{"patch", object + "}", "PATCH /apis/contract-cosi.github.io/v1alpha1/namespaces/blue/contracts/media application/merge-patch+json {}", func() error {
			return is(contracts.Patch(ctx, "media", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}))
		}},
		{"apply", object + "}", "PATCH /apis/contract-cosi.github.io/v1alpha1/namespaces/blue/contracts/media?fieldManager=me&force=true application/apply-patch+yaml {", func() error {
			return is(contracts.Apply(ctx, media, metav1.ApplyOptions{FieldManager: "me", Force: true}))
		}},
		{"delete", ok, "DELETE /apis/contract-cosi.github.io/v1alpha1/contractclasses/standard application/json {", func() error { return classes.Delete(ctx, "standard", metav1.DeleteOptions{}) }},
		{"delete all", ok, "DELETE /apis/contract-cosi.github.io/v1alpha1/namespaces/blue/contracts?labelSelector=a application/json {", func() error {
			return contracts.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "a"})
		}},
		{"get none", `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`, "GET", func() error {
			if _, err := contracts.Get(ctx, "media", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it says %w", err)
			}
			return nil
		}},
	} {
		answer = call.answer
		if err := call.do(); err != nil || !strings.HasPrefix(asked, call.asks) {
			t.Errorf("%s: %v; it asked %s", call.what, err, asked)
		}
		_, body, _ := strings.Cut(asked, "{")
		var sent metav1.PartialObjectMetadata
		switch _ = json.Unmarshal([]byte("{"+body), &sent); call.what {
		case "create", "update", "status":
			if sent.Kind != "Contract" || sent.ResourceVersion != "7" {
				t.Errorf("%s sent %s", call.what, body)
			}
		case "apply":
			if sent.Kind != "Contract" || sent.APIVersion == "" || sent.ResourceVersion != "" {
				t.Errorf("%s sent %s", call.what, body)
			}
		}
	}
	if media.ResourceVersion != "7" || media.Kind != "" {
		t.Errorf("apply changed what it was given: %+v", media)
	}
}
