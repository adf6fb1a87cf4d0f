package httplimit

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// Dialect is how header fields tell a client of its limits.
type Dialect uint8

const (
	// Draft10 writes RateLimit-Policy and RateLimit, a list item for each limit,
	// as draft-ietf-httpapi-ratelimit-headers-10 has them: q and r are units, w
	// the window and t the wait until there is more, in seconds. A window below
	// a second has no w, and a limit that no wait helps has no t.
	Draft10 Dialect = iota
	// Draft03 writes X-RateLimit-Limit with all policies, X-RateLimit-Remaining
	// and X-RateLimit-Reset in seconds, as Envoy's DRAFT_VERSION_03 does.
	Draft03
	// Delta writes X-RateLimit-Limit, -Remaining and -Reset of the limit that
	// decided, the last in seconds from now, and left out where no wait helps.
	Delta
	// Epoch is Delta with X-RateLimit-Reset in seconds since 1970, as GitHub has it.
	Epoch
	// None writes no fields but Retry-After and Weir-Reason.
	None
)

var dialectNames = [...]string{"draft-10", "draft-03", "delta", "epoch", "none"}

// String returns the name used in configuration, such as "draft-10".
func (d Dialect) String() string {
	if int(d) < len(dialectNames) {
		return dialectNames[d]
	}
	return "unknown"
}

// UnmarshalText reads what String writes; anything else is a *weir.InvalidError.
func (d *Dialect) UnmarshalText(text []byte) error {
	for i, name := range dialectNames {
		if name == string(text) {
			*d = Dialect(i)
			return nil
		}
	}
	return &weir.InvalidError{Field: "headers", Value: string(text), Want: strings.Join(dialectNames[:], ", ")}
}

// Row is one of the limits behind a verdict.
type Row struct {
	weir.Decision

	// Name is the policy's, of printable ASCII; other bytes become "?". If it is
	// empty, "default" stands for it.
	Name string
	// Window is the limit's.
	Window time.Duration
}

func (r *Row) name() string { return cmp.Or(r.Name, "default") }

// Fields writes header fields.
type Fields struct {
	// Dialect is how limits are told.
	Dialect Dialect
	// Jitter is how much longer at most Retry-After asks to wait than needed, in
	// parts of the wait from 0 to 1, drawn at random, so that the clients of a
	// limit do not come back together.
	Jitter float64
	// Now is the clock of Epoch; nil means time.Now.
	Now func() time.Time
}

// Write sets the fields for a verdict and the limits behind it, those in shadow
// left out. Retry-After is there when a wait helps: in whole seconds, rounded
// up, never less than one and never less than what the limits say. Weir-Reason
// is there if the answer is degraded.
func (f Fields) Write(h http.Header, verdict *weir.Decision, rows []Row) {
	if wait := verdict.RetryAfter; !verdict.Allowed && wait > 0 {
		wait += time.Duration(rand.Float64() * min(max(f.Jitter, 0), 1) * float64(wait))
		h.Set("Retry-After", strconv.FormatInt(seconds(wait), 10))
	}
	if verdict.Reason >= weir.StoreAllowed {
		h.Set("Weir-Reason", verdict.Reason.String())
	}
	switch {
	case len(rows) == 0 || f.Dialect == None:
	case f.Dialect == Draft10:
		draft10(h, verdict, rows)
	default:
		f.classic(h, verdict, rows)
	}
}

// until returns how long it takes until there is more, or enough for what was
// denied, as far as that is known and waiting for it helps: not where another
// limit denied, nor for what never passes.
func until(verdict, d *weir.Decision) (wait time.Duration, ok bool) {
	switch {
	case !known(d):
		return 0, false
	case verdict.Allowed:
		return d.ResetAfter, true
	}
	return d.RetryAfter, !d.Allowed && 0 < d.RetryAfter && d.RetryAfter <= verdict.RetryAfter
}

// known reports whether anybody has looked at what remains.
func known(d *weir.Decision) bool { return d.Reason != weir.StoreAllowed }

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// draft10 writes two lists of RFC 9651 items. Their integers have at most 15
// digits, far above a limit's.
func draft10(h http.Header, verdict *weir.Decision, rows []Row) {
	var policies, limits []string
	for i := range rows {
		r := &rows[i]
		name := quote(r.name())
		policies = append(policies, name+param(";q=", r.Limit)+window(r.Window))
		if !known(&r.Decision) {
			continue
		}
		limit := name + param(";r=", r.Remaining)
		if wait, ok := until(verdict, &r.Decision); ok {
			limit += param(";t=", seconds(wait))
		}
		limits = append(limits, limit)
	}
	h.Set("Ratelimit-Policy", strings.Join(policies, ", "))
	if len(limits) > 0 {
		h.Set("Ratelimit", strings.Join(limits, ", "))
	}
}

// classic writes the three fields that tell of one limit.
func (f Fields) classic(h http.Header, verdict *weir.Decision, rows []Row) {
	limits := []string{strconv.FormatInt(verdict.Limit, 10)}
	if f.Dialect == Draft03 {
		for i := range rows {
			r := &rows[i]
			limits = append(limits, param("", r.Limit)+window(r.Window)+";name="+quote(r.name()))
		}
	}
	h.Set("X-Ratelimit-Limit", strings.Join(limits, ", "))
	if known(verdict) {
		h.Set("X-Ratelimit-Remaining", strconv.FormatInt(verdict.Remaining, 10))
	}
	if wait, ok := until(verdict, verdict); ok {
		reset := seconds(wait)
		if f.Dialect == Epoch {
			reset = f.epoch(wait)
		}
		h.Set("X-Ratelimit-Reset", strconv.FormatInt(reset, 10))
	}
}

// epoch rounds up, too.
func (f Fields) epoch(wait time.Duration) int64 {
	now := time.Now
	if f.Now != nil {
		now = f.Now
	}
	return now().Add(wait + time.Second - 1).Unix()
}

func param(name string, n int64) string { return name + strconv.FormatInt(n, 10) }

// window returns the parameter w, which cannot tell of less than a second.
func window(d time.Duration) string {
	if d < time.Second {
		return ""
	}
	return param(";w=", seconds(d))
}

// quote returns a String of RFC 9651.
func quote(name string) string {
	b := make([]byte, 0, len(name)+2)
	b = append(b, '"')
	for _, c := range []byte(name) {
		switch {
		case c < ' ' || c > '~':
			c = '?'
		case c == '"' || c == '\\':
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(append(b, '"'))
}
