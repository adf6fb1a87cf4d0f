package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally counts what happened, by phase: calm, or the name of a fault.
type tally struct {
	mu         sync.Mutex
	latencies  map[string]*histogram
	lately     histogram // since the last line
	reasons    map[string]map[string]int64
	failures   map[string]map[string]int64
	violations map[string]int64
	examples   []string
}

func newTally() *tally {
	return &tally{
		latencies: make(map[string]*histogram), reasons: make(map[string]map[string]int64),
		failures: make(map[string]map[string]int64), violations: make(map[string]int64),
	}
}

func (t *tally) answer(phase string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latencies[phase] == nil {
		t.latencies[phase] = new(histogram)
	}
	t.latencies[phase].add(took)
	t.lately.add(took)
}

func (t *tally) decision(phase, reason string) { t.count(t.reasons, phase, reason) }

func (t *tally) failure(phase, kind string) { t.count(t.failures, phase, kind) }

func (t *tally) count(in map[string]map[string]int64, phase, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if in[what] == nil {
		in[what] = make(map[string]int64)
	}
	in[what][phase]++
}

// maxExamples is how many violations are told in full.
const maxExamples = 20

// violation counts what must not happen.
func (t *tally) violation(kind, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.violations[kind]++
	if len(t.examples) < maxExamples {
		t.examples = append(t.examples, kind+": "+fmt.Sprintf(format, args...))
	}
}

// figures are those of a line.
type figures struct {
	requests, decisions, degraded, violations int64
	lately                                    histogram
}

func (t *tally) figures() (f figures) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.lately, t.lately = t.lately, histogram{}
	for _, h := range t.latencies {
		f.requests += h.n
	}
	for reason, phases := range t.reasons {
		n := sum(phases)
		f.decisions += n
		if strings.HasPrefix(reason, degraded) {
			f.degraded += n
		}
	}
	f.violations = sum(t.violations)
	return f
}

func sum(counts map[string]int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// report is everything, as a person reads it.
func (t *tally) report(lasted time.Duration) string {
	f := t.figures()
	t.mu.Lock()
	defer t.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "decisions   %d in %d requests, %.0f a second\n", f.decisions, f.requests, float64(f.decisions)/lasted.Seconds())
	for _, reason := range slices.Sorted(maps.Keys(t.reasons)) {
		n := sum(t.reasons[reason])
		fmt.Fprintf(&out, "  %-26s %9d  %6.2f %%, of them calm %d\n", reason, n, 100*float64(n)/float64(f.decisions), t.reasons[reason][calm])
	}
	fmt.Fprintf(&out, "errors      %d kinds\n", len(t.failures))
	for _, kind := range slices.Sorted(maps.Keys(t.failures)) {
		fmt.Fprintf(&out, "  %-26s %9d, of them calm %d\n", kind, sum(t.failures[kind]), t.failures[kind][calm])
	}
	out.WriteString("latency             requests       p50       p99     p99.9       max\n")
	all := new(histogram)
	for _, phase := range slices.Sorted(maps.Keys(t.latencies)) {
		all.merge(t.latencies[phase])
		out.WriteString(row(phase, t.latencies[phase]))
	}
	out.WriteString(row("all", all))
	return out.String()
}

func row(name string, h *histogram) string {
	return fmt.Sprintf("  %-16s %9d %9s %9s %9s %9s\n", name, h.n, ms(h.quantile(0.5)), ms(h.quantile(0.99)), ms(h.quantile(0.999)), ms(h.max))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// verdict is what must not have happened, with examples; nothing if all is well.
func (t *tally) verdict() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(t.violations)) {
		all = append(all, fmt.Sprintf("%d violations: %s", t.violations[kind], kind))
	}
	return append(all, t.examples...)
}
