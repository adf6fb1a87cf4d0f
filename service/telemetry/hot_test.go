package telemetry_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/telemetry"
)

// told is an event of one row, by slack/per-category, without an engine that
// remembers its key.
func told(category string, allowed bool, took time.Duration) decide.Event {
	d := weir.Decision{Allowed: allowed, Reason: weir.OverLimit}
	if allowed {
		d.Reason = weir.OK
	}
	return decide.Event{
		Query: &decide.Query{Domain: "slack"}, Took: took,
		Answer: &decide.Answer{Decision: d, Rows: []decide.Row{{Decision: d, Name: "per-category", Key: "slack:per-category:" + category}}},
	}
}

func TestHotKeysAsPeopleReadThem(t *testing.T) {
	tree := policy.Domain{Name: "tr:ee", Tree: &policy.Tree{Descriptors: []policy.Descriptor{
		{Key: "path", Value: "/a*", ShareThreshold: true, Descriptors: []policy.Descriptor{{Key: "user", RateLimit: &policy.RateLimit{Requests: 9, Unit: policy.Hour}}}},
	}}}
	s := newService(t, telemetry.Options{}, slack, tree)
	s.ask(t, 13, of("slack", "category", "a:b%, c=d"))
	s.ask(t, 4, described("tr:ee", policy.Entry{Key: "path", Value: "/abc"}, policy.Entry{Key: "user", Value: "al:ice"}))
	s.ask(t, 3, decide.Query{Checks: []weir.Request{{Key: "search:%3Aalice", Limit: weir.PerHour(1), Cost: 1}}})
	// Two entries under one rule of a domain without a tree, by a limit of the request.
	s.ask(t, 2, decide.Query{Domain: "slack", Descriptors: []decide.Descriptor{{
		Entries: []policy.Entry{{Key: "x", Value: "1"}, {Key: "y", Value: ""}}, Cost: 1, Limit: weir.PerHour(5),
	}}})
	var got []string
	for _, h := range s.Snapshot().Hot {
		got = append(got, fmt.Sprintf("%s/%s %q %d %d %v", h.Domain, h.Rule, h.Key, h.Allowed, h.Denied, h.Attributes))
	}
	want := []string{
		`slack/trial "category=a:b%, c=d" 1 12 map[category:a:b%, c=d]`,
		`slack/per-category "category=a:b%, c=d" 10 3 map[category:a:b%, c=d]`,
		`/ "search:%3Aalice" 1 2 map[]`,
		`slack/global "all requests" 13 0 map[]`,
		`tr:ee/path_/a*.user "path=/a*, user=al:ice" 4 0 map[path:/a* user:al:ice]`,
		`slack/ "x=1, y=" 2 0 map[x:1 y:]`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestKeysThatNobodyCanRead(t *testing.T) {
	s := newService(t, telemetry.Options{}, policy.Domain{Name: "slack", Rules: slack.Rules[1:2]})
	s.ask(t, 2, of("slack", "category", strings.Repeat("long", 10_000)+"a"))
	s.ask(t, 1, of("slack", "category", strings.Repeat("long", 10_000)+"b"))
	hot := s.Snapshot().Hot
	if len(hot) != 2 || len(hot[0].Key) > 300 || hot[0].Allowed != 2 || hot[1].Allowed != 1 || hot[0].Key == hot[1].Key {
		t.Errorf("long keys became %+v", hot)
	}
	// Of a key that was made when the rule had another By only the values are known.
	s.load(t, policy.Domain{Name: "slack", Rules: []policy.Rule{{Name: "per-category", Limit: weir.PerHour(5)}}})
	if now := s.Snapshot().Hot; len(now) != 2 || "category="+now[0].Key != hot[0].Key || len(now[0].Attributes) != 0 {
		t.Errorf("keys of another time became %+v", now)
	}
}

func TestRedactedKeys(t *testing.T) {
	one, other := newService(t, telemetry.Options{RedactKeys: true}, slack), newService(t, telemetry.Options{RedactKeys: true}, slack)
	hashes := make(map[string]bool)
	for _, s := range []*service{one, one, other} {
		s.ask(t, 1, of("slack", "category", "secret"))
		for _, h := range s.Snapshot().Hot {
			if hashes[h.Key] = true; !h.Redacted || len(h.Key) != 16 || len(h.Attributes) != 0 {
				t.Errorf("got %+v", h)
			}
		}
	}
	// The keys of two rules; global's differs from them. A process has its own.
	if len(hashes) != 2*3 {
		t.Errorf("%d hashes for 3 keys in 2 processes: %v", len(hashes), hashes)
	}
}

func TestHotKeysAreBounded(t *testing.T) {
	s := newService(t, telemetry.Options{}, slack)
	feed := func(from, to int) {
		for i := from; i < to; i++ {
			key := strconv.Itoa(i)
			if i%10 == 0 {
				key += strings.Repeat("x", i%1000)
			}
			s.Decided(told(key, i%2 == 0, time.Microsecond))
			if i%2000 == 0 {
				s.Snapshot()
			}
		}
		s.Snapshot()
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what the first has only emptied of pools
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	feed(0, 20_000)
	series, before := len(s.series(t)), heap()
	feed(20_000, 1_020_000)
	after := heap()
	if grown := int64(after) - int64(before); grown > 256<<10 {
		t.Errorf("a million keys take %d bytes, from %d", grown, before)
	}
	if now := len(s.series(t)); now != series {
		t.Errorf("%d series were made of keys", now-series)
	}
	hot := s.Snapshot().Hot
	if len(hot) != 50 {
		t.Errorf("%d keys are shown, want 50", len(hot))
	}
	for _, h := range hot {
		if len(h.Key) > 300 {
			t.Errorf("a key of %d bytes was kept", len(h.Key))
		}
	}
	s.want(t, map[string]float64{"weir_hotkeys_dropped_total{}": 0})
}

// A burst beyond what there is room for is counted, but its keys are not; then
// a share of them stands for all.
func TestManyKeysAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, telemetry.Options{}, slack)
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		const ticks, each = 20, 40_000
		often, rare := told("often", true, time.Microsecond), make([]decide.Event, 5000)
		for i := range rare {
			rare[i] = told(fmt.Sprint("rare", i), true, time.Microsecond)
		}
		burst := func(n int) {
			for i := range n {
				e := often
				if i%4 > 0 {
					e = rare[i%len(rare)]
				}
				if !s.Timed() {
					e.Took = 0
				}
				s.Decided(e)
			}
			wait(100 * time.Millisecond)
		}
		burst(each)
		lost := s.series(t)["weir_hotkeys_dropped_total{}"]
		if lost != each-4096 {
			t.Errorf("%v were dropped, want all but 4096", lost)
		}
		for range ticks {
			burst(each)
		}
		got := s.series(t)
		if got["weir_hotkeys_dropped_total{}"] != lost || got["weir_hotkeys_sampled_ratio{}"] != 1.0/32 {
			t.Errorf("%v were dropped with a sample of %v", got["weir_hotkeys_dropped_total{}"]-lost, got["weir_hotkeys_sampled_ratio{}"])
		}
		// Some 25,000 samples stand for 800,000 that came within 2 s.
		hottest, want := s.Snapshot().Hot[0], 0.0
		for i := range ticks {
			want += each / 4 * math.Exp2(-float64(i)/10/60)
		}
		if hottest.Key != "category=often" || math.Abs(float64(hottest.Allowed)-want) > want/20+float64(hottest.AllowedError) {
			t.Errorf("got %+v, want %v", hottest, want)
		}
		if all := s.Snapshot().Totals.Allowed; all != (ticks+1)*each {
			t.Errorf("%d were counted, want all %d", all, (ticks+1)*each)
		}
		burst(10)
		if got := s.series(t)["weir_hotkeys_sampled_ratio{}"]; got != 1 {
			t.Errorf("after the burst a sample is %v of all", got)
		}
		cancel()
		synctest.Wait()
	})
}

// wait lets time pass in a bubble of synctest.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestRatesAreOfTheLast10Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, telemetry.Options{}, slack)
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		second := func(n int, took time.Duration) telemetry.State {
			wait(500 * time.Millisecond)
			for i := range n {
				s.Decided(told("a", i%4 > 0, took))
				s.Store(2*took, nil, 0)
			}
			wait(500 * time.Millisecond)
			return s.Snapshot()
		}
		first := second(40, time.Millisecond)
		if r := first.Rules[1]; r.AllowedPerSec != 30 || r.DeniedPerSec != 10 || first.Totals.AllowedPerSec != 30 {
			t.Errorf("after a second: %+v", r)
		}
		near := func(name string, got, want float64) {
			if math.Abs(got-want) > want/20 {
				t.Errorf("%s is %v, want about %v", name, got, want)
			}
		}
		var last telemetry.State
		for i := range 20 {
			last = second(100, time.Duration(1+i%10)*time.Millisecond)
		}
		near("rate", last.Totals.AllowedPerSec, 75)
		near("rate of the rule", last.Rules[1].DeniedPerSec, 25)
		near("p50", last.Latency.P50, 5)
		near("p90", last.Latency.P90, 9)
		near("p99", last.Latency.P99, 10)
		near("store's p99", last.Store.Latency.P99, 20)
		for range 12 {
			last = second(0, 0)
		}
		if last.Totals.AllowedPerSec != 0 || last.Latency.P99 != 0 || last.Store.Latency != nil || last.Totals.Allowed != 30+20*75 {
			t.Errorf("long after: %+v", last.Totals)
		}
		cancel()
		synctest.Wait()
	})
}
