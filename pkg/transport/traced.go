package transport

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// scope names the instrumentation to a collector.
const scope = "github.com/contract-cosi/contract-cosi-driver/pkg/transport"

// Traced makes a span of each request whose context has a span that is recorded; it
// ends with the answer's headers. Of the address it tells host and path, because
// keys can be in a query.
func Traced(next http.RoundTripper) http.RoundTripper { return over{next, traced} }

func traced(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	parent := trace.SpanFromContext(r.Context())
	if !parent.IsRecording() {
		return next.RoundTrip(r)
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(r.Context(), r.Method+" "+r.URL.Host,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("server.address", r.URL.Host), attribute.String("url.path", r.URL.Path)),
	)
	defer span.End()
	resp, err := next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		span.SetStatus(codes.Error, "no answer")
		return nil, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
	if resp.StatusCode >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, resp.Status)
	}
	return resp, nil
}
