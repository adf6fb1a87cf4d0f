package weir_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

const day = 24 * time.Hour

func TestParseLimit(t *testing.T) {
	for _, tt := range []struct {
		text  string
		want  weir.Limit
		canon string // what String writes
	}{
		{"100/30m", weir.Per(100, 30*time.Minute), "100/30m"},
		{"5/2s", weir.Per(5, 2*time.Second), "5/2s"},
		{"1/500us", weir.Per(1, 500*time.Microsecond), "1/500us"},
		{"1/500µs", weir.Per(1, 500*time.Microsecond), "1/500us"},      // micro sign
		{"1/500\u03bcs", weir.Per(1, 500*time.Microsecond), "1/500us"}, // Greek mu
		{"1/us", weir.Per(1, time.Microsecond), "1/1us"},
		{"7/ms", weir.Per(7, time.Millisecond), "7/1ms"},
		{"5/s", weir.PerSecond(5), "5/1s"},
		{"5/sec", weir.PerSecond(5), "5/1s"},
		{"5/second", weir.PerSecond(5), "5/1s"},
		{"5/30seconds", weir.Per(5, 30*time.Second), "5/30s"},
		{"5/m", weir.PerMinute(5), "5/1m"},
		{"5/min", weir.PerMinute(5), "5/1m"},
		{"5/minute", weir.PerMinute(5), "5/1m"},
		{"5/2minutes", weir.Per(5, 2*time.Minute), "5/2m"},
		{"5/h", weir.PerHour(5), "5/1h"},
		{"5/hour", weir.PerHour(5), "5/1h"},
		{"5/36hours", weir.Per(5, 36*time.Hour), "5/36h"},
		{"5/d", weir.PerDay(5), "5/1d"},
		{"5/day", weir.PerDay(5), "5/1d"},
		{"5/30days", weir.Per(5, 30*day), "5/30d"},
		{"5/w", weir.Per(5, 7*day), "5/7d"},
		{"5/week", weir.Per(5, 7*day), "5/7d"},
		{"5/2weeks", weir.Per(5, 14*day), "5/14d"},
		{"5/366d", weir.Per(5, weir.MaxWindow), "5/366d"},
		{"5/24h", weir.PerDay(5), "5/1d"},
		{"5/60s", weir.PerMinute(5), "5/1m"},
		{"5/90s", weir.Per(5, 90*time.Second), "5/90s"},
		{"5/1h30m", weir.Per(5, 90*time.Minute), "5/90m"},
		{"5/1d12h", weir.Per(5, 36*time.Hour), "5/36h"},
		{"5/1m1us", weir.Per(5, time.Minute+time.Microsecond), "5/60000001us"},
		{"5/1.5s", weir.Per(5, 1500*time.Millisecond), "5/1500ms"},
		{"5/0.25d", weir.Per(5, 6*time.Hour), "5/6h"},
		{"5/0.001ms", weir.Per(5, time.Microsecond), "5/1us"},
		{"  5/m\t", weir.PerMinute(5), "5/1m"},
		{"0005/m", weir.PerMinute(5), "5/1m"},
		{"2147483648/s", weir.PerSecond(weir.MaxUnits), "2147483648/1s"},
		{"10000/s", weir.PerSecond(10_000), "10000/1s"},
		{"10001/s", weir.PerSecond(10_001), "10001/1s"},
		{"10001/s sliding-log", weir.Limit{Max: 10_001, Window: time.Second, Algorithm: weir.SlidingLog}, "10001/1s sliding-log"},
		{"100000/s sliding-log", weir.Limit{Max: 100_000, Window: time.Second, Algorithm: weir.SlidingLog}, "100000/1s sliding-log"},
		{"5/s sliding-log", weir.Limit{Max: 5, Window: time.Second, Algorithm: weir.SlidingLog}, "5/1s"},
		{"10/s burst=20", weir.Limit{Max: 10, Window: time.Second, Burst: 20}, "10/1s burst=20"},
		{"10/s burst 20", weir.Limit{Max: 10, Window: time.Second, Burst: 20}, "10/1s burst=20"},
		{"10/s burst=1", weir.Limit{Max: 10, Window: time.Second, Burst: 1}, "10/1s burst=1"},
		{"10/s token-bucket", weir.Limit{Max: 10, Window: time.Second, Algorithm: weir.TokenBucket}, "10/1s burst=10"},
		{"10/s token-bucket burst=3", weir.Limit{Max: 10, Window: time.Second, Burst: 3, Algorithm: weir.TokenBucket}, "10/1s burst=3"},
		{"10/s buckets=60", weir.Limit{Max: 10, Window: time.Second, Buckets: 60}, "10/1s buckets=60"},
		{"10/s buckets 60", weir.Limit{Max: 10, Window: time.Second, Buckets: 60}, "10/1s buckets=60"},
		{"10/s sliding-buckets", weir.Limit{Max: 10, Window: time.Second, Algorithm: weir.SlidingBuckets}, "10/1s buckets=100"},
		{"50000/h buckets=100", weir.Limit{Max: 50_000, Window: time.Hour, Buckets: 100}, "50000/1h"},
		{"50000/h buckets=10000", weir.Limit{Max: 50_000, Window: time.Hour, Buckets: 10_000}, "50000/1h buckets=10000"},
		{"5/m fixed-window", weir.Limit{Max: 5, Window: time.Minute, Algorithm: weir.FixedWindow}, "5/1m fixed-window"},
		{"5/m epoch", weir.Limit{Max: 5, Window: time.Minute, Epoch: true}, "5/1m epoch"},
		{"5/m fixed-window epoch", weir.Limit{Max: 5, Window: time.Minute, Algorithm: weir.FixedWindow, Epoch: true}, "5/1m epoch"},
		{"50000/m epoch", weir.Limit{Max: 50_000, Window: time.Minute, Epoch: true}, "50000/1m epoch"},
		{"5/m sliding-counter", weir.Limit{Max: 5, Window: time.Minute, Algorithm: weir.SlidingCounter}, "5/1m sliding-counter"},
	} {
		got, err := weir.ParseLimit(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseLimit(%q) = %+v, %v, want %+v", tt.text, got, err, tt.want)
			continue
		}
		if canon := got.String(); canon != tt.canon {
			t.Errorf("ParseLimit(%q).String() = %q, want %q", tt.text, canon, tt.canon)
		}
		roundTrip(t, got)
	}
}

// roundTrip checks that the text of a valid limit is canonical and reads back
// as an equal limit.
func roundTrip(t *testing.T, l weir.Limit) {
	t.Helper()
	want, err := l.Normal()
	if err != nil {
		t.Fatalf("%+v is not valid: %v", l, err)
	}
	text := l.String()
	back, err := weir.ParseLimit(text)
	if err != nil {
		t.Fatalf("%+v is written %q, which does not parse: %v", l, text, err)
	}
	if got, err := back.Normal(); err != nil || got != want {
		t.Errorf("%q reads back as %+v, want %+v (%v)", text, got, want, err)
	}
	if again := want.String(); again != text {
		t.Errorf("equal limits are written %q and %q", text, again)
	}
}

func TestParseLimitRefuses(t *testing.T) {
	for _, text := range []string{
		"", " ", "/", "5", "5/", "/m", "m/5", "5 per minute", "5 / m", "5/ m", "5:m", "five/m",
		"0/m", "-5/m", "+5/m", "5.0/m", "5_0/m", "0x5/m", "5e3/m", "٥/m", "2147483649/s", "9223372036854775808/s", "99999999999999999999/s",
		"5/0s", "5/-1s", "5/+1s", "5/1", "5/30", "5/M", "5/Minute", "5/ns", "5/1ns", "5/1500ns", "5/1.5us", "5/0.5us", "5/year", "5/month",
		"5/.5s", "5/1.s", "5/1..5s", "5/1.5.5s", "5/.", "5/s30", "5/1m30", "5/1m 30s", "5/1m,30s", "5/0.0000000000001d",
		"5/367d", "5/53w", "5/366d1us", "5/99999999999999999999s", "5/9223372036854775807s", "5/200000000d", "5/106751d106751d",
		"5/9223372036854.9ms", "5/\xffs", "5/1\xb5s", "5/m\x00",
		"10/s burst", "10/s burst=", "10/s burst=0", "10/s burst=-1", "10/s burst=x", "10/s burst 0", "10/s burst burst=20", "10/s burst=2147483649",
		"10/s burst=1 burst=1", "10/s burst =20", "10/s burst= 20", "10/s 20", "10/s BURST=20", "10/s burst==20", "10/s max=20",
		"10/s buckets=0", "10/s buckets=10001", "10/s buckets=x", "10/s buckets", "10/s buckets=4294967297", "10/s buckets=2 buckets=2",
		"10/s burst=20 buckets=10", "10/s burst=20 epoch", "10/s buckets=10 epoch", "10/s epoch epoch", "10/s epoch=1", "10/s epoch=true",
		"10/s burst=20 sliding-log", "10/s burst=20 fixed-window", "10/s buckets=10 token-bucket", "10/s epoch sliding-log",
		"10/s sliding-log sliding-log", "10/s sliding-log fixed-window", "10/s leaky-bucket", "10/s Sliding-Log", "100001/s sliding-log",
	} {
		got, err := weir.ParseLimit(text)
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("ParseLimit(%q) = %+v, %v, want an *InvalidError", text, got, err)
			continue
		}
		if got != (weir.Limit{}) {
			t.Errorf("ParseLimit(%q) = %+v beside an error, want a zero Limit", text, got)
		}
		if invalid.Field != "limit" || invalid.Value != text || !strings.ContainsAny(invalid.Want, "0123456789") {
			t.Errorf("ParseLimit(%q): %+v, want the field, the value, and what to write instead", text, invalid)
		}
		if message := err.Error(); !strings.HasPrefix(message, "weir: limit "+strconv.Quote(text)+": want ") {
			t.Errorf("ParseLimit(%q) says %q", text, message)
		}
	}
}

// TestErrorsStayShort: whoever logs an error must not be made to log what an
// attacker sent.
func TestErrorsStayShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	_, algorithm := weir.ParseAlgorithm(long)
	_, limit := weir.ParseLimit(long)
	_, word := weir.ParseLimit("5/m " + long)
	_, count := weir.ParseLimit(strings.Repeat("9", 1<<20) + "/m")
	_, window := weir.ParseLimit("5/" + long)
	var r weir.Receipt
	for name, err := range map[string]error{
		"algorithm": algorithm, "limit": limit, "word": word, "count": count, "window": window, "receipt": r.UnmarshalText([]byte(long)),
	} {
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: an error of %d bytes, want at most 500", name, len(err.Error()))
		}
	}
}

func TestValidate(t *testing.T) {
	ok := weir.PerMinute(5)
	with := func(change func(*weir.Limit)) weir.Limit {
		l := ok
		change(&l)
		return l
	}
	for _, tt := range []struct {
		limit        weir.Limit
		field, value string // of the error; "" if valid
	}{
		{ok, "", ""},
		{weir.Per(weir.MaxUnits, weir.MaxWindow), "", ""},
		{weir.Per(1, time.Microsecond), "", ""},
		{weir.Limit{}, "max", "0"},
		{weir.PerMinute(0), "max", "0"},
		{weir.PerMinute(-1), "max", "-1"},
		{weir.PerMinute(weir.MaxUnits + 1), "max", "2147483649"},
		{weir.PerMinute(math.MaxInt64), "max", "9223372036854775807"},
		{weir.PerMinute(math.MinInt64), "max", "-9223372036854775808"},
		{weir.Per(5, 0), "window", "0s"},
		{weir.Per(5, -time.Minute), "window", "-1m0s"},
		{weir.Per(5, time.Nanosecond), "window", "1ns"},
		{weir.Per(5, time.Microsecond+1), "window", "1.001µs"},
		{weir.Per(5, weir.MaxWindow+time.Microsecond), "window", "8784h0m0.000001s"},
		{weir.Per(5, math.MaxInt64), "window", "2562047h47m16.854775807s"},
		{with(func(l *weir.Limit) { l.Burst = -1 }), "burst", "-1"},
		{with(func(l *weir.Limit) { l.Burst = weir.MaxUnits + 1 }), "burst", "2147483649"},
		{with(func(l *weir.Limit) { l.Burst = weir.MaxUnits }), "", ""},
		{with(func(l *weir.Limit) { l.Buckets = -1 }), "buckets", "-1"},
		{with(func(l *weir.Limit) { l.Buckets = 10_001 }), "buckets", "10001"},
		{with(func(l *weir.Limit) { l.Buckets = 10_000 }), "", ""},
		{with(func(l *weir.Limit) { l.Algorithm = 6 }), "algorithm", "algorithm(6)"},
		{with(func(l *weir.Limit) { l.Algorithm = 255 }), "algorithm", "algorithm(255)"},
		{with(func(l *weir.Limit) { l.Burst, l.Algorithm = 2, weir.SlidingLog }), "burst", "2"},
		{with(func(l *weir.Limit) { l.Burst, l.Buckets = 2, 2 }), "buckets", "2"},
		{with(func(l *weir.Limit) { l.Burst, l.Epoch = 2, true }), "epoch", "true"},
		{with(func(l *weir.Limit) { l.Buckets, l.Epoch = 2, true }), "buckets", "2"},
		{with(func(l *weir.Limit) { l.Buckets, l.Algorithm = 2, weir.TokenBucket }), "buckets", "2"},
		{with(func(l *weir.Limit) { l.Epoch, l.Algorithm = true, weir.SlidingCounter }), "epoch", "true"},
		{with(func(l *weir.Limit) { l.Max, l.Algorithm = 100_000, weir.SlidingLog }), "", ""},
		{with(func(l *weir.Limit) { l.Max, l.Algorithm = 100_001, weir.SlidingLog }), "max", "100001"},
	} {
		err := tt.limit.Validate()
		if tt.field == "" {
			if err != nil {
				t.Errorf("%+v: %v, want it to be valid", tt.limit, err)
			}
			continue
		}
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != tt.field || invalid.Value != tt.value || invalid.Want == "" {
			t.Errorf("%+v: %v, want an *InvalidError about %s %s", tt.limit, err, tt.field, tt.value)
		}
		if text := tt.limit.String(); text == "" {
			t.Errorf("%+v has no text", tt.limit)
		}
	}
}

func TestNormalFillsInDefaults(t *testing.T) {
	for _, tt := range []struct{ limit, want weir.Limit }{
		{weir.PerSecond(10_000), weir.Limit{Max: 10_000, Window: time.Second, Algorithm: weir.SlidingLog}},
		{weir.PerSecond(10_001), weir.Limit{Max: 10_001, Window: time.Second, Buckets: 100, Algorithm: weir.SlidingBuckets}},
		{weir.Limit{Max: 5, Window: time.Second, Buckets: 3}, weir.Limit{Max: 5, Window: time.Second, Buckets: 3, Algorithm: weir.SlidingBuckets}},
		{weir.Limit{Max: 5, Window: time.Second, Burst: 3}, weir.Limit{Max: 5, Window: time.Second, Burst: 3, Algorithm: weir.TokenBucket}},
		{weir.Limit{Max: 5, Window: time.Second, Algorithm: weir.TokenBucket}, weir.Limit{Max: 5, Window: time.Second, Burst: 5, Algorithm: weir.TokenBucket}},
		{weir.Limit{Max: 50_000, Window: time.Second, Epoch: true}, weir.Limit{Max: 50_000, Window: time.Second, Epoch: true, Algorithm: weir.FixedWindow}},
	} {
		got, err := tt.limit.Normal()
		if err != nil || got != tt.want {
			t.Errorf("%+v.Normal() = %+v, %v, want %+v", tt.limit, got, err, tt.want)
		}
		if again, err := got.Normal(); err != nil || again != got {
			t.Errorf("Normal is not idempotent: %+v becomes %+v (%v)", got, again, err)
		}
	}
	if got := (weir.Limit{Max: 5, Window: time.Second, Burst: 3}).Capacity(); got != 3 {
		t.Errorf("the capacity of a token bucket is %d, want its burst, 3", got)
	}
	if got := weir.PerSecond(5).Capacity(); got != 5 {
		t.Errorf("the capacity of 5/s is %d, want 5", got)
	}
}

// randomLimit draws from all valid limits, the extreme ones more often.
func randomLimit(r *rand.Rand) weir.Limit {
	units := func() int64 {
		return []int64{1, 2, 1 + r.Int64N(100), 10_000, 10_001, 1 + r.Int64N(weir.MaxUnits), weir.MaxUnits}[r.IntN(7)]
	}
	micros := []int64{1, 1 + r.Int64N(1000), 1000 * (1 + r.Int64N(1000)), 1_000_000 * (1 + r.Int64N(100_000)), 1 + r.Int64N(366*86_400_000_000), 366 * 86_400_000_000}
	l := weir.Limit{Max: units(), Window: time.Duration(micros[r.IntN(len(micros))]) * time.Microsecond, Algorithm: weir.Algorithm(r.IntN(6))}
	switch l.Algorithm {
	case weir.SlidingLog:
		l.Max = 1 + r.Int64N(100_000)
	case weir.SlidingBuckets:
		l.Buckets = []int{0, 1, 100, 1 + r.IntN(10_000)}[r.IntN(4)]
	case weir.TokenBucket:
		l.Burst = []int64{0, units()}[r.IntN(2)]
	case weir.FixedWindow:
		l.Epoch = r.IntN(2) == 0
	}
	return l
}

func TestLimitRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		roundTrip(t, randomLimit(r))
	}
}

func TestAlgorithmNames(t *testing.T) {
	names := []string{"", "sliding-log", "sliding-buckets", "sliding-counter", "fixed-window", "token-bucket"}
	for i, name := range names {
		a, err := weir.ParseAlgorithm(name)
		if err != nil || a != weir.Algorithm(i) || a.String() != name {
			t.Errorf("ParseAlgorithm(%q) = %d (%q), %v", name, a, a, err)
		}
	}
	_, err := weir.ParseAlgorithm("slidinglog")
	var invalid *weir.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "algorithm" || invalid.Value != "slidinglog" {
		t.Fatalf("ParseAlgorithm of a wrong name: %v", err)
	}
	for _, name := range names[1:] {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not list %s: %v", name, err)
		}
	}
	for _, s := range []string{weir.Algorithm(77).String(), weir.Mode(77).String(), weir.Reason(77).String()} {
		if s == "" {
			t.Error("an unknown value has no text")
		}
	}
}
