package weir

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

// Bounds of a valid Limit and Request.
const (
	// MaxUnits is the largest Max, Burst and Cost.
	MaxUnits = 1 << 31
	// MaxWindow is the longest Window.
	MaxWindow = 366 * 24 * time.Hour
	// maxLog is the largest Max of a sliding-log, and defaultLog the largest
	// for which it is the default.
	maxLog, defaultLog = 100_000, 10_000
	// maxBuckets and defaultBuckets bound and fill in Limit.Buckets.
	maxBuckets, defaultBuckets = 10_000, 100
)

// Algorithm says how a Limit is kept. The zero value chooses by the limit:
// TokenBucket if it has a Burst, SlidingBuckets if it has Buckets, else
// SlidingLog for Max up to 10,000 and SlidingBuckets above.
type Algorithm uint8

// The algorithms and what each promises; docs/algorithms.md helps to choose.
const (
	// SlidingLog is exact: the admitted cost in any interval of length Window
	// is at most Max, and nothing is denied that this would allow. It
	// remembers every stamp within the window; Max is at most 100,000.
	SlidingLog = Algorithm(algo.SlidingLog)
	// SlidingBuckets never admits more than Max in any Window and is too
	// strict by at most one of Buckets parts. Its memory does not depend on Max.
	SlidingBuckets = Algorithm(algo.SlidingBuckets)
	// SlidingCounter estimates from two counters, the previous window weighted
	// by its overlap; it can err either way.
	SlidingCounter = Algorithm(algo.SlidingCounter)
	// FixedWindow admits Max per window, windows starting at first use (or by
	// the wall clock, see Limit.Epoch): up to 2*Max across a boundary.
	FixedWindow = Algorithm(algo.FixedWindow)
	// TokenBucket admits at most Burst + Max/Window*T in any interval T.
	TokenBucket = Algorithm(algo.TokenBucket)
)

var algorithmNames = [...]string{"", "sliding-log", "sliding-buckets", "sliding-counter", "fixed-window", "token-bucket"}

// algorithmForms is what an error about an algorithm's name shows.
const algorithmForms = "one of sliding-log, sliding-buckets, sliding-counter, fixed-window, token-bucket"

// String returns the name used in configuration, such as "sliding-log".
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return "algorithm(" + strconv.Itoa(int(a)) + ")"
}

// ParseAlgorithm reads a name as String writes it; "" is the zero value. The
// error is an *InvalidError that lists the names.
func ParseAlgorithm(name string) (Algorithm, error) {
	for a, n := range algorithmNames {
		if n == name {
			return Algorithm(a), nil
		}
	}
	return 0, invalid("algorithm", name, algorithmForms)
}

// Limit is a value: Max units per Window, kept by an Algorithm. The zero
// values of Algorithm, Burst and Buckets mean their defaults.
type Limit struct {
	// Max is the number of units per Window, from 1 to MaxUnits.
	Max int64
	// Window is from 1 microsecond to MaxWindow, in whole microseconds.
	Window time.Duration
	// Burst is the capacity of a token bucket, from 1 to MaxUnits; 0 means Max.
	Burst int64
	// Buckets is the number of parts of a sliding-buckets window, from 1 to
	// 10,000; 0 means 100.
	Buckets int
	// Algorithm keeps the limit; zero chooses by the other fields.
	Algorithm Algorithm
	// Epoch makes fixed windows start at multiples of Window since 1970
	// instead of at first use.
	Epoch bool
}

// PerSecond is a Limit of n units per second.
func PerSecond(n int64) Limit { return Per(n, time.Second) }

// PerMinute is a Limit of n units per minute.
func PerMinute(n int64) Limit { return Per(n, time.Minute) }

// PerHour is a Limit of n units per hour.
func PerHour(n int64) Limit { return Per(n, time.Hour) }

// PerDay is a Limit of n units per 24 hours.
func PerDay(n int64) Limit { return Per(n, 24*time.Hour) }

// Per is a Limit of n units per window. It does not validate; see Validate.
func Per(n int64, window time.Duration) Limit { return Limit{Max: n, Window: window} }

// Validate returns nil or an *InvalidError naming the field that is out of
// range, of another algorithm, or contradicts another field.
func (l Limit) Validate() error {
	return l.normalize()
}

// Normal returns the limit with every default filled in, as a Store receives
// it and as equal limits compare equal, or the error of Validate.
func (l Limit) Normal() (Limit, error) {
	err := l.normalize()
	return l, err
}

// normalize fills in defaults where l is valid.
func (l *Limit) normalize() error {
	if err := l.inRange(); err != nil {
		return err
	}
	a := l.Algorithm
	if a == 0 {
		a = l.implied()
	}
	if err := l.suits(a); err != nil {
		return err
	}
	l.Algorithm = a
	switch {
	case a == TokenBucket && l.Burst == 0:
		l.Burst = l.Max
	case a == SlidingBuckets && l.Buckets == 0:
		l.Buckets = defaultBuckets
	}
	return nil
}

// inRange checks each field by itself.
func (l *Limit) inRange() error {
	switch {
	case l.Max < 1 || l.Max > MaxUnits:
		return invalid("max", strconv.FormatInt(l.Max, 10), "1 to 2147483648 units, such as 5 in 5/minute; to deny everything use a rule's deny")
	case l.Window < time.Microsecond || l.Window > MaxWindow || l.Window%time.Microsecond != 0:
		return invalid("window", l.Window.String(), "a whole number of microseconds from 1us to 366d, such as 30m")
	case l.Burst < 0 || l.Burst > MaxUnits:
		return invalid("burst", strconv.FormatInt(l.Burst, 10), "1 to 2147483648 units, such as burst=20")
	case l.Buckets < 0 || l.Buckets > maxBuckets:
		return invalid("buckets", strconv.Itoa(l.Buckets), "1 to 10000 parts, such as buckets=60")
	case l.Algorithm > TokenBucket:
		return invalid("algorithm", l.Algorithm.String(), algorithmForms)
	}
	return nil
}

// suits checks that the fields are those of an algorithm.
func (l *Limit) suits(a Algorithm) error {
	switch {
	case l.Burst > 0 && a != TokenBucket:
		return invalid("burst", strconv.FormatInt(l.Burst, 10), "no burst with "+a.String()+"; only token-bucket has one, as in 10/s burst=20")
	case l.Buckets > 0 && a != SlidingBuckets:
		return invalid("buckets", strconv.Itoa(l.Buckets), "no buckets with "+a.String()+"; only sliding-buckets has them, as in 50000/h buckets=60")
	case l.Epoch && a != FixedWindow:
		return invalid("epoch", "true", "no epoch with "+a.String()+"; only fixed-window has one, as in 5/minute epoch")
	case a == SlidingLog && l.Max > maxLog:
		return invalid("max", strconv.FormatInt(l.Max, 10), "at most 100000 with sliding-log; above that use sliding-buckets")
	}
	return nil
}

// implied is the algorithm of a limit that names none.
func (l *Limit) implied() Algorithm {
	switch {
	case l.Burst > 0:
		return TokenBucket
	case l.Epoch:
		return FixedWindow
	case l.Buckets > 0 || l.Max > defaultLog:
		return SlidingBuckets
	}
	return SlidingLog
}

// algo converts a normal limit.
func (l *Limit) algo() algo.Limit {
	return algo.Make(algo.Kind(l.Algorithm), l.Max, l.Burst, l.Window.Microseconds(), int64(l.Buckets), l.Epoch)
}

// Capacity is the most that can pass at once: Burst for a token bucket, else Max.
func (l Limit) Capacity() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Max
}

// String returns the one canonical text of the limit, such as "5/1m",
// "10/1s burst=20" or "5/1m fixed-window", which ParseLimit reads back as an
// equal limit. An algorithm is written only where the text does not imply it.
func (l Limit) String() string {
	if n, err := l.Normal(); err == nil {
		l = n
	}
	text := strconv.FormatInt(l.Max, 10) + "/" + formatWindow(l.Window)
	implied := Limit{Max: l.Max}
	if l.Algorithm == TokenBucket {
		text += " burst=" + strconv.FormatInt(l.Burst, 10)
		implied.Burst = l.Burst
	}
	if l.Algorithm == SlidingBuckets && (l.Buckets != defaultBuckets || implied.implied() != SlidingBuckets) {
		text += " buckets=" + strconv.Itoa(l.Buckets)
		implied.Buckets = l.Buckets
	}
	if l.Epoch {
		text += " epoch"
		implied.Epoch = true
	}
	if l.Algorithm != implied.implied() {
		text += " " + l.Algorithm.String()
	}
	return text
}

// window units, longest first; formatWindow uses the first of each length.
var units = []struct {
	name   string
	length time.Duration
}{
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
	{"us", time.Microsecond},
	{"w", 7 * 24 * time.Hour}, {"week", 7 * 24 * time.Hour}, {"weeks", 7 * 24 * time.Hour},
	{"day", 24 * time.Hour}, {"days", 24 * time.Hour},
	{"hour", time.Hour}, {"hours", time.Hour},
	{"min", time.Minute}, {"minute", time.Minute}, {"minutes", time.Minute},
	{"sec", time.Second}, {"second", time.Second}, {"seconds", time.Second},
	{"µs", time.Microsecond}, {"μs", time.Microsecond},
}

func formatWindow(d time.Duration) string {
	if d <= 0 || d%time.Microsecond != 0 {
		return d.String()
	}
	for _, u := range units[:6] {
		if d%u.length == 0 {
			return strconv.FormatInt(int64(d/u.length), 10) + u.name
		}
	}
	return d.String()
}

// limitForms is what an error about a limit's text shows.
const limitForms = `a limit such as "100/30m", "5/minute", "10/s burst=20" or "50000/h buckets=60"`

// ParseLimit reads a limit: N/DURATION or N/UNIT (second s, minute min m, hour
// h, day d, week w), then optionally burst=N (token bucket), buckets=N
// (sliding buckets), epoch (fixed windows by the wall clock) or the name of an
// algorithm. "10/s burst 20" is read too. The limit it returns is valid; the
// error is an *InvalidError.
func ParseLimit(text string) (Limit, error) {
	bad := func(want string) (Limit, error) { return Limit{}, invalid("limit", text, want) }
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return bad(limitForms)
	}
	count, window, ok := strings.Cut(fields[0], "/")
	if !ok {
		return bad(limitForms)
	}
	var l Limit
	var err error
	if l.Max, err = parseCount(count); err != nil {
		return bad("a whole number from 1 to 2147483648 before the slash, as in 100/30m")
	}
	if l.Window, err = parseWindow(window); err != nil {
		return bad("a duration or unit after the slash, as in 100/30m, 5/2s, 1/500us or 5/minute")
	}
	for i := 1; i < len(fields); i++ {
		name, value, hasValue := strings.Cut(fields[i], "=")
		if !hasValue && (name == "burst" || name == "buckets") && i+1 < len(fields) {
			i++
			value = fields[i]
		}
		switch {
		case name == "burst" && l.Burst == 0:
			if l.Burst, err = parseCount(value); err != nil || l.Burst == 0 {
				return bad("a whole number from 1 to 2147483648 after burst=, as in 10/s burst=20")
			}
		case name == "buckets" && l.Buckets == 0:
			n, err := parseCount(value)
			if err != nil || n == 0 || n > maxBuckets {
				return bad("a whole number from 1 to 10000 after buckets=, as in 50000/h buckets=60")
			}
			l.Buckets = int(n)
		case fields[i] == "epoch" && !l.Epoch:
			l.Epoch = true
		default:
			a, err := ParseAlgorithm(fields[i])
			if err != nil || l.Algorithm != 0 {
				return bad(limitForms + fmt.Sprintf(" (%q is not a part of one)", clip(fields[i])))
			}
			l.Algorithm = a
		}
	}
	var e *InvalidError
	if errors.As(l.Validate(), &e) {
		return bad(e.Want)
	}
	return l, nil
}

// parseCount reads digits only, so that "+5", "5_0" and "0x5" are no counts.
func parseCount(s string) (int64, error) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.ParseInt(s, 10, 64)
}

// parseWindow reads a unit, or a sum of numbers with units such as 1h30m or 1.5s.
func parseWindow(s string) (time.Duration, error) {
	if d, ok := unitLength(s); ok {
		return d, nil
	}
	var total time.Duration
	for s != "" {
		n := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if n <= 0 {
			return 0, strconv.ErrSyntax
		}
		m := n + strings.IndexFunc(s[n:]+"0", func(r rune) bool { return r >= '0' && r <= '9' || r == '.' })
		unit, ok := unitLength(s[n:m])
		if !ok {
			return 0, strconv.ErrSyntax
		}
		d, err := timesUnit(s[:n], unit)
		if err != nil || d > math.MaxInt64-total {
			return 0, strconv.ErrRange
		}
		total += d
		s = s[m:]
	}
	return total, nil
}

func unitLength(name string) (time.Duration, bool) {
	for _, u := range units {
		if u.name == name {
			return u.length, true
		}
	}
	return 0, false
}

// timesUnit multiplies a decimal number by a unit, exactly.
func timesUnit(number string, unit time.Duration) (time.Duration, error) {
	whole, frac, dotted := strings.Cut(number, ".")
	if dotted && (whole == "" || frac == "") {
		return 0, strconv.ErrSyntax
	}
	n, err := parseCount(whole)
	if err != nil || n > int64(math.MaxInt64/unit) {
		return 0, strconv.ErrRange
	}
	d := time.Duration(n) * unit
	for _, c := range []byte(frac) {
		if c < '0' || c > '9' || unit%10 != 0 {
			return 0, strconv.ErrSyntax
		}
		unit /= 10
		d += time.Duration(c-'0') * unit
	}
	if d < 0 {
		return 0, strconv.ErrRange
	}
	return d, nil
}
