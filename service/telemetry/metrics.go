package telemetry

import (
	"fmt"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/weirlimit/weir"
)

// Handler serves the metrics to Prometheus, as text or as protobuf.
func (r *Recorder) Handler() http.Handler { return r.handler }

func (r *Recorder) newHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		r.decision, r.store, scraped{r},
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// What is read when it is asked for. Labels are names of the config, and what
// requests bring only where a Tree asks for it.
var (
	requestsDesc  = desc("weir_requests_total", "Requests by what they were answered; result error for those that could not be decided.", "domain", "result", "reason")
	decisionsDesc = desc("weir_decisions_total", "What each rule said; a shadow_ result had no say in the answer. Without a rule: limits that requests bring.", "domain", "rule", "result", "reason")
	valuesDesc    = desc("weir_decisions_by_value_total", "What each rule said by the values of requests, where detailed_metric or value_to_metric asks for them; from 1,000 values of a rule on, other.", "domain", "rule", "value", "result")
	storeDesc     = desc("weir_store_errors_total", "Calls of the store that it did not answer, or for which it was not asked.", "class")
	degradedDesc  = desc("weir_degraded_decisions_total", "Requests that were decided without the store.")
	droppedDesc   = desc("weir_hotkeys_dropped_total", "Samples for hot keys and latencies that were lost because more came at once than there is room for.")
	sampledDesc   = desc("weir_hotkeys_sampled_ratio", "Which part of requests are samples for hot keys and latencies.")
	reloadDesc    = desc("weir_config_reload_success", "Whether the config could be loaded when it changed last.")
	reloadedDesc  = desc("weir_config_last_reload_timestamp_seconds", "When the config in force was loaded.")
	inFlightDesc  = desc("weir_in_flight", "Calls that wait for the store.")
	breakerDesc   = desc("weir_breaker_open", "Whether the store is not asked at the moment.")
	buildDesc     = desc("weir_build_info", "1, for the labels.", "version", "go")
)

// scraped is a Recorder as a prometheus.Collector.
type scraped struct{ *Recorder }

// Describe implements prometheus.Collector.
func (s scraped) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		requestsDesc, decisionsDesc, valuesDesc, storeDesc, degradedDesc, droppedDesc,
		sampledDesc, reloadDesc, reloadedDesc, inFlightDesc, breakerDesc, buildDesc,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s scraped) Collect(out chan<- prometheus.Metric) {
	e := emitter{out}
	t := s.table.Load()
	for _, d := range t.list {
		e.requests(d)
	}
	t.each(e.rule)
	for class := range storeErrors {
		e.count(storeDesc, s.errors[class].Load(), class)
	}
	e.count(degradedDesc, s.degraded.Load())
	e.count(droppedDesc, s.samples.dropped.Load())
	e.gauge(sampledDesc, 1/s.samples.weight())
	if c := s.configured(); c.tried {
		e.gauge(reloadDesc, number(c.refused == nil))
		e.gauge(reloadedDesc, float64(c.loaded.UnixMilli())/1000)
	}
	if s.options.InFlight != nil {
		e.gauge(inFlightDesc, float64(s.options.InFlight()))
	}
	if s.options.BreakerOpen != nil {
		e.gauge(breakerDesc, number(s.options.BreakerOpen()))
	}
	e.gauge(buildDesc, 1, s.options.Version, runtime.Version())
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// emitter sends out metrics whose labels are what their parts print.
type emitter struct{ out chan<- prometheus.Metric }

func (e emitter) count(d *prometheus.Desc, n uint64, labels ...any) {
	e.send(d, prometheus.CounterValue, float64(n), labels)
}

func (e emitter) gauge(d *prometheus.Desc, x float64, labels ...any) {
	e.send(d, prometheus.GaugeValue, x, labels)
}

func (e emitter) send(d *prometheus.Desc, t prometheus.ValueType, x float64, labels []any) {
	texts := make([]string, len(labels))
	for i := range labels {
		texts[i] = fmt.Sprint(labels[i])
	}
	m, err := prometheus.NewConstMetric(d, t, x, texts...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	e.out <- m
}

func (e emitter) requests(d *domain) {
	d.requests.each(func(r result, reason weir.Reason, n uint64) {
		e.count(requestsDesc, n, d.name, r, reason)
	})
	for class := range errorClasses {
		if n := d.requests.errors[class].Load(); n > 0 {
			e.count(requestsDesc, n, d.name, "error", class)
		}
	}
}

func (e emitter) rule(of *rule) {
	of.each(func(r result, reason weir.Reason, n uint64) {
		e.count(decisionsDesc, n, of.domain, of.rule, r, reason)
	})
	if of.values == nil {
		return
	}
	of.values.byText.Range(func(text, counted any) bool {
		for r := range results {
			if n := counted.(*byResult)[r].Load(); n > 0 {
				e.count(valuesDesc, n, of.domain, of.rule, text, r)
			}
		}
		return true
	})
}
