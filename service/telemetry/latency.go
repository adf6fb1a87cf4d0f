package telemetry

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// lastMarks are kept: between the first and the last of them are the 10 s that
// rates and quantiles are of.
const lastMarks = 11

// marks are when it was looked at the counters, each second.
type marks struct {
	at [lastMarks]time.Time
	n  int // how many there have been
}

// history is what a counter was at the marks, and latencies a histogram.
type (
	history   [lastMarks]pair
	latencies [lastMarks]map[int]uint64
)

// add returns the place of a new mark.
func (m *marks) add(now time.Time) int {
	i := m.n % lastMarks
	m.at[i] = now
	m.n++
	return i
}

// oldest returns the place of the oldest mark.
func (m *marks) oldest() int { return max(0, m.n-lastMarks) % lastMarks }

// mark notes how everything stands.
func (r *Recorder) mark(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.marks.add(now)
	r.total[i] = r.totals()
	for j, h := range []prometheus.Histogram{r.decision, r.store} {
		r.latency[j][i] = buckets(h)
	}
	t := r.table.Load()
	for _, rule := range t.rules {
		rule.past[i] = rule.sums()
	}
	for _, d := range t.list {
		d.none.past[i] = d.none.sums()
	}
}

// totals returns what was decided since the start. r.mu is held.
func (r *Recorder) totals() pair {
	all := r.removed
	for _, d := range r.table.Load().list {
		all = all.plus(d.requests.sums())
	}
	return all
}

// rates returns how many a second were allowed and denied of late. r.mu is held.
func (r *Recorder) rates(now time.Time, sums pair, past *history) (allowed, denied float64) {
	i := r.marks.oldest()
	seconds := max(1, now.Sub(r.marks.at[i]).Seconds())
	rate := func(n, before uint64) float64 { return round(float64(n-before)/seconds, 1000) }
	return rate(sums.allowed, past[i].allowed), rate(sums.denied, past[i].denied)
}

// quantiles returns those of late; nil if there is nothing to tell. r.mu is held.
func (r *Recorder) quantiles(h prometheus.Histogram, past *latencies) *Quantiles {
	now := buckets(h)
	total := uint64(0)
	for i, before := range past[r.marks.oldest()] {
		now[i] -= before
	}
	for _, n := range now {
		total += n
	}
	if total == 0 {
		return nil
	}
	places := slices.Sorted(maps.Keys(now))
	at := func(q float64) float64 {
		rank, i := uint64(math.Ceil(q*float64(total))), 0
		for ; now[places[i]] < rank; i++ {
			rank -= now[places[i]]
		}
		return round(1000*math.Exp2((float64(places[i])-0.5)/bucketsPerDoubling), 1e5)
	}
	return &Quantiles{P50: at(0.5), P90: at(0.9), P99: at(0.99)}
}

func round(x, parts float64) float64 { return math.Round(x*parts) / parts }

// bucketsPerDoubling is the resolution of histograms: a quantile is off by 4.5 %
// at most.
const (
	bucketsPerDoubling = 8
	bucketFactor       = 1.1 // asks for it: 2^(1/8) is the largest below
)

// bucketEnds are those of classic histograms, in seconds.
var bucketEnds = []float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1}

func newHistogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, NativeHistogramBucketFactor: bucketFactor,
		Buckets: bucketEnds,
	})
}

func (r *Recorder) observe(h prometheus.Histogram, took time.Duration) {
	h.Observe(took.Seconds())
	r.otlp.observe(h == r.store, took)
}

// buckets returns the counts of a histogram's native buckets: number i ends at
// 2^(i/bucketsPerDoubling) seconds.
func buckets(h prometheus.Histogram) map[int]uint64 {
	counts := make(map[int]uint64)
	var m dto.Metric
	if h.Write(&m) != nil {
		return counts
	}
	i, n, deltas := int32(0), int64(0), m.GetHistogram().GetPositiveDelta()
	for _, span := range m.GetHistogram().GetPositiveSpan() {
		i += span.GetOffset()
		for range span.GetLength() {
			n += deltas[0]
			deltas = deltas[1:]
			counts[int(i)] = uint64(n)
			i++
		}
	}
	return counts
}
