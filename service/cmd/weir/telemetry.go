package main

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/layer"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/telemetry"
)

const (
	// collector is the variable that names where OpenTelemetry is sent.
	collector = "OTEL_EXPORTER_OTLP_ENDPOINT"
	// flushTime is how long that may take at the end.
	flushTime = 400 * time.Millisecond
	// unsentTime is how long the log says no more about what could not be sent.
	unsentTime = time.Minute
)

// openTelemetry is before the store is opened, which tells it of its calls.
func (s *server) openTelemetry(set settings, env getenv) (err error) {
	o := telemetry.Options{Version: thisBuild().Version, Shadow: set.ShadowMode, RedactKeys: set.RedactKeys}
	if o.OTLP, _ = env(collector); o.OTLP != "" {
		lines := weir.New(weir.Options{})
		o.OTLPFailed = func(err error) {
			if d, _ := lines.Allow(context.Background(), "", weir.Per(1, unsentTime)); d.Allowed {
				s.log.Warn("telemetry cannot be sent", "to", collector, "error", err)
			}
		}
	}
	if set.Redis.URL != "" {
		o.InFlight = func() int { return s.fallback.InFlight() }
		o.BreakerOpen = func() bool { return s.fallback.Failing() != nil }
	}
	s.telemetry, err = telemetry.New(o)
	return err
}

// decided tells of an answer.
func (s *server) decided() func(decide.Event) {
	logged := observer(s.log)
	return func(e decide.Event) {
		s.telemetry.Decided(e)
		logged(e)
	}
}

// called tells of a call of the store.
func (s *server) called(e layer.Event) {
	s.telemetry.Store(e.Took, e.Err, e.Degraded)
	s.outage.observe(e)
}

// flush sends what telemetry has not sent yet.
func (s *server) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := s.telemetry.Close(ctx); err != nil {
		s.log.Warn("the last telemetry cannot be sent", "to", collector, "error", err)
	}
}
