package telemetry_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/telemetry"
)

// BenchmarkObserved times decisions of one rule on the memory store by turns
// without and with a Recorder that is run, and reports the median of the ratios of
// such turns: 1.1 is 10 % longer.
func BenchmarkObserved(b *testing.B) {
	p, err := policy.Compile([]policy.Domain{{Name: "rules", Rules: []policy.Rule{{Name: "per-user", By: []string{"user"}, Limit: weir.PerMinute(1000)}}}})
	if err != nil {
		b.Fatal(err)
	}
	r, err := telemetry.New(telemetry.Options{})
	if err != nil {
		b.Fatal(err)
	}
	r.Loaded(p, time.Now(), nil)
	go r.Run(b.Context())
	queries := make([]decide.Query, 10_000)
	for i := range queries {
		queries[i] = decide.Query{Domain: "rules", Attributes: map[string]string{"user": "user" + strconv.Itoa(i)}, Cost: 1}
	}
	turn := func(observe func(decide.Event)) func() time.Duration {
		e := decide.New(decide.Options{Limiter: weir.New(weir.Options{}), Observe: observe, Timed: r.Timed})
		e.Load(p, false)
		return func() time.Duration {
			start := time.Now()
			for i := range queries {
				if _, err := e.Check(b.Context(), queries[i]); err != nil {
					b.Fatal(err)
				}
			}
			return time.Since(start)
		}
	}
	plain, observed := turn(nil), turn(r.Decided)
	var ratios []float64
	var sums [2]time.Duration
	for b.Loop() {
		without, with := plain(), observed()
		sums[0], sums[1] = sums[0]+without, sums[1]+with
		ratios = append(ratios, float64(with)/float64(without))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	for i, unit := range []string{"ns/plain", "ns/observed"} {
		b.ReportMetric(float64(sums[i].Nanoseconds())/float64(len(ratios)*len(queries)), unit)
	}
}
