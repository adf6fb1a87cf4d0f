package telemetry

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Span calls do, which answers a request of a front end, in a span of the trace
// that the caller's header traceparent names, and returns its error, by which the
// span has failed. Without OTLP it just calls do.
func (r *Recorder) Span(ctx context.Context, name string, header func(name string) string, do func(context.Context) error) error {
	if r.otlp == nil {
		return do(ctx)
	}
	ctx, span := r.otlp.tracer.Start(traced(ctx, header), name, ofServer)
	defer span.End()
	err := do(ctx)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return err
}

var ofServer = trace.WithSpanKind(trace.SpanKindServer)

// traced returns ctx with the trace that a header names.
func traced(ctx context.Context, header func(string) string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, carrier(header))
}

// carrier is the header of a request as a propagation.TextMapCarrier to read from.
type carrier func(name string) string

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(name string) string { return c(name) }

// Set implements propagation.TextMapCarrier.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (carrier) Keys() []string { return nil }

// Trace gives each request to next a span, see Span, named after the method and
// the pattern of the http.ServeMux that it arrives at. Without OTLP it returns next.
func (r *Recorder) Trace(next http.Handler) http.Handler {
	if r.otlp == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		ctx, span := r.otlp.tracer.Start(traced(request.Context(), request.Header.Get), "HTTP", ofServer)
		defer span.End()
		request = request.WithContext(ctx)
		watched := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(watched, request)
		if p := request.Pattern; p != "" {
			route := p[strings.IndexByte(p, ' ')+1:]
			span.SetName(request.Method + " " + route)
			span.SetAttributes(attribute.String("http.route", route))
		}
		span.SetAttributes(attribute.String("http.request.method", request.Method), attribute.Int("http.response.status_code", watched.status))
		if watched.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(watched.status))
		}
	})
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
