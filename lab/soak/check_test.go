package soak

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// TestLedger holds that the ledger lets nothing pass that a limit does not, and
// accuses nobody otherwise. Times are in milliseconds.
func TestLedger(t *testing.T) {
	type did struct {
		at, units, stamp int64
		life             int
	}
	limit := func(a weir.Algorithm, most int64) weir.Limit {
		return normal(weir.Limit{Max: most, Window: time.Second, Algorithm: a})
	}
	for name, test := range map[string]struct {
		limit weir.Limit
		lost  int64 // when, if at all
		did   []did
		wrong int
	}{
		"a full log":              {limit(weir.SlidingLog, 2), 0, []did{{0, 2, 0, 0}, {1000, 2, 1000, 0}}, 0},
		"a log a moment early":    {limit(weir.SlidingLog, 2), 0, []did{{1, 2, 1, 0}, {1000, 1, 1000, 0}}, 1},
		"answers out of order":    {limit(weir.SlidingLog, 2), 0, []did{{1000, 2, 1000, 0}, {0, 2, 0, 0}}, 0},
		"what was given back":     {limit(weir.SlidingLog, 2), 0, []did{{0, 2, 0, 0}, {5, -2, 0, 0}, {5, 2, 5, 0}}, 0},
		"given back too late":     {limit(weir.SlidingLog, 2), 0, []did{{0, 2, 0, 0}, {6, -2, 0, 0}, {5, 2, 5, 0}}, 1},
		"of another charge":       {limit(weir.SlidingLog, 2), 0, []did{{0, 2, 0, 0}, {5, -2, 3, 0}, {5, 2, 5, 0}}, 1},
		"after a loss":            {limit(weir.SlidingLog, 2), 3, []did{{0, 2, 0, 0}, {5, 2, 5, 0}}, 0},
		"twice after a loss":      {limit(weir.SlidingLog, 2), 3, []did{{0, 2, 0, 0}, {5, 2, 5, 0}, {6, 1, 6, 0}}, 1},
		"a share beside":          {limit(weir.SlidingLog, 2), 0, []did{{0, 2, 0, 0}, {1, 2, 1, 1}, {2, 2, 2, 2}}, 0},
		"a share twice":           {limit(weir.SlidingLog, 2), 1, []did{{0, 2, 0, 1}, {2, 1, 2, 1}}, 1},
		"buckets":                 {limit(weir.SlidingBuckets, 2), 0, []did{{0, 2, 0, 0}, {999, 1, 999, 0}}, 1},
		"two windows":             {limit(weir.FixedWindow, 2), 0, []did{{900, 2, 0, 0}, {1100, 2, 1000, 0}}, 0},
		"a window twice":          {limit(weir.FixedWindow, 2), 0, []did{{0, 1, 0, 0}, {1100, 2, 1000, 0}, {900, 2, 0, 0}}, 1},
		"a window given back":     {limit(weir.FixedWindow, 2), 0, []did{{0, 2, 0, 0}, {100, -1, 0, 0}, {900, 1, 0, 0}}, 0},
		"a counter":               {limit(weir.SlidingCounter, 2), 0, []did{{0, 2, 0, 0}, {500, 1, 0, 0}}, 1},
		"a bucket as it drains":   {limit(weir.TokenBucket, 2), 0, []did{{0, 2, 0, 0}, {500, 1, 500, 0}, {1000, 1, 1000, 0}}, 0},
		"a bucket a moment early": {limit(weir.TokenBucket, 2), 0, []did{{0, 2, 0, 0}, {499, 1, 499, 0}}, 1},
		"a bucket given back":     {limit(weir.TokenBucket, 2), 0, []did{{0, 2, 0, 0}, {1, -1, 0, 0}, {2, 1, 2, 0}}, 0},
		"a bucket long unused":    {limit(weir.TokenBucket, 2), 0, []did{{0, 2, 0, 0}, {9_000_000, 2, 9_000_000, 0}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			if test.lost > 0 {
				l.lost(time.UnixMilli(test.lost))
			}
			for _, d := range test.did {
				r := weir.Receipt{Request: weir.Request{Key: "a", Limit: test.limit, Cost: 2}, Stamp: d.stamp * 1000}
				l.add(event{at: d.at * 1000, units: d.units, life: d.life, receipt: r})
			}
			if wrong := l.settle(time.UnixMilli(10_000_000)); len(wrong) != test.wrong {
				t.Errorf("%d are wrong, want %d: %s", len(wrong), test.wrong, wrong)
			}
			if len(l.accounts) != 0 || len(l.pending) != 0 {
				t.Errorf("%d accounts and %d events are left", len(l.accounts), len(l.pending))
			}
		})
	}
}

// TestAnswers holds that an answer that says what cannot be is found out.
func TestAnswers(t *testing.T) {
	row := weir.Request{Key: ":a", Limit: normal(weir.PerSecond(10)), Cost: 1}
	charged := func(of weir.Limit, id uint64) string {
		text, _ := weir.Receipt{Request: weir.Request{Key: ":a", Limit: of, Cost: 1}, Units: 1, ID: id}.MarshalText()
		return string(text)
	}
	whole, part := charged(row.Limit, 1), charged(share(row.Limit), 1<<63|1)
	one, closed := question{rows: []weir.Request{row}}, question{domain: "closed", rows: []weir.Request{row}}
	peek := question{rows: []weir.Request{{Key: ":a", Limit: row.Limit, Mode: weir.Peek}}}
	never := question{rows: []weir.Request{{Key: ":a", Limit: row.Limit, Cost: 11}}}
	for name, test := range map[string]struct {
		question question
		decision decision
		ok       bool
	}{
		"admitted":                   {one, decision{Allowed: true, Reason: "ok", Receipt: whole}, true},
		"without a receipt":          {one, decision{Allowed: true, Reason: "ok"}, false},
		"two rows for one":           {one, decision{Allowed: true, Reason: "ok", Receipt: whole + "." + whole}, false},
		"by a share that is none":    {one, decision{Allowed: true, Reason: "ok", Receipt: part}, false},
		"denied":                     {one, decision{Reason: "over_limit"}, true},
		"denied and charged":         {one, decision{Reason: "over_limit", Receipt: whole}, false},
		"denied, as it says not":     {one, decision{Reason: "ok"}, false},
		"by a share":                 {one, decision{Allowed: true, Reason: degraded + "local", Receipt: part}, true},
		"by all of the limit":        {one, decision{Allowed: true, Reason: degraded + "local", Receipt: whole}, false},
		"allowed without being told": {one, decision{Allowed: true, Reason: degraded + "allowed"}, false},
		"by a share though told not": {closed, decision{Allowed: true, Reason: degraded + "local", Receipt: part}, false},
		"denied as told":             {closed, decision{Reason: degraded + "denied"}, true},
		"a look":                     {peek, decision{Allowed: true, Reason: "ok"}, true},
		"a look that charges":        {peek, decision{Allowed: true, Reason: "ok", Receipt: whole}, false},
		"never":                      {never, decision{Reason: "never"}, true},
		"not yet what never can be":  {never, decision{Reason: "over_limit"}, false},
		"no such reason":             {one, decision{Allowed: true, Reason: "fine", Receipt: whole}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.question.sound(&test.decision)
			receipts, bad := parseReceipts(test.decision.Receipt)
			if err == nil && bad == nil {
				err = test.question.proven(&test.decision, receipts)
			}
			if (err == nil) != test.ok || bad != nil {
				t.Errorf("got %v, %v", err, bad)
			}
		})
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * 100 * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0: 0, 0.5: 50 * time.Millisecond, 0.99: 99 * time.Millisecond, 1: 100 * time.Millisecond} {
		if got := h.quantile(q); got < want || got > want*9/8+100*time.Microsecond*2 {
			t.Errorf("quantile %v is %v, want %v or an eighth more", q, got, want)
		}
	}
	var both histogram
	both.add(time.Hour)
	both.add(0)
	both.merge(&h)
	if both.n != 1002 || both.quantile(1) != time.Hour {
		t.Errorf("%d times, the longest %v", both.n, both.quantile(1))
	}
}

func TestTrend(t *testing.T) {
	var up trend
	for minute, y := range []float64{100, 160, 140, 200, 180} {
		up.add(time.Unix(int64(60*minute), 0), y)
	}
	if got := up.slope(); got != 20 || up.last != 4*time.Minute {
		t.Errorf("slope %v over %v, want 20 over 4m", got, up.last)
	}
	if got := new(trend).slope(); got != 0 {
		t.Errorf("without points the slope is %v", got)
	}
}

// TestVerdict holds that what must not be is told.
func TestVerdict(t *testing.T) {
	tally := newTally()
	for range maxExamples + 5 {
		tally.violation("late", "by %d ms", 7)
	}
	got := tally.verdict()
	if len(got) != 1+maxExamples || got[0] != "25 violations: late" || !slices.Contains(got, "late: by 7 ms") {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
}

// TestStalls holds that only what is late together with a probe is excused.
func TestStalls(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	var s stalls
	for _, probe := range []span{{at(0), at(1)}, {at(100), at(300)}, {at(320), at(339)}} {
		s.expect(probe.from)
		s.met(probe)
	}
	s.expect(at(1000))
	for asked, want := range map[span]bool{
		{at(0), at(90)}: false, {at(50), at(210)}: true, {at(250), at(900)}: true, {at(310), at(900)}: false,
		{at(900), at(1020)}: false, {at(900), at(1021)}: true,
	} {
		if got := s.during(asked); got != want {
			t.Errorf("from %v to %v: %v, want %v", asked.from.UnixMilli(), asked.to.UnixMilli(), got, want)
		}
	}
}

// TestLiving holds that a key counts for as long as it matters, and a second more.
func TestLiving(t *testing.T) {
	start := time.UnixMilli(1_000_000)
	for a, want := range map[weir.Algorithm]time.Duration{
		weir.SlidingLog: 11 * time.Second, weir.SlidingBuckets: 11*time.Second + 100*time.Millisecond,
		weir.SlidingCounter: 21 * time.Second, weir.FixedWindow: 11 * time.Second, weir.TokenBucket: 3 * time.Second,
	} {
		r := weir.Receipt{Request: weir.Request{Key: "a", Limit: normal(weir.Limit{Max: 5, Window: 10 * time.Second, Algorithm: a})}, Stamp: start.UnixMicro(), Level: 1}
		l := newLiving()
		l.touch(&r.Request, expiry(&r))
		l.touch(&r.Request, start)
		if before, after := l.count(start.Add(want)), l.count(start.Add(want+1)); before != 1 || after != 0 {
			t.Errorf("%v: %d keys %v after, %d later", a, before, want, after)
		}
		l.touch(&r.Request, expiry(&r))
		l.lost()
		if n := l.count(start); n != 0 {
			t.Errorf("%v: %d keys after a loss", a, n)
		}
	}
}
