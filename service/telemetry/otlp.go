package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope names who measures, to OpenTelemetry.
const scope = "github.com/weirlimit/weir"

// Names after those of aspnetcore.rate_limiting.
const (
	otlpRequests  = "weir.rate_limiting.requests"
	otlpDecisions = "weir.rate_limiting.policy.decisions"
	otlpDegraded  = "weir.rate_limiting.degraded_requests"
	otlpErrors    = "weir.rate_limiting.store.errors"
	otlpDuration  = "weir.rate_limiting.request.duration"
	otlpStore     = "weir.rate_limiting.store.duration"
	otlpDomain    = attribute.Key("weir.rate_limiting.domain")
	otlpPolicy    = attribute.Key("weir.rate_limiting.policy")
	otlpResult    = attribute.Key("weir.rate_limiting.result")
	otlpReason    = attribute.Key("weir.rate_limiting.reason")
	otlpErrorType = attribute.Key("error.type")
)

// otlp sends metrics and spans. A nil one does nothing.
type otlp struct {
	metrics *sdkmetric.MeterProvider
	traces  *sdktrace.TracerProvider
	tracer  trace.Tracer
	request metric.Float64Histogram
	store   metric.Float64Histogram
}

// openOTLP begins to send.
func (r *Recorder) openOTLP() (*otlp, error) {
	base, err := url.Parse(r.options.OTLP)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, &weir.InvalidError{Field: "otlp", Value: withoutPassword(r.options.OTLP), Want: "the URL of a collector that takes OTLP over HTTP, such as http://localhost:4318"}
	}
	if r.options.OTLPFailed != nil {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(r.options.OTLPFailed))
	}
	ctx := context.Background()
	metrics, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(base.JoinPath("v1/metrics").String()))
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(base.JoinPath("v1/traces").String()))
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	us, err := r.resource(ctx)
	if err != nil {
		return nil, fmt.Errorf("otlp: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	o := &otlp{
		metrics: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics)), sdkmetric.WithResource(us)),
		traces:  sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans), sdktrace.WithResource(us)),
	}
	o.tracer = o.traces.Tracer(scope)
	return o, r.register(o)
}

// withoutPassword is as much of what is no URL as a message may show.
func withoutPassword(text string) string {
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		return "..." + text[i:]
	}
	return text
}

// resource says who sends; the environment may say otherwise.
func (r *Recorder) resource(ctx context.Context) (*resource.Resource, error) {
	return resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "weir"), attribute.String("service.version", r.options.Version)), resource.WithFromEnv())
}

// register makes the instruments. The counters are read when they are sent.
func (r *Recorder) register(o *otlp) error {
	meter := o.metrics.Meter(scope)
	var errs [6]error
	var requests, decisions, degraded, failed metric.Int64ObservableCounter
	requests, errs[0] = meter.Int64ObservableCounter(otlpRequests, metric.WithUnit("{request}"), metric.WithDescription("Requests by what they were answered."))
	decisions, errs[1] = meter.Int64ObservableCounter(otlpDecisions, metric.WithUnit("{decision}"), metric.WithDescription("What each rule said."))
	degraded, errs[2] = meter.Int64ObservableCounter(otlpDegraded, metric.WithUnit("{request}"), metric.WithDescription("Requests that were decided without the store."))
	failed, errs[3] = meter.Int64ObservableCounter(otlpErrors, metric.WithUnit("{error}"), metric.WithDescription("Calls that the store did not answer."))
	o.request, errs[4] = newOTLPHistogram(meter, otlpDuration, "How long requests took to decide, of a random share of them.")
	o.store, errs[5] = newOTLPHistogram(meter, otlpStore, "How long calls waited for the store.")
	_, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		observe := func(c metric.Int64Observable, n uint64, labels ...attribute.KeyValue) {
			to.ObserveInt64(c, int64(n), metric.WithAttributes(labels...))
		}
		t := r.table.Load()
		for _, d := range t.list {
			d.requests.each(func(is result, why weir.Reason, n uint64) {
				observe(requests, n, otlpDomain.String(d.name), otlpResult.String(is.String()), otlpReason.String(why.String()))
			})
			for class := range errorClasses {
				if n := d.requests.errors[class].Load(); n > 0 {
					observe(requests, n, otlpDomain.String(d.name), otlpResult.String("error"), otlpErrorType.String(class.String()))
				}
			}
		}
		t.each(func(of *rule) {
			of.each(func(is result, why weir.Reason, n uint64) {
				observe(decisions, n, otlpDomain.String(of.domain), otlpPolicy.String(of.rule), otlpResult.String(is.String()), otlpReason.String(why.String()))
			})
		})
		for class := range storeErrors {
			observe(failed, r.errors[class].Load(), otlpErrorType.String(class.String()))
		}
		observe(degraded, r.degraded.Load())
		return nil
	}, requests, decisions, degraded, failed)
	return errors.Join(append(errs[:], err)...)
}

func newOTLPHistogram(meter metric.Meter, name, what string) (metric.Float64Histogram, error) {
	return meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bucketEnds...))
}

func (o *otlp) observe(ofStore bool, took time.Duration) {
	switch {
	case o == nil:
	case ofStore:
		o.store.Record(context.Background(), took.Seconds())
	default:
		o.request.Record(context.Background(), took.Seconds())
	}
}

func (o *otlp) close(ctx context.Context) error {
	if o == nil {
		return nil
	}
	return errors.Join(o.traces.Shutdown(ctx), o.metrics.Shutdown(ctx))
}
