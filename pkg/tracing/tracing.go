// Package tracing sends traces to an OpenTelemetry collector: one of each RPC,
// with a span for each request that it makes of a storage service or of the
// Kubernetes API server.
//
// It is off unless the configuration names a collector. The spans of requests are
// made where requests are sent, by [transport.Traced], and carry no query, header
// or body, because some services take keys there.
//
// A collector that is slow or gone delays no call: spans wait in a bounded queue
// and are dropped when it is full.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// exportTimeout bounds one delivery, and all of them when the driver stops.
const exportTimeout = 5 * time.Second

// Service is the driver as a collector shows it.
const Service = "contract-cosi-driver"

// New returns where spans go, and what delivers those that still wait when the driver
// stops. No call is made.
func New(ctx context.Context, c config.Tracing, driver, version string) (trace.TracerProvider, func(), error) {
	ctx = context.WithoutCancel(ctx) // the last spans go out when the driver has been stopped
	client, err := transport.New(c.Connection)
	if err != nil {
		return nil, nil, fmt.Errorf("tracing.connection: %w", err)
	}
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(c.Endpoint), otlptracehttp.WithHTTPClient(client), otlptracehttp.WithTimeout(exportTimeout),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("tracing: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(*c.Ratio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", Service), attribute.String("service.version", version), attribute.String("cosi.driver", driver),
		)),
		sdktrace.WithBatcher(&told{SpanExporter: exporter, log: klog.FromContext(ctx)}, sdktrace.WithExportTimeout(exportTimeout)),
	)
	return provider, func() {
		ctx, cancel := context.WithTimeout(ctx, exportTimeout)
		defer cancel()
		_ = provider.Shutdown(ctx) // a failure is logged below
	}, nil
}

// told logs when the collector stops taking spans, and when it takes them again,
// instead of each failure.
type told struct {
	sdktrace.SpanExporter
	log    klog.Logger
	failed atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (t *told) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil && !t.failed.Swap(true):
		t.log.Info("The collector does not take traces; calls go on without them", "err", err)
	case err == nil && t.failed.Swap(false):
		t.log.Info("The collector takes traces again")
	}
	return nil
}
