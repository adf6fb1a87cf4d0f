package telemetry

import (
	"time"

	"github.com/weirlimit/weir/policy"
)

// State is how the service stands, as the admin API tells it. Those who serve it
// fill in what a Recorder is not told: Ready, the Kind, Status and Detail of
// the Store, and the Files of the Config.
type State struct {
	Version string    `json:"version"`
	Started Time      `json:"started"`
	Now     Time      `json:"now"`
	Ready   Readiness `json:"ready"`
	Store   Store     `json:"store"`
	Config  Config    `json:"config"`
	Totals  Totals    `json:"totals"`
	// Latency is of the last 10 s; zeros if nothing was decided.
	Latency Quantiles `json:"latency_ms"`
	// Rules are in the order of the config. Limits of no rule come last, once
	// there were any: with the domain if it is known.
	Rules []Rule `json:"rules"`
	// Hot are the keys that come most often, at most 50: the most denied first.
	Hot      []HotKey `json:"hot"`
	HotError string   `json:"hot_error"`
}

// Readiness is what /readyz says.
type Readiness struct {
	Ready    bool   `json:"ready"`
	Detail   string `json:"detail"`
	Store    string `json:"store"`
	Degraded int64  `json:"degraded_decisions"`
}

// Store is how the store does.
type Store struct {
	Kind   string `json:"kind"`   // memory or redis
	Status string `json:"status"` // ok or unavailable
	Detail string `json:"detail"` // in plain words
	// Latency is of the last 10 s; nil if no store was waited for.
	Latency  *Quantiles `json:"latency_ms"`
	InFlight int        `json:"in_flight"`
	Errors   uint64     `json:"errors"`
}

// Config is what is in force.
type Config struct {
	Files   []string `json:"files"`
	Loaded  *Time    `json:"loaded"`  // nil without a config
	Refused string   `json:"refused"` // why what is on disk is not in force; empty if it is
	Domains int      `json:"domains"`
	Rules   int      `json:"rules"`
}

// Totals are requests since the start, and per second over the last 10 s.
type Totals struct {
	Allowed       uint64  `json:"allowed"`
	Denied        uint64  `json:"denied"`
	Degraded      uint64  `json:"degraded"`
	Errors        uint64  `json:"errors"`
	AllowedPerSec float64 `json:"allowed_per_s"`
	DeniedPerSec  float64 `json:"denied_per_s"`
}

// Quantiles are milliseconds, each at most 5 % off.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// Rule is what a rule has said since the start, and per second over the last
// 10 s. A shadow counts as it would have decided.
type Rule struct {
	Domain        string  `json:"domain"`
	Rule          string  `json:"rule"`
	Limit         string  `json:"limit"` // such as 100/30m, or deny; empty for limits of no rule
	Shadow        bool    `json:"shadow"`
	Allowed       uint64  `json:"allowed"`
	Denied        uint64  `json:"denied"`
	AllowedPerSec float64 `json:"allowed_per_s"`
	DeniedPerSec  float64 `json:"denied_per_s"`
}

// HotKey is a key that came often in the last minutes. Its counts halve each
// minute, and may be too high by their errors.
type HotKey struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Key is as people read it, such as "user=alice"; "all requests" if the rule
	// does not partition; the key itself of a check; a hash if it is Redacted.
	Key          string            `json:"key"`
	Redacted     bool              `json:"redacted"`
	Allowed      int64             `json:"allowed"`
	Denied       int64             `json:"denied"`
	AllowedError int64             `json:"allowed_error"`
	DeniedError  int64             `json:"denied_error"`
	Attributes   map[string]string `json:"attributes"` // those of Key
}

// Time is written as RFC 3339 with milliseconds, in UTC.
type Time struct{ time.Time }

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) {
	return []byte(t.UTC().Format("2006-01-02T15:04:05.000Z07:00")), nil
}

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	text, err := t.MarshalText()
	return []byte(`"` + string(text) + `"`), err
}

const hotError = "counts are of the last minutes: they halve each minute, may be too high by at most *_error, and are estimates above some 20,000 keys a second"

// Snapshot returns how things stand now.
func (r *Recorder) Snapshot() State {
	now := time.Now()
	r.drain(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := State{
		Version: r.options.Version, Started: Time{r.started}, Now: Time{now}, Totals: r.totalsState(now), Config: r.configState(),
		Store: Store{Latency: r.quantiles(r.store, &r.latency[1])}, Rules: []Rule{}, Hot: r.hotKeys(now), HotError: hotError,
	}
	if q := r.quantiles(r.decision, &r.latency[0]); q != nil {
		s.Latency = *q
	}
	for class := range storeErrors {
		s.Store.Errors += r.errors[class].Load()
	}
	if r.options.InFlight != nil {
		s.Store.InFlight = r.options.InFlight()
	}
	r.table.Load().each(func(of *rule) { s.Rules = append(s.Rules, r.ruleState(of, now)) })
	return s
}

func (r *Recorder) totalsState(now time.Time) Totals {
	sums := r.totals()
	t := Totals{Allowed: sums.allowed, Denied: sums.denied, Degraded: r.degraded.Load()}
	t.AllowedPerSec, t.DeniedPerSec = r.rates(now, sums, &r.total)
	for _, d := range r.table.Load().list {
		for class := range errorClasses {
			t.Errors += d.requests.errors[class].Load()
		}
	}
	return t
}

func (r *Recorder) configState() Config {
	t := r.table.Load()
	c := Config{Files: []string{}, Domains: len(t.domains), Rules: len(t.rules)}
	if !r.config.loaded.IsZero() {
		c.Loaded = &Time{r.config.loaded}
	}
	if r.config.refused != nil {
		c.Refused = r.config.refused.Error()
	}
	return c
}

func (r *Recorder) ruleState(of *rule, now time.Time) Rule {
	sums := of.sums()
	s := Rule{Domain: of.domain, Rule: of.rule, Shadow: r.options.Shadow, Allowed: sums.allowed, Denied: sums.denied}
	s.AllowedPerSec, s.DeniedPerSec = r.rates(now, sums, &of.past)
	if of.config != nil {
		s.Limit, s.Shadow = limitText(of.config), r.options.Shadow || of.config.Shadow
	}
	return s
}

func limitText(r *policy.Rule) string {
	if r.Deny {
		return "deny"
	}
	return r.Limit.String()
}
