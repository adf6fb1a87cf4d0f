package httplimit

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// asked returns for how long a response asks its client not to call, 0 if it
// does not: by Retry-After if the status says that this is about limits, else by
// the longest of the fields that tell of nothing remaining.
func asked(r *http.Response, now time.Time) time.Duration {
	// What the server says of its clock is by its clock, as far as it is known.
	if date, err := http.ParseTime(r.Header.Get("Date")); err == nil {
		now = date
	}
	switch r.StatusCode {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if wait, ok := pauseOf(r.Header.Get("Retry-After"), now); ok {
			return wait
		}
	}
	return max(structured(r.Header), classic(r.Header, "Ratelimit-", now), classic(r.Header, "X-Ratelimit-", now))
}

// classic reads the fields -Remaining and -Reset.
func classic(h http.Header, prefix string, now time.Time) (wait time.Duration) {
	if remaining, err := strconv.ParseFloat(h.Get(prefix+"Remaining"), 64); err == nil && remaining <= 0 {
		wait, _ = pauseOf(h.Get(prefix+"Reset"), now)
	}
	return wait
}

// Seconds from firstEpoch on are since 1970, the year 2001 or later, and from
// firstMillis on they are milliseconds. Up to there they are from now.
const (
	firstEpoch  = 1e9
	firstMillis = 1e11
	absurd      = 1e14
)

// pauseOf reads a wait: seconds from now, seconds or milliseconds since 1970, a
// text such as 1m30s, or a date of HTTP.
func pauseOf(text string, now time.Time) (wait time.Duration, ok bool) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return pauseOfNumber(n, now)
	}
	if wait, err := time.ParseDuration(text); err == nil {
		return wait, wait >= 0
	}
	date, err := http.ParseTime(text)
	return max(0, date.Sub(now)), err == nil
}

func pauseOfNumber(n float64, now time.Time) (wait time.Duration, ok bool) {
	since1970 := float64(now.UnixMilli()) / 1000
	switch {
	case math.IsNaN(n) || n < 0 || n >= absurd:
		return 0, false
	case n >= firstMillis:
		n = n/1000 - since1970
	case n >= firstEpoch:
		n -= since1970
	}
	return span(n), true
}

// span returns n seconds, in whole microseconds, rounded up, and at most 31 years.
func span(n float64) time.Duration {
	return time.Duration(math.Ceil(min(max(n, 0), firstEpoch)*1e6)) * time.Microsecond
}

// structured reads RateLimit as draft-ietf-httpapi-ratelimit-headers-10 has it:
// the longest t of what has an r of 0. Where that is left out, there is more
// within the policy's window at the latest.
func structured(h http.Header) (wait time.Duration) {
	windows := make(map[string]int64)
	for _, policy := range items(h.Values("Ratelimit-Policy")) {
		windows[policy.name], _ = policy.integer("w")
	}
	for _, limit := range items(h.Values("Ratelimit")) {
		if r, ok := limit.integer("r"); !ok || r != 0 {
			continue
		}
		t, ok := limit.integer("t")
		if !ok {
			t = windows[limit.name]
		}
		wait = max(wait, span(float64(t)))
	}
	return wait
}

// The grammar of RFC 9651, but that a Display String is not asked to be UTF-8.
const (
	bareItem = `(?:-?\d{1,12}\.\d{1,3}|-?\d{1,15}|"(?:[ !#-\[\]-~]|\\["\\])*"|[A-Za-z*][-!#$%&'*+.^` + "`" + `|~\w:/]*` +
		`|:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?:|\?[01]|@-?\d{1,15}|%"(?:[ !#$&-~]|%[0-9a-f]{2})*")`
	parameter  = `; *([a-z*][-a-z0-9_.*]*)(?:=(` + bareItem + `))?`
	parameters = `((?:` + parameter + `)*)`
	item       = `(` + bareItem + `)` + parameters
	innerList  = `\( *(?:` + item + `(?: +` + item + `)* *)?\)` + parameters
	member     = `(?:` + item + `|` + innerList + `)`
	fieldList  = `^ *(?:` + member + `(?:[ \t]*,[ \t]*` + member + `)*)?[ \t]*$`

	maxField = 8 << 10 // bytes that are read
)

var (
	listForm      = regexp.MustCompile(fieldList)
	memberForm    = regexp.MustCompile(member)
	parameterForm = regexp.MustCompile(parameter)
)

// listed is an item of a list: its value as it is written, and its parameters.
type listed struct {
	name   string
	params [][]string
}

// items returns the items of a list; none, as the draft has it, if any of it is
// not well-formed. Inner lists are no items.
func items(lines []string) (all []listed) {
	text := strings.Join(lines, ", ")
	if text == "" || len(text) > maxField || !listForm.MatchString(text) {
		return nil
	}
	for _, m := range memberForm.FindAllStringSubmatch(text, -1) {
		if name := m[1]; name != "" {
			all = append(all, listed{name, parameterForm.FindAllStringSubmatch(m[2], -1)})
		}
	}
	return all
}

// integer returns a parameter; the last one of a name counts.
func (l listed) integer(name string) (n int64, ok bool) {
	for _, p := range l.params {
		if p[1] == name {
			value, err := strconv.ParseInt(p[2], 10, 64)
			n, ok = value, err == nil
		}
	}
	return n, ok
}
