// Package driver puts the parts together: configuration, storage services,
// journal, use cases and server. It is the only package that knows all of
// them, and the arrows between them end here.
package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contracts"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/delivery"
	"github.com/contract-cosi/contract-cosi-driver/pkg/drift"
	"github.com/contract-cosi/contract-cosi-driver/pkg/events"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/tracing"
)

// Options are what a start of the driver says beside the configuration file.
type Options struct {
	// ConfigFile is the configuration's file, which is followed: changed terms of
	// contracts are taken over while the driver runs. "" follows none.
	ConfigFile string
	// Socket is where the sidecar connects.
	Socket server.Socket
	// Version is the program's own.
	Version string
	// Versions are the COSI versions that are served.
	Versions []Version
	// HTTPAddress serves metrics and probes; "" turns them off.
	HTTPAddress string
	// Grace bounds how long a stop waits for calls under way.
	Grace time.Duration
	// Started, which may be nil, hears where HTTP is served once both
	// listeners are open.
	Started func(httpAddress string)
}

// Version is a version of COSI, as its gRPC package ends.
type Version string

// The versions that can be served, also at once: their services have different
// names.
const (
	V1alpha1 Version = "v1alpha1"
	V1alpha2 Version = "v1alpha2"
)

func (v Version) register(r *grpc.Server, c *config.Config, p *provisioner.Provisioner) {
	switch v {
	case V1alpha1:
		v1alpha1.New(c.Driver.Name, p).Register(r)
	case V1alpha2:
		v1alpha2.New(c.Driver.Name, c.COSI.Generation, p).Register(r)
	}
}

// Run serves until ctx ends. It returns an error for any fault at the start,
// and nil after a stop that was asked for.
func Run(ctx context.Context, c *config.Config, o Options) (err error) {
	log := klog.FromContext(ctx)
	m := metrics.New()
	m.Build(o.Version)
	current, due := newLive(c), newDue(listed(c))
	dir, err := o.Socket.Dir()
	if err != nil {
		return err
	}
	teller, err := newTeller(c, m)
	if err != nil {
		return err
	}
	tracer, endTraces, err := traces(ctx, c, o.Version)
	if err != nil {
		return err
	}
	defer endTraces() // when the journal is free: a collector that hangs holds up no other driver
	in, err := open(ctx, c, current, m, dir, undelivered(teller, o.Versions), due.wake)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	p, records := in.provisioner, in.records
	m.Live(
		func(ctx context.Context) (int, error) { return records.Count(ctx, journal.Contracts) },
		func(ctx context.Context) (int, error) { return records.Count(ctx, journal.Buckets) },
		func(ctx context.Context) (int, error) { return records.Count(ctx, journal.Accounts) },
	)
	if err := checkTerms(c, p); err != nil {
		return err
	}
	ready, backends := readiness(log, p, m), backendsUp(log, p, m)
	grpcServer := server.New(log, server.Config{
		CallTimeout: c.Driver.CallTimeout, Recorder: m, Tracer: tracer,
		Checks: map[string]func(context.Context) error{server.ReadyService: ready, server.BackendsService: backends},
		Failed: failed(teller),
		Register: func(r *grpc.Server) {
			for _, v := range o.Versions {
				v.register(r, c, p)
			}
		},
	})
	m.Serves(grpcServer.Methods())

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	httpAddress, httpDone, err := server.ServeHTTP(ctx, cancel, o.HTTPAddress, server.HTTP(m.Handler(), ready))
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, <-httpDone)
	}()
	listener, err := o.Socket.Listen(ctx)
	if err != nil {
		return err
	}
	adminListener, err := listenAdmin(ctx, c.Driver.AdminSocket)
	if err != nil {
		_ = listener.Close()
		return err
	}
	log.Info("Serving COSI", "version", o.Version, "versions", o.Versions, "driver", c.Driver.Name, "endpoint", o.Socket.Endpoint, "http", httpAddress)
	if o.Started != nil {
		o.Started(httpAddress)
	}
	var beside sync.WaitGroup // what is done beside serving calls
	if teller != nil {
		beside.Go(func() { teller.Run(ctx) })
	}
	beside.Go(func() {
		watch(ctx, func() {
			_, _ = ready(ctx), backends(ctx)
			use(ctx, current.all(), records, m)
		})
	})
	beside.Go(func() {
		due.run(ctx, func(contracts map[cosi.ContractID]config.Terms) map[cosi.ContractID]config.Terms {
			return p.Converge(ctx, contracts, c.Driver.CallTimeout)
		})
	})
	if current.ordered != nil {
		beside.Go(func() { current.ordered.Run(ctx, p, in.journal) })
	}
	if in.deliverer != nil {
		beside.Go(func() { in.deliverer.Run(ctx, p, c.Driver.CallTimeout) })
	}
	if o.ConfigFile != "" {
		check := func(c *config.Config) error { return checkTerms(c, p) }
		beside.Go(func() {
			current.follow(ctx, o.ConfigFile, check, m.Reloaded, func(before, now *config.Config) {
				due.add(changed(before, now, p.Known()))
				if current.ordered != nil { // the two sources list other contracts now
					current.ordered.Again()
				}
			})
		})
	}
	beside.Go(func() {
		drift.Run(ctx, drift.Config{
			Journal: records, Inspector: p, Settings: current.drift, Mode: current.driftMode, Timeout: c.Driver.CallTimeout,
			Recorder: newMeter(m, claimer(current, teller)), Again: again(in.deliverer),
		})
	})
	var adminErr error
	beside.Go(func() {
		if adminListener == nil {
			return
		}
		if adminErr = admin.Serve(ctx, adminListener, &admin.Admin{Provisioner: p, Journal: records, Config: current.all}); adminErr != nil {
			cancel() // a driver that cannot be asked is not well
		}
	})
	err = grpcServer.Serve(ctx, listener, o.Grace)
	cancel()
	beside.Wait()
	log.Info("Stopped")
	return errors.Join(err, adminErr)
}

// traces returns where spans of calls go, nil for nowhere, and what delivers those
// that wait at the end.
func traces(ctx context.Context, c *config.Config, version string) (trace.TracerProvider, func(), error) {
	if c.Tracing == nil {
		return nil, func() {}, nil
	}
	return tracing.New(ctx, *c.Tracing, c.Driver.Name, version)
}

// claimer is how the claim of a bucket is asked for; nil where the driver may not ask.
func claimer(current *live, teller *events.Teller) func(context.Context, string) (namespace, name string, err error) {
	switch {
	case current.ordered != nil:
		return current.ordered.Claim
	case teller != nil:
		return teller.Claim
	}
	return nil
}

// listenAdmin opens the socket of the commands, which is for the driver's own
// user; nil if there is none.
func listenAdmin(ctx context.Context, socket string) (net.Listener, error) {
	if socket == "" {
		return nil, nil
	}
	listener, err := server.Socket{Endpoint: "unix://" + socket, Mode: 0o600}.Listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("driver.adminSocket: %w", err)
	}
	return listener, nil
}

// Ask answers a command: through the driver that runs, if one listens at the
// configuration's adminSocket, and by itself otherwise. For that the journal
// has to be free, or in a cluster.
func Ask(ctx context.Context, c *config.Config, command admin.Command, r admin.Request, tell func(admin.Line)) (err error) {
	if c.Driver.AdminSocket != "" {
		err := admin.Call(ctx, c.Driver.AdminSocket, command, r, tell)
		if !errors.Is(err, admin.ErrNobody) {
			return err
		}
	}
	if file := c.Journal.File; file != "" {
		if _, err := os.Stat(file); err != nil { // a command begins none
			return fmt.Errorf("there is no journal to ask about (%w); see journal.file of the configuration, and whether the driver has run with it", err)
		}
	}
	current := newLive(c)
	in, err := open(ctx, c, current, metrics.New(), "", nil, func() {})
	if err != nil {
		return fmt.Errorf("%w; a driver that runs answers commands at driver.adminSocket (%s), and none listens there", err, cmp.Or(c.Driver.AdminSocket, "which is not set"))
	}
	defer func() { err = errors.Join(err, in.close()) }()
	return (&admin.Admin{Provisioner: in.provisioner, Journal: in.records, Config: current.all}).Do(ctx, command, r, tell)
}

// inside is what a driver and a command have in common.
type inside struct {
	journal     *writable
	records     *journal.Journal
	provisioner *provisioner.Provisioner
	deliverer   *delivery.Secrets // nil if it may not
}

// open puts it together, for a process whose socket is in dir. undelivered hears why keys
// cannot be replaced or written. taken is called
// whenever the process has got the right to change things from another.
func open(ctx context.Context, c *config.Config, current *live, m *metrics.Metrics, dir string, undelivered func(string, cosi.AccountID, cosi.BucketID, error), taken func()) (*inside, error) {
	in, complete := &inside{}, make(chan struct{})
	backends, err := newBackends(ctx, c, m, func(ctx context.Context) ([]string, error) {
		have, err := in.records.Identities(ctx)
		return slices.Concat(have, c.Driver.TakesOver), err
	})
	if err != nil {
		return nil, err
	}
	var deliverer provisioner.Deliverer
	if in.deliverer, err = newDeliverer(c, m); err != nil {
		return nil, err
	}
	if in.deliverer != nil {
		deliverer = in.deliverer
	}
	in.journal, err = openWritable(ctx, c, m, dir, func() {
		<-complete
		in.provisioner.TakenOver()
		if in.deliverer != nil {
			in.deliverer.All()
		}
		if current.ordered != nil {
			current.ordered.TakenOver()
		}
		taken()
	})
	if err != nil {
		return nil, err
	}
	var claims provisioner.Claims
	if c.Objects != nil {
		if current.ordered, err = newOrdered(c, current, m, func(name string, t config.Terms) error {
			<-complete
			return in.provisioner.CheckTerms(name, t)
		}); err != nil {
			return nil, errors.Join(err, in.journal.Close())
		}
		claims = current.ordered
	}
	in.records = journal.New(in.journal)
	in.provisioner = provisioner.New(provisioner.Config{
		Backends: backends, Terms: current.terms, Journal: in.records, Writer: in.journal, Claims: claims, Deliverer: deliverer, Undelivered: undelivered, Recorder: m,
	})
	close(complete)
	if current.ordered != nil {
		if err := current.ordered.Follow(ctx); err != nil { // what the configuration lists goes on
			klog.FromContext(ctx).Error(err, "The contracts that are ordered in the cluster are not known")
		}
	}
	return in, nil
}

// newOrdered returns the contracts that are ordered in the cluster; no call is made.
func newOrdered(c *config.Config, current *live, m *metrics.Metrics, check func(string, config.Terms) error) (*contracts.Contracts, error) {
	at, err := kube.Connect(c.Journal.Secrets.Kubeconfig)
	if err != nil {
		return nil, err
	}
	var backends []string
	for _, b := range c.Backends {
		backends = append(backends, b.Name)
	}
	return contracts.New(contracts.Config{
		At: at, Driver: c.Driver.Name, Backends: backends, Check: check, ChangesPerSecond: c.Objects.ChangesPerSecond, Called: m.ObjectCall,
		Listed: func(name string) bool { _, ok := current.current.Load().Listed(name); return ok },
	})
}

// close waits for what is still done after the last call was answered.
func (in *inside) close() error {
	in.provisioner.Wait()
	return in.journal.Close()
}

// checkTerms refuses terms that their backend cannot meet.
func checkTerms(c *config.Config, p *provisioner.Provisioner) error {
	var faults []error
	for _, t := range c.Contracts {
		faults = append(faults, p.CheckTerms(t.Name, t.Terms))
	}
	if c.OnDemand != nil {
		faults = append(faults, p.CheckTerms("on demand", c.OnDemand.Terms))
	}
	return errors.Join(faults...)
}
