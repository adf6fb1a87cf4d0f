// Package telemetry counts what the service decides, for Prometheus, for
// OpenTelemetry and for the pages of the admin address. It is told; it asks nobody.
package telemetry

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
)

// Options configures a Recorder.
type Options struct {
	// Version is that of the program.
	Version string
	// Shadow says that every rule is a shadow, see decide.Options.
	Shadow bool
	// RedactKeys shows a hash of each key in place of it: the same for the same
	// key for as long as the process lives, and of no use to who has not seen it.
	RedactKeys bool
	// InFlight, if not nil, tells how many calls wait for the store, and
	// BreakerOpen, if not nil, whether it is not asked at the moment.
	InFlight    func() int
	BreakerOpen func() bool
	// OTLP is the URL of a collector that takes OTLP over HTTP, such as
	// http://localhost:4318: metrics go to /v1/metrics below it, spans to
	// /v1/traces. Empty sends nothing. What else the OTEL_ variables of the
	// environment say about exporters, samplers and the resource holds.
	OTLP string
	// OTLPFailed, if not nil, is told why something could not be sent.
	OTLPFailed func(error)
}

// Recorder counts. It is safe for concurrent use.
type Recorder struct {
	options  Options
	started  time.Time
	secret   []byte // of the hashes of keys
	table    atomic.Pointer[table]
	samples  *ring
	degraded atomic.Uint64
	errors   [storeErrors]atomic.Uint64
	decision prometheus.Histogram
	store    prometheus.Histogram
	handler  http.Handler
	otlp     *otlp // nil unless it is on

	mu      sync.Mutex // for what follows, the reader's side of samples and the lower part of a tally
	config  config
	removed pair // requests of domains that are no more
	marks   marks
	total   history
	latency [2]latencies // of decisions and of the store
}

// config is what became of the config.
type config struct {
	tried   bool
	loaded  time.Time // zero if there is none
	refused error
}

func (r *Recorder) configured() config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.config
}

// New returns a Recorder that has not seen a config. Run has to be running for
// its rates and hot keys to be of now. The error is a *weir.InvalidError: OTLP is
// no URL.
func New(o Options) (*Recorder, error) {
	r := &Recorder{options: o, started: time.Now(), secret: []byte(rand.Text()), samples: newRing()}
	r.table.Store(emptyTable())
	r.marks.add(r.started)
	r.decision = newHistogram("weir_decision_duration_seconds", "How long requests took to decide, from all of them or, above some 20,000 a second, from a random share.")
	r.store = newHistogram("weir_store_duration_seconds", "How long calls waited for the store.")
	r.handler = r.newHandler()
	if o.OTLP == "" {
		return r, nil
	}
	var err error
	r.otlp, err = r.openOTLP()
	return r, err
}

// Timed draws the decisions that latencies and hot keys are learned from: all of
// them, or a random share if they are many. It is for decide.Options.
func (r *Recorder) Timed() bool { return r.samples.draw() }

// Decided counts an answer; if it was timed, that and its keys are a sample. It
// takes no lock and allocates nothing, except where a config asks for the values
// of requests in metrics.
func (r *Recorder) Decided(e decide.Event) {
	a := e.Answer
	d := r.table.Load().domain(e.Query)
	if a.Err != nil {
		d.requests.errors[classOf(a.Err)].Add(1)
		return
	}
	d.requests.add(resultOf(a.Allowed, false), a.Reason)
	for i := range a.Rows {
		row := &a.Rows[i]
		of := d.rule(row.Name)
		result := resultOf(row.Allowed, row.Shadow)
		of.add(result, row.Reason)
		if of.values != nil {
			of.values.add(row.Key, result)
		}
		if e.Took > 0 {
			r.samples.put(sample{of.tally, row.Key, row.Allowed, i == 0, e.Took})
		}
	}
	if e.Took > 0 && len(a.Rows) == 0 {
		r.samples.put(sample{first: true, took: e.Took})
	}
}

// Store counts a call of the store: how long it was waited for, 0 if it was not
// asked; why it did not answer, if it did not; and how many lists were decided
// without it.
func (r *Recorder) Store(took time.Duration, err error, degraded int) {
	if took > 0 {
		r.observe(r.store, took)
	}
	if err != nil {
		r.errors[storeErrorOf(took, err)].Add(1)
	}
	r.degraded.Add(uint64(degraded))
}

// Loaded counts a try to load the config, which gave p or the error. What rules
// have counted that are in p under the same name is kept; that of others is
// forgotten.
func (r *Recorder) Loaded(p *policy.Policy, at time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config.tried, r.config.refused = true, err
	if err != nil {
		return
	}
	r.config.loaded = at
	old := r.table.Load()
	now := newTable(p, old)
	for _, d := range old.list {
		if d != old.none && now.domains[d.name] == nil {
			r.removed = r.removed.plus(d.requests.sums())
		}
	}
	r.table.Store(now)
}

// Times of Run.
const (
	drainEvery = 100 * time.Millisecond
	markEvery  = time.Second
)

// Run keeps rates, latencies and hot keys up to date until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	drain, mark := time.NewTicker(drainEvery), time.NewTicker(markEvery)
	defer drain.Stop()
	defer mark.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-drain.C:
			r.drain(now)
			r.samples.adapt()
		case now := <-mark.C:
			r.mark(now)
		}
	}
}

// Close sends what OTLP has not sent yet, until ctx ends. Nothing may be told
// to the Recorder after it.
func (r *Recorder) Close(ctx context.Context) error { return r.otlp.close(ctx) }
