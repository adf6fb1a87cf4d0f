package properties

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// TestHeadersParse holds that a parser of RFC 9651 reads from the fields of the
// draft what was written, whatever a policy is called.
func TestHeadersParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(row), 1, 5).Draw(t, "rows")
		verdict := verdictOf(rows)
		h := make(http.Header)
		httplimit.Fields{Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter")}.Write(h, &verdict, rows)

		policies, limits := parse(t, h, "RateLimit-Policy"), parse(t, h, "RateLimit")
		if len(policies) != len(rows) || len(limits) != len(rows) {
			t.Fatalf("%d policies and %d limits of %d rows", len(policies), len(limits), len(rows))
		}
		retry, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
		if denied := !verdict.Allowed && verdict.RetryAfter > 0; denied != (err == nil && retry >= 1) {
			t.Errorf("Retry-After %q of %+v", h.Get("Retry-After"), verdict)
		}
		for i, r := range rows {
			want := map[string]int64{"q": r.Limit}
			if r.Window >= time.Second {
				want["w"] = ceil(r.Window)
			}
			same(t, policies[i], r.Name, want)

			want = map[string]int64{"r": r.Remaining}
			switch {
			case verdict.Allowed:
				want["t"] = ceil(r.ResetAfter)
			case !r.Allowed && r.RetryAfter > 0 && retry > 0:
				want["t"] = ceil(r.RetryAfter)
			}
			same(t, limits[i], r.Name, want)
			if !verdict.Allowed && want["t"] > retry {
				t.Errorf("Retry-After is %d, and t is %d", retry, want["t"])
			}
		}
	})
}

func row(t *rapid.T) httplimit.Row {
	wait := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(1, int64(weir.MaxWindow/time.Microsecond)).Draw(t, "us")) * time.Microsecond
	})
	r := httplimit.Row{Name: rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]*`)).Draw(t, "name"), Window: wait.Draw(t, "window")}
	r.Limit = rapid.Int64Range(0, weir.MaxUnits).Draw(t, "limit")
	r.ResetAfter = wait.Draw(t, "reset")
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		r.Allowed, r.Remaining = true, rapid.Int64Range(0, r.Limit).Draw(t, "remaining")
	case 1:
		r.Reason, r.RetryAfter = weir.OverLimit, wait.Draw(t, "retry")
	default:
		r.Reason = weir.Never
	}
	return r
}

// verdictOf is the verdict on rows that all enforce.
func verdictOf(rows []httplimit.Row) weir.Decision {
	l := weir.List{Requests: make([]weir.Request, len(rows))}
	for _, r := range rows {
		l.Rows = append(l.Rows, r.Decision)
	}
	return l.Decide()
}

func parse(t *rapid.T, h http.Header, name string) httpsfv.List {
	list, err := httpsfv.UnmarshalList(h.Values(name))
	if err != nil {
		t.Fatalf("%s %q: %v", name, h.Values(name), err)
	}
	return list
}

// same checks an item and its parameters, and that there are no others.
func same(t *rapid.T, member httpsfv.Member, name string, params map[string]int64) {
	item, ok := member.(httpsfv.Item)
	if !ok || item.Value != printable(name) || len(item.Params.Names()) != len(params) {
		t.Fatalf("got %+v, want %q and %v", member, name, params)
	}
	for key, want := range params {
		if got, _ := item.Params.Get(key); got != want {
			t.Errorf("%s is %v, want %d", key, got, want)
		}
	}
}

// printable is what stands for a name.
func printable(name string) string {
	if name == "" {
		return "default"
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' {
			c = '?'
		}
		b.WriteByte(c)
	}
	return b.String()
}

func ceil(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
