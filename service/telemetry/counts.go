package telemetry

import (
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/decide"
	"github.com/weirlimit/weir/service/hotkeys"
)

// result is what became of a rule's say, or of a request.
type result uint8

const (
	allowed result = iota
	denied
	shadowAllowed
	shadowDenied
	results
)

var resultNames = [...]string{"allowed", "denied", "shadow_allowed", "shadow_denied"}

func (r result) String() string { return resultNames[r] }

func resultOf(ok, shadow bool) (r result) {
	if !ok {
		r = denied
	}
	if shadow {
		r += shadowAllowed
	}
	return r
}

// reasons are those of weir.Reason.
const reasons = weir.Leased + 1

// counts has a counter for each result and reason.
type counts [results][reasons]atomic.Uint64

func (c *counts) add(r result, reason weir.Reason) { c[r][min(reason, reasons-1)].Add(1) }

// each calls see with what has been counted, and with what every rule will count.
func (c *counts) each(see func(r result, reason weir.Reason, n uint64)) {
	for r := range results {
		for reason := range reasons {
			n := c[r][reason].Load()
			if n > 0 || r == allowed && reason == weir.OK || r == denied && reason == weir.OverLimit {
				see(r, reason, n)
			}
		}
	}
}

// sums returns what was allowed and denied. A shadow counts as it would have decided.
func (c *counts) sums() (s pair) {
	c.each(func(r result, _ weir.Reason, n uint64) {
		if r == allowed || r == shadowAllowed {
			s.allowed += n
		} else {
			s.denied += n
		}
	})
	return s
}

// pair is how many were allowed and denied.
type pair struct{ allowed, denied uint64 }

func (p pair) plus(q pair) pair { return pair{p.allowed + q.allowed, p.denied + q.denied} }

// tally is what is counted of a rule, or of all limits that are of none. It
// stays when the config is loaded again.
type tally struct {
	domain, rule string
	counts

	// Guarded by Recorder.mu.
	past history
	hot  [2]*hotkeys.Sketch // allowed and denied; nil before the first
}

// rule is a rule of the config in force.
type rule struct {
	*tally

	config *policy.Rule // nil for limits of no rule
	values *values      // nil unless the config asks for them
}

// requests is what is counted of the requests of a domain.
type requests struct {
	counts
	errors [errorClasses]atomic.Uint64
}

// domain is what is counted of a domain, or of all that is of none.
type domain struct {
	name     string
	requests *requests
	rules    map[string]*rule
	none     *rule // of limits that are not in the config
}

func newDomain(name string) *domain {
	return &domain{name: name, requests: new(requests), rules: make(map[string]*rule), none: &rule{tally: &tally{domain: name}}}
}

func (d *domain) rule(name string) *rule {
	if r := d.rules[name]; r != nil {
		return r
	}
	return d.none
}

// table has everything that is counted by name. It is not changed once it is
// in use, but for its counters, so names come from the config alone.
type table struct {
	domains map[string]*domain
	none    *domain
	list    []*domain // all of them, in order, none last
	rules   []*rule   // of the config, in order
}

func emptyTable() *table {
	t := &table{none: newDomain("")}
	t.list = append(t.list, t.none)
	return t
}

func (t *table) domain(q *decide.Query) *domain {
	if q.Checks == nil {
		if d := t.domains[q.Domain]; d != nil {
			return d
		}
	}
	return t.none
}

// each calls see with all rules, and with what counts for limits of no rule if it
// has counted anything.
func (t *table) each(see func(*rule)) {
	for _, r := range t.rules {
		see(r)
	}
	for _, d := range t.list {
		if d.none.sums() != (pair{}) {
			see(d.none)
		}
	}
}

// newTable returns a table for a policy. What old has counted of names that
// stay is kept.
func newTable(p *policy.Policy, old *table) *table {
	t := &table{domains: make(map[string]*domain), none: old.none}
	for i := range p.Domains() {
		config := &p.Domains()[i]
		d := newDomain(config.Name)
		was := old.domains[config.Name]
		if was != nil {
			d.requests, d.none = was.requests, was.none
		}
		t.domains[config.Name] = d
		t.list = append(t.list, d)
		t.addRules(d, was, config)
	}
	t.list = append(t.list, t.none)
	return t
}

// addRules adds the rules of a domain. In a Tree several may have one name, and
// are counted together.
func (t *table) addRules(d, was *domain, config *policy.Domain) {
	shows := valuesShown(config)
	for i := range config.Rules {
		c := &config.Rules[i]
		if d.rules[c.Name] != nil {
			continue
		}
		r := &rule{tally: &tally{domain: d.name, rule: c.Name}, config: c, values: newValues(shows[i])}
		if was != nil && was.rules[c.Name] != nil {
			r.keep(was.rules[c.Name])
		}
		d.rules[c.Name] = r
		t.rules = append(t.rules, r)
	}
}

// keep takes over what was counted before the config was loaded again.
func (r *rule) keep(was *rule) {
	r.tally = was.tally
	if r.values != nil && was.values != nil && slices.Equal(r.values.shows, was.values.shows) {
		r.values = was.values
	}
}
