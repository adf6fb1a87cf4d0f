package httplimit_test

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

func ok(limit, remaining int64, reset time.Duration) weir.Decision {
	return weir.Decision{Allowed: true, Limit: limit, Remaining: remaining, ResetAfter: reset}
}

func over(limit int64, retry, reset time.Duration) weir.Decision {
	return weir.Decision{Reason: weir.OverLimit, Limit: limit, RetryAfter: retry, ResetAfter: reset}
}

func row(name string, window time.Duration, d weir.Decision) httplimit.Row {
	return httplimit.Row{Decision: d, Name: name, Window: window}
}

// text writes header fields on a line each.
func text(h http.Header) string {
	var lines []string
	for name, values := range h {
		lines = append(lines, name+": "+strings.Join(values, " and "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// verdicts are those that the dialects tell of.
var verdicts = map[string]struct {
	verdict weir.Decision
	rows    []httplimit.Row
}{
	"admitted": {
		ok(10, 4, 1500*time.Millisecond),
		[]httplimit.Row{row("burst", 2*time.Second, ok(10, 4, 1500*time.Millisecond)), row("daily", 24*time.Hour, ok(1000, 900, 3*time.Hour))},
	},
	"denied": {
		over(10, 300*time.Millisecond, 2*time.Second),
		[]httplimit.Row{row("burst", 2*time.Second, over(10, 300*time.Millisecond, 2*time.Second)), row("daily", 24*time.Hour, ok(1000, 900, 3*time.Hour))},
	},
	"never": {
		weir.Decision{Reason: weir.Never},
		[]httplimit.Row{row("banned", 0, weir.Decision{Reason: weir.Never}), row("burst", 2*time.Second, ok(10, 4, time.Second))},
	},
	"no rule": {weir.Decision{Allowed: true, Reason: weir.NoRule}, nil},
	"without the store": {
		weir.Decision{Allowed: true, Reason: weir.StoreAllowed, Limit: 10},
		[]httplimit.Row{row("burst", 2*time.Second, weir.Decision{Allowed: true, Reason: weir.StoreAllowed, Limit: 10})},
	},
	"by a share": {
		weir.Decision{Reason: weir.StoreLocal, Limit: 5, RetryAfter: time.Second},
		[]httplimit.Row{row("burst", 2*time.Second, weir.Decision{Reason: weir.StoreLocal, Limit: 5, RetryAfter: time.Second})},
	},
	"a window that w cannot tell, and names that need care": {
		ok(5, 5, 0),
		[]httplimit.Row{row(`a"b\c`, 999*time.Millisecond, ok(5, 5, 0)), row("", 1001*time.Millisecond, ok(6, 6, 0)), row("é\n", time.Second, ok(7, 7, 0))},
	},
}

func TestFields(t *testing.T) {
	now := func() time.Time { return time.Date(2026, 11, 21, 9, 0, 0, 700e6, time.UTC) }
	tests := []struct {
		dialect httplimit.Dialect
		name    string
		want    []string
	}{
		{httplimit.Draft10, "admitted", []string{`Ratelimit-Policy: "burst";q=10;w=2, "daily";q=1000;w=86400`, `Ratelimit: "burst";r=4;t=2, "daily";r=900;t=10800`}},
		{httplimit.Draft10, "denied", []string{`Ratelimit-Policy: "burst";q=10;w=2, "daily";q=1000;w=86400`, `Ratelimit: "burst";r=0;t=1, "daily";r=900`, "Retry-After: 1"}},
		{httplimit.Draft10, "never", []string{`Ratelimit-Policy: "banned";q=0, "burst";q=10;w=2`, `Ratelimit: "banned";r=0, "burst";r=4`}},
		{httplimit.Draft10, "no rule", nil},
		{httplimit.Draft10, "without the store", []string{`Ratelimit-Policy: "burst";q=10;w=2`, "Weir-Reason: store_unavailable_allowed"}},
		{httplimit.Draft10, "by a share", []string{`Ratelimit-Policy: "burst";q=5;w=2`, `Ratelimit: "burst";r=0;t=1`, "Retry-After: 1", "Weir-Reason: store_unavailable_local"}},
		{httplimit.Draft10, "a window that w cannot tell, and names that need care", []string{
			`Ratelimit-Policy: "a\"b\\c";q=5, "default";q=6;w=2, "???";q=7;w=1`, `Ratelimit: "a\"b\\c";r=5;t=0, "default";r=6;t=0, "???";r=7;t=0`,
		}},
		{httplimit.Draft03, "admitted", []string{`X-Ratelimit-Limit: 10, 10;w=2;name="burst", 1000;w=86400;name="daily"`, "X-Ratelimit-Remaining: 4", "X-Ratelimit-Reset: 2"}},
		{httplimit.Draft03, "never", []string{`X-Ratelimit-Limit: 0, 0;name="banned", 10;w=2;name="burst"`, "X-Ratelimit-Remaining: 0"}},
		{httplimit.Delta, "admitted", []string{"X-Ratelimit-Limit: 10", "X-Ratelimit-Remaining: 4", "X-Ratelimit-Reset: 2"}},
		{httplimit.Delta, "denied", []string{"X-Ratelimit-Limit: 10", "X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 1", "Retry-After: 1"}},
		{httplimit.Delta, "never", []string{"X-Ratelimit-Limit: 0", "X-Ratelimit-Remaining: 0"}},
		{httplimit.Delta, "no rule", nil},
		{httplimit.Delta, "without the store", []string{"X-Ratelimit-Limit: 10", "Weir-Reason: store_unavailable_allowed"}},
		{httplimit.Epoch, "admitted", []string{"X-Ratelimit-Limit: 10", "X-Ratelimit-Remaining: 4", "X-Ratelimit-Reset: " + strconv.FormatInt(now().Unix()+3, 10)}},
		{httplimit.Epoch, "denied", []string{"X-Ratelimit-Limit: 10", "X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: " + strconv.FormatInt(now().Unix()+1, 10), "Retry-After: 1"}},
		{httplimit.None, "admitted", nil},
		{httplimit.None, "denied", []string{"Retry-After: 1"}},
		{httplimit.None, "by a share", []string{"Retry-After: 1", "Weir-Reason: store_unavailable_local"}},
	}
	for _, test := range tests {
		h, v := make(http.Header), verdicts[test.name]
		httplimit.Fields{Dialect: test.dialect, Now: now}.Write(h, &v.verdict, v.rows)
		slices.Sort(test.want)
		if want := strings.Join(test.want, "\n"); text(h) != want {
			t.Errorf("%v, %s: got\n%s\nwant\n%s", test.dialect, test.name, text(h), want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		time.Microsecond: "1", time.Second: "1", time.Second + time.Microsecond: "2", weir.MaxWindow: "31622400", weir.MaxWindow - time.Microsecond: "31622400",
	} {
		h, d := make(http.Header), over(1, wait, wait)
		httplimit.Fields{}.Write(h, &d, nil)
		if got := h.Get("Retry-After"); got != want {
			t.Errorf("after %v: got %q, want %q", wait, got, want)
		}
	}
}

func TestJitterOnlyAdds(t *testing.T) {
	for _, test := range []struct {
		jitter float64
		most   int64
	}{{-1, 100}, {0, 100}, {0.5, 150}, {1, 200}, {7, 200}} {
		seen := make(map[int64]bool)
		for range 1000 {
			h, d := make(http.Header), over(1, 100*time.Second, 0)
			httplimit.Fields{Jitter: test.jitter}.Write(h, &d, nil)
			n, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
			if err != nil || n < 100 || n > test.most {
				t.Fatalf("jitter %v: got %d, %v, want 100 to %d", test.jitter, n, err, test.most)
			}
			seen[n] = true
		}
		// Of 1000 draws nobody sees fewer than 25 of 50 values.
		if enough := int64(len(seen)) > (test.most-100)/2; !enough {
			t.Errorf("jitter %v: only %d different waits", test.jitter, len(seen))
		}
	}
}

func TestDialectText(t *testing.T) {
	for _, d := range []httplimit.Dialect{httplimit.Draft10, httplimit.Draft03, httplimit.Delta, httplimit.Epoch, httplimit.None} {
		var read httplimit.Dialect
		if err := read.UnmarshalText([]byte(d.String())); err != nil || read != d {
			t.Errorf("%v: got %v, %v", d, read, err)
		}
	}
	var d httplimit.Dialect
	var invalid *weir.InvalidError
	if err := d.UnmarshalText([]byte("draft-7")); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "draft-10") {
		t.Errorf("got %v", err)
	}
	if got := httplimit.Dialect(99).String(); got != "unknown" {
		t.Errorf("got %q", got)
	}
}
