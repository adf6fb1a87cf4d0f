package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// liveState is what is read of GET /api/state.
type liveState struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"`
	Ready   struct {
		Ready    bool   `json:"ready"`
		Detail   string `json:"detail"`
		Degraded int64  `json:"degraded_decisions"`
	} `json:"ready"`
	Store struct {
		Kind    string     `json:"kind"`
		Status  string     `json:"status"`
		Detail  string     `json:"detail"`
		Latency *quantiles `json:"latency_ms"`
		Errors  int64      `json:"errors"`
	} `json:"store"`
	Config struct {
		Refused string `json:"refused"`
	} `json:"config"`
	Totals struct {
		Allowed       int64   `json:"allowed"`
		Denied        int64   `json:"denied"`
		Errors        int64   `json:"errors"`
		AllowedPerSec float64 `json:"allowed_per_s"`
		DeniedPerSec  float64 `json:"denied_per_s"`
	} `json:"totals"`
	Latency *quantiles `json:"latency_ms"`
	Rules   []liveRule `json:"rules"`
	Hot     []hotKey   `json:"hot"`
}

// quantiles are in milliseconds.
type quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// String reads p50 0.1 ms, p99 2 ms.
func (q quantiles) String() string {
	return "p50 " + short(q.P50) + " ms, p99 " + short(q.P99) + " ms"
}

type liveRule struct {
	Domain        string  `json:"domain"`
	Rule          string  `json:"rule"`
	Limit         string  `json:"limit"`
	Shadow        bool    `json:"shadow"`
	Allowed       int64   `json:"allowed"`
	Denied        int64   `json:"denied"`
	AllowedPerSec float64 `json:"allowed_per_s"`
	DeniedPerSec  float64 `json:"denied_per_s"`
}

func (r *liveRule) name() string { return ruleName(r.Domain, r.Rule) }

type hotKey struct {
	Domain     string            `json:"domain"`
	Rule       string            `json:"rule"`
	Key        string            `json:"key"`
	Redacted   bool              `json:"redacted"`
	Allowed    float64           `json:"allowed"`
	Denied     float64           `json:"denied"`
	Attributes map[string]string `json:"attributes"`
}

// keyID tells hot keys apart.
type keyID struct{ domain, rule, key string }

func (k *hotKey) id() keyID    { return keyID{k.Domain, k.Rule, k.Key} }
func (k *hotKey) name() string { return ruleName(k.Domain, k.Rule) }

// text is the key as it can be shown. A rule without `by` has one key for all.
func (k *hotKey) text() string {
	if k.Key == "" {
		return "(all)"
	}
	return printable(k.Key)
}

func ruleName(domain, rule string) string {
	if rule == "" {
		return "(no rule)"
	}
	return domain + "/" + rule
}

// byName are the rules by their names.
func (s *liveState) byName() map[string]*liveRule {
	rules := make(map[string]*liveRule, len(s.Rules))
	for i := range s.Rules {
		rules[s.Rules[i].name()] = &s.Rules[i]
	}
	return rules
}

// shown is the rule's name, and whether it has a say.
func (r *liveRule) shown() string {
	if r.Shadow {
		return printable(r.name() + " (shadow)")
	}
	return printable(r.name())
}

// order is how keys are sorted: most first, or by their names.
type order int

const (
	byDenied order = iota
	byAllowed
	byKey
	orders // how many there are
)

// String is what the footer says of it.
func (o order) String() string { return [...]string{"denied", "allowed", "key"}[o] }

// hot returns the keys that contain filter, or whose rule does, in order.
func (s *liveState) hot(filter string, o order) []hotKey {
	filter = strings.ToLower(filter)
	var keys []hotKey
	for _, k := range s.Hot {
		if strings.Contains(strings.ToLower(k.Key+"\x00"+k.name()), filter) {
			keys = append(keys, k)
		}
	}
	slices.SortStableFunc(keys, func(a, b hotKey) int {
		byName := cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.name(), b.name()))
		switch o {
		case byKey:
			return byName
		case byAllowed:
			return cmp.Or(cmp.Compare(b.Allowed, a.Allowed), cmp.Compare(b.Denied, a.Denied), byName)
		}
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Allowed, a.Allowed), byName)
	})
	return keys
}

// busiest returns the rules, those that deny most first.
func (s *liveState) busiest() []liveRule {
	return slices.SortedStableFunc(slices.Values(s.Rules), func(a, b liveRule) int {
		return cmp.Or(cmp.Compare(b.DeniedPerSec, a.DeniedPerSec), cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.AllowedPerSec, a.AllowedPerSec))
	})
}

// storeHealth says in words how the store is.
func (s *liveState) storeHealth() string {
	text := "store: " + s.Store.Kind + ", " + s.Store.Status
	if s.Store.Detail != "" && s.Store.Detail != s.Store.Status {
		text += ": " + s.Store.Detail
	}
	if s.Store.Latency != nil && s.storeOK() {
		text += " (" + s.Store.Latency.String() + ")"
	}
	if s.Store.Errors > 0 {
		text += "; errors: " + count(s.Store.Errors)
	}
	if s.Ready.Degraded > 0 {
		text += "; decided without it: " + count(s.Ready.Degraded)
	}
	return text
}

func (s *liveState) storeOK() bool { return s.Store.Status == "ok" }

// short writes a number with three digits, such as 12.5 or 1.25M.
func short(n float64) string {
	switch {
	case n >= 999.5e6:
		return strconv.FormatFloat(n/1e9, 'g', 3, 64) + "G"
	case n >= 999.5e3:
		return strconv.FormatFloat(n/1e6, 'g', 3, 64) + "M"
	case n >= 9999.5:
		return strconv.FormatFloat(n/1e3, 'g', 3, 64) + "k"
	case n >= 100:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case n < 0.001:
		return "0"
	}
	return strconv.FormatFloat(n, 'g', 3, 64)
}

func count(n int64) string { return short(float64(n)) }

// lasting writes how long something takes: 1.2s, 3m20s, 4h, 9d.
func lasting(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	case d >= 10*time.Second:
		return d.Truncate(time.Second).String()
	case d >= time.Second:
		return d.Truncate(100 * time.Millisecond).String()
	}
	return d.Truncate(time.Millisecond).String()
}
