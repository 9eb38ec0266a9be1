// Command cosi is the COSI v0.2.2 controller or its sidecar: upstream's
// reconcilers as released, with an event loop of our own around them. For v1alpha2,
// of which nothing is released, something stands in that does as is known of it. Upstream's
// two commands cannot be built from its module, because their loop is in a
// module that was never published. Leader election, of the sidecar alone, is
// asked for where there are several.
//
// It is a program of its own, so that it can be killed, so that a panic of
// upstream's ends it for all to see, and because upstream's stubs cannot be
// linked with those that the driver is tested with.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/container-object-storage-interface/client/apis/objectstorage/v1alpha1"
	"sigs.k8s.io/container-object-storage-interface/client/clientset/versioned"
	"sigs.k8s.io/container-object-storage-interface/controller/pkg/bucketclaim"
	cosi "sigs.k8s.io/container-object-storage-interface/proto"
	"sigs.k8s.io/container-object-storage-interface/sidecar/pkg/bucket"
	"sigs.k8s.io/container-object-storage-interface/sidecar/pkg/bucketaccess"
	"sigs.k8s.io/container-object-storage-interface/sidecar/pkg/provisioner"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cosi:", err)
		os.Exit(1)
	}
}

// settings are the command line's.
type settings struct {
	role, kubeconfig, driver string
	qps                      float64
	retryMax                 time.Duration
	elect                    bool
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	if len(args) == 0 || args[0] != "controller" && args[0] != "sidecar" && args[0] != "v1alpha2" {
		return s, errors.New("usage: cosi controller|sidecar|v1alpha2 [flags]")
	}
	s.role = args[0]
	flags := flag.NewFlagSet("cosi "+s.role, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "`file` to reach the API server with")
	flags.StringVar(&s.driver, "driver-addr", "unix:///var/lib/cosi/cosi.sock", "`address` of the driver's socket; the sidecar's")
	flags.Float64Var(&s.qps, "qps", 0, "requests a second to the API server; 0 is client-go's default, which upstream keeps")
	flags.DurationVar(&s.retryMax, "retry-max", 30*time.Second, "longest `time` between two attempts; upstream's by default")
	flags.BoolVar(&s.elect, "leader-elect", false, "wait for upstream's Lease before anything is handled; the sidecar's")
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	flags.Var(klogFlags.Lookup("v").Value, "v", "klog's verbosity")
	return s, flags.Parse(args[1:])
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	if s.qps > 0 {
		config.QPS, config.Burst = float32(s.qps), int(2*s.qps)
	}
	if s.role == "v1alpha2" {
		return standIn(ctx, config, s.driver)
	}
	c, err := newClients(config)
	if err != nil {
		return err
	}
	if s.role == "controller" {
		return control(ctx, c, s.retryMax)
	}
	return serve(ctx, c, s)
}

// control is the controller, which makes a Bucket for each BucketClaim.
func control(ctx context.Context, c clients, retryMax time.Duration) error {
	events, stop := c.recorder("cosi-controller-manager")
	defer stop()
	l := newLoop(retryMax)
	watch(l, c, events, "bucketclaims", &v1alpha1.BucketClaim{}, bucketclaim.NewBucketClaimListener())
	return l.run(ctx)
}

// serve is the sidecar, which calls the driver for Buckets and BucketAccesses.
func serve(ctx context.Context, c clients, s settings) error {
	client, err := provisioner.NewDefaultCOSIProvisionerClient(ctx, s.driver, false)
	if err != nil {
		return err
	}
	info, err := client.DriverGetInfo(ctx, &cosi.DriverGetInfoRequest{})
	if err != nil {
		return err
	}
	events, stop := c.recorder("cosi")
	defer stop()
	l := newLoop(s.retryMax)
	watch(l, c, events, "buckets", &v1alpha1.Bucket{}, bucket.NewBucketListener(info.GetName(), client))
	watch(l, c, events, "bucketaccesses", &v1alpha1.BucketAccess{}, bucketaccess.NewBucketAccessListener(info.GetName(), client))
	if s.elect {
		return c.lead(ctx, info.GetName(), l.run)
	}
	return l.run(ctx)
}

// lead runs the loop while this is the leader among a driver's sidecars. Names
// and times are upstream's, which has no flags for them.
func (c clients) lead(ctx context.Context, driver string, run func(context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	name := strings.NewReplacer(".", "-", "/", "-").Replace(driver + "/cosi")
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, os.Getenv("POD_NAMESPACE"), name,
		c.kube.CoreV1(), c.kube.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: host})
	if err != nil {
		return err
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: 150 * time.Second, RenewDeadline: 120 * time.Second, RetryPeriod: 60 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { _ = run(ctx) }, // it fails when ctx ends, only
			OnStoppedLeading: func() { klog.InfoS("stopped leading") },
		},
	})
	return nil
}

// clients reach the API server.
type clients struct {
	kube kubernetes.Interface
	cosi versioned.Interface
}

// newClients makes them as upstream does: two, each with a rate limit of its own.
func newClients(config *rest.Config) (clients, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, err
	}
	c, err := versioned.NewForConfig(config)
	return clients{kube, c}, err
}

// recorder writes the events that a user sees.
func (c clients) recorder(component string) (r record.EventRecorder, stop func()) {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(known); err != nil {
			panic(err) // the types are compiled in
		}
	}
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&corev1.EventSinkImpl{Interface: c.kube.CoreV1().Events("")})
	return b.NewRecorder(known, v1.EventSource{Component: component}), b.Shutdown
}
