package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlimit/weir/policy"
)

// Report says what became of the events of a Replay. Requests is Admitted plus
// Denied.
type Report struct {
	Domain   string `json:"domain"`
	Requests int64  `json:"requests"`
	Admitted int64  `json:"admitted"`
	Denied   int64  `json:"denied"`
	// Unmatched counts the admitted requests that no rule matched.
	Unmatched int64 `json:"unmatched"`
	// Clamped counts the requests earlier than the newest before them, which
	// were decided at that one's time.
	Clamped int64 `json:"clamped"`
	// Evicted counts the states that a memory store forgot for want of room;
	// unless it is 0 too much was admitted.
	Evicted int64 `json:"evicted"`
	// First and Last are the times between which the events were decided;
	// zero, and left out of JSON, if there was none.
	First time.Time    `json:"first,omitzero"`
	Last  time.Time    `json:"last,omitzero"`
	Rules []RuleReport `json:"rules"`
}

// RuleReport says what one rule alone decided. Seen is Admitted plus Denied.
// A request that the rule admits, but another rule of its list denies, counts
// as Admitted here although it is charged to neither.
type RuleReport struct {
	Name string `json:"name"`
	// Limit is the rule's own limit as text, and empty if it denies. Overrides
	// is how many it has besides.
	Limit     string `json:"limit"`
	Overrides int    `json:"overrides"`
	// Shadow says that its denials denied no request.
	Shadow   bool  `json:"shadow"`
	Seen     int64 `json:"seen"`
	Admitted int64 `json:"admitted"`
	Denied   int64 `json:"denied"`
	// Keys counts the distinct keys seen. Limited holds those denied most, the
	// most denied first, at most MaxLimited.
	Keys    int          `json:"keys"`
	Limited []LimitedKey `json:"limited"`
	// Algorithms compares what each would have decided if the rule had been
	// alone, in the order of weir.Algorithm; empty if the rule only denies.
	Algorithms []Comparison `json:"algorithms"`
}

// LimitedKey is a key and how many of its requests were denied.
type LimitedKey struct {
	Key    string `json:"key"`
	Denied int64  `json:"denied"`
}

// MaxLimited bounds RuleReport.Limited.
const MaxLimited = 10

// tally counts what one rule decides.
type tally struct {
	rule    policy.Rule
	total   RuleReport
	denied  map[string]int64 // per key seen
	contest contest
}

func newTally(rule policy.Rule) *tally {
	t := &tally{rule: rule, denied: make(map[string]int64), contest: newContest()}
	t.total = RuleReport{Name: rule.Name, Overrides: len(rule.Overrides), Shadow: rule.Shadow}
	if !rule.Deny {
		t.total.Limit = rule.Limit.String()
	}
	return t
}

func (t *tally) count(key string, allowed bool) {
	t.total.Seen++
	if allowed {
		t.total.Admitted++
		t.denied[key] += 0
		return
	}
	t.total.Denied++
	t.denied[key]++
}

func (t *tally) report() RuleReport {
	r := t.total
	r.Keys = len(t.denied)
	r.Limited = t.limited()
	r.Algorithms = t.contest.comparisons(t.rule.Limit.Algorithm)
	return r
}

// limited returns the keys denied most; equals in the order of their keys.
func (t *tally) limited() []LimitedKey {
	keys := []LimitedKey{}
	for key, n := range t.denied {
		if n > 0 {
			keys = append(keys, LimitedKey{key, n})
		}
	}
	slices.SortFunc(keys, func(a, b LimitedKey) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Key, b.Key))
	})
	return slices.Clip(keys[:min(len(keys), MaxLimited)])
}
