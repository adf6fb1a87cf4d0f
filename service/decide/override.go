package decide

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Override changes for a time what a rule holds some requests to, or denies
// them whatever the rules say: an operator's word, not the config's.
type Override struct {
	// ID tells it apart from the others.
	ID string
	// Domain is whose requests it is for, and Rule of which rule; without a Rule
	// it denies a request as such.
	Domain, Rule string
	// Attributes are what a request has to have, each exactly; at least one.
	// Descriptors have them as entries.
	Attributes map[string]string
	// Limit holds in place of that of the rule, also of one that denies; or Deny
	// denies.
	Limit weir.Limit
	Deny  bool
	// Until is when it ends, at most 366 days from now.
	Until time.Time
	// By says who made it, Why for what reason, and Created when.
	By, Why string
	Created time.Time
}

// Overrides keeps overrides, for one process or for all that share it. What has
// ended is left out. An error is the store's.
type Overrides interface {
	// List returns them in no particular order.
	List(ctx context.Context) ([]Override, error)
	// Put adds one, or replaces the one with its ID.
	Put(ctx context.Context, o Override) error
	// Remove reports whether there was one of that ID.
	Remove(ctx context.Context, id string) (bool, error)
}

// NewOverrides returns Overrides that this process keeps in memory.
func NewOverrides() Overrides { return &memoryOverrides{kept: make(map[string]Override)} }

type memoryOverrides struct {
	mu   sync.Mutex
	kept map[string]Override
}

func (m *memoryOverrides) List(context.Context) ([]Override, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(m.kept, func(_ string, o Override) bool { return !now.Before(o.Until) })
	return slices.Collect(maps.Values(m.kept)), nil
}

func (m *memoryOverrides) Put(_ context.Context, o Override) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[o.ID] = o
	return nil
}

func (m *memoryOverrides) Remove(_ context.Context, id string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, found := m.kept[id]
	delete(m.kept, id)
	return found, nil
}

// SetOverrides makes the list, and nothing else, override rules from the next
// query on, each until it ends. Of several for one rule and request the one that
// was created last holds.
func (e *Engine) SetOverrides(list []Override) {
	e.loading.Lock()
	defer e.loading.Unlock()
	r := *e.rules.Load()
	r.overrides = newOverrides(list)
	e.rules.Store(&r)
}

// CheckOverride returns an *weir.InvalidError if an override is not such as the
// rules in force have a use for.
func (e *Engine) CheckOverride(o *Override) error {
	now := time.Now()
	rules := e.rules.Load().rulesOf(o.Domain)
	wrong := func(field, value, want string) error {
		return &weir.InvalidError{Field: field, Value: value, Want: want}
	}
	switch {
	case rules == nil:
		return wrong("domain", o.Domain, strings.Join(e.rules.Load().domains(), " or "))
	case o.Rule == "" && !o.Deny:
		return wrong("rule", "", "a rule of the domain, such as "+rules[0]+", whose limit it replaces; without one it can only deny")
	case o.Rule != "" && !slices.Contains(rules, o.Rule):
		return wrong("rule", o.Rule, clip(strings.Join(rules, " or ")))
	case len(o.Attributes) == 0:
		return wrong("attributes", "{}", `at least one that a request has to have, such as {"user": "alice"}`)
	case o.Deny == (o.Limit != weir.Limit{}):
		return wrong("limit", o.Limit.String(), "either a limit, such as 1000/minute, or to deny")
	case !o.Until.After(now), o.Until.Sub(now) > 366*24*time.Hour:
		return wrong("for", o.Until.Sub(now).String(), "more than nothing and at most 366 days, such as 2h")
	case o.Deny:
		return nil
	}
	return o.Limit.Validate()
}

// rulesOf returns the names of the rules of a domain, nil if there is none.
func (r *rules) rulesOf(domain string) []string {
	for _, d := range r.policy.Domains() {
		if d.Name == domain {
			names := make([]string, 0, len(d.Rules))
			for i := range d.Rules {
				names = append(names, d.Rules[i].Name)
			}
			return names
		}
	}
	return nil
}

// pair is an attribute of requests of a domain.
type pair struct{ domain, name, value string }

// overrides finds those that a request may meet by the first of their
// attributes.
type overrides struct {
	names map[string][]string // of a domain: by which of its attributes
	by    map[pair][]Override // created last comes first
}

// newOverrides returns nil for none, so that a query finds that out at once.
func newOverrides(list []Override) *overrides {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Override) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	})
	x := &overrides{names: make(map[string][]string), by: make(map[pair][]Override)}
	for _, o := range list {
		if len(o.Attributes) == 0 {
			continue
		}
		name := slices.Min(slices.Collect(maps.Keys(o.Attributes)))
		if !slices.Contains(x.names[o.Domain], name) {
			x.names[o.Domain] = append(x.names[o.Domain], name)
		}
		id := pair{o.Domain, name, o.Attributes[name]}
		x.by[id] = append(x.by[id], o)
	}
	return x
}

// blocked is the name that the row of an override without a rule has.
const blocked = "blocked"

// apply changes the rows of a request by what overrides them.
func (x *overrides) apply(rows []policy.Row, domain string, attributes map[string]string) []policy.Row {
	if x == nil || len(x.names[domain]) == 0 {
		return rows
	}
	var done []string
	for _, o := range x.matching(domain, attributes) {
		if slices.Contains(done, o.Rule) {
			continue
		}
		done = append(done, o.Rule)
		if o.Rule == "" {
			rows = append(rows, policy.Row{Rule: &policy.Rule{Name: blocked}, Deny: true})
			continue
		}
		for i := range rows {
			if rows[i].Rule != nil && rows[i].Rule.Name == o.Rule {
				o.change(&rows[i])
			}
		}
	}
	return rows
}

// matching returns the overrides of a request, created last first.
func (x *overrides) matching(domain string, attributes map[string]string) (all []*Override) {
	now := time.Now()
	for _, name := range x.names[domain] {
		found := x.by[pair{domain, name, attributes[name]}]
		for i := range found {
			if o := &found[i]; now.Before(o.Until) && o.holds(attributes) {
				all = append(all, o)
			}
		}
	}
	if len(all) > 1 {
		slices.SortStableFunc(all, func(a, b *Override) int { return b.Created.Compare(a.Created) })
	}
	return all
}

func (o *Override) holds(attributes map[string]string) bool {
	for name, value := range o.Attributes {
		if got, ok := attributes[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// change makes a row what the override says. In a Tree a limit keeps the
// algorithm of the tree unless it names another.
func (o *Override) change(row *policy.Row) {
	row.Deny, row.Limit, row.Stated, row.Unlimited = o.Deny, o.Limit, o.Limit, false
	if normal, err := o.Limit.Normal(); err == nil {
		row.Limit = normal
	}
}

// attributesOf returns the entries of a descriptor as attributes.
func attributesOf(entries []Entry) map[string]string {
	attributes := make(map[string]string, len(entries))
	for _, e := range entries {
		attributes[e.Key] = e.Value
	}
	return attributes
}

// String reads: deny until 2026-01-02T15:04:05Z, by alice: spam.
func (o *Override) String() string {
	what := "deny"
	if !o.Deny {
		what = o.Limit.String()
	}
	text := what + " until " + o.Until.UTC().Format(time.RFC3339) + ", by " + strconv.Quote(o.By)
	if o.Why != "" {
		text += ": " + strconv.Quote(o.Why)
	}
	return text
}
