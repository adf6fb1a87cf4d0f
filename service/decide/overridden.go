package decide

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// SetOverrides makes the list, and nothing else, override rules from the next
// query on, each until it ends. Of several for one rule and request the one that
// was created last holds. Those that CheckOverride refuses whatever the rules,
// and of more than 10,000 those created first, are left out. Their Attributes
// must not be changed afterwards.
func (e *Engine) SetOverrides(list []Override) {
	e.loading.Lock()
	defer e.loading.Unlock()
	r := *e.rules.Load()
	r.overrides = newOverrides(list)
	e.rules.Store(&r)
}

// pair is an attribute that a request has.
type pair struct{ name, value string }

// overrides finds, by the attributes of a request, those that it meets.
type overrides struct {
	list []Override // created last comes first
	of   map[string]*index
}

// index has the overrides of a domain, by their numbers in the list, ascending:
// each under the one of its attributes that the fewest others have.
type index struct {
	by    map[pair][]int
	empty []int // all of whose attributes have to be missing or empty
}

// newOverrides returns nil for none, so that a query finds that out at once.
func newOverrides(given []Override) *overrides {
	x := &overrides{of: make(map[string]*index)}
	for i := range given {
		if given[i].usable() {
			x.list = append(x.list, given[i])
		}
	}
	if len(x.list) == 0 {
		return nil
	}
	slices.SortFunc(x.list, func(a, b Override) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	})
	x.list = slices.Clip(x.list[:min(len(x.list), maxOverrides)])
	uses := make(map[pair]int)
	for i := range x.list {
		for name, value := range x.list[i].Attributes {
			uses[pair{name, value}]++
		}
	}
	for i := range x.list {
		x.file(i, uses)
	}
	return x
}

// usable reports whether an override can hold at all.
func (o *Override) usable() bool {
	return len(o.Attributes) > 0 && (o.Deny || o.Rule != "" && o.Limit.Validate() == nil)
}

func (x *overrides) file(i int, uses map[pair]int) {
	o := &x.list[i]
	of := x.of[o.Domain]
	if of == nil {
		of = &index{by: make(map[pair][]int)}
		x.of[o.Domain] = of
	}
	var rarest pair
	for name, value := range o.Attributes {
		if p := (pair{name, value}); value != "" && (rarest.value == "" || uses[p] < uses[rarest]) {
			rarest = p
		}
	}
	if rarest.value == "" {
		of.empty = append(of.empty, i)
		return
	}
	of.by[rarest] = append(of.by[rarest], i)
}

// none reports whether there is none for a domain.
func (x *overrides) none(domain string) bool { return x == nil || x.of[domain] == nil }

// matching returns the overrides that hold for a request, created last first.
func (x *overrides) matching(domain string, attributes map[string]string) (all []*Override) {
	if x.none(domain) {
		return nil
	}
	var numbers []int
	for name, value := range attributes {
		numbers = append(numbers, x.of[domain].by[pair{name, value}]...)
	}
	numbers = append(numbers, x.of[domain].empty...)
	if len(numbers) == 0 {
		return nil
	}
	slices.Sort(numbers)
	now := time.Now()
	for _, i := range numbers {
		if o := &x.list[i]; now.Before(o.Until) && o.holds(attributes) {
			all = append(all, o)
		}
	}
	return all
}

func (o *Override) holds(attributes map[string]string) bool {
	for name, value := range o.Attributes {
		if attributes[name] != value {
			return false
		}
	}
	return true
}

// chosen returns the one that holds for a rule, the first for it, or nil.
func chosen(matching []*Override, rule string) *Override {
	i := slices.IndexFunc(matching, func(o *Override) bool { return o.Rule == rule })
	if i < 0 {
		return nil
	}
	return matching[i]
}

// blocked is the rule of the row that denies what an override without a rule is for.
var blocked = policy.Rule{Name: "blocked", Deny: true}

// match is Policy.Match, and then what overrides its rows.
func (r *rules) match(dst []policy.Row, domain string, attributes map[string]string) (rows []policy.Row, ok bool) {
	matching := r.overrides.matching(domain, attributes)
	if len(matching) == 0 {
		return r.policy.Match(dst, domain, attributes)
	}
	entries := r.policy.Arrange(domain, attributes)
	if entries == nil {
		dst, ok = r.policy.Match(dst, domain, attributes)
	} else {
		dst, ok = r.policy.MatchEntries(dst, domain, entries)
	}
	if !ok {
		return dst, false
	}
	dst, _ = r.override(dst, 0, matching, domain, entries)
	return slices.DeleteFunc(dst, func(row policy.Row) bool { return row.Unlimited }), true
}

// override changes the rows from the first on by what overrides them, adds one
// if the request is blocked, and returns the numbers of those that it changed.
func (r *rules) override(rows []policy.Row, first int, matching []*Override, domain string, entries []Entry) (_ []policy.Row, changed []int) {
	for i := first; i < len(rows); i++ {
		if o := chosen(matching, rows[i].Rule.Name); o != nil && o.Rule != "" {
			r.change(&rows[i], o, domain, entries)
			changed = append(changed, i)
		}
	}
	if chosen(matching, "") == nil {
		return rows, changed
	}
	limited := slices.DeleteFunc(rows[first:], func(row policy.Row) bool { return row.Unlimited })
	return append(rows[:first+len(limited)], policy.Row{Rule: &blocked, Deny: true}), changed
}

// change makes a row what the override says. What lifts any limit has no key
// until it gets one here.
func (r *rules) change(row *policy.Row, o *Override, domain string, entries []Entry) {
	limit, charge, err := r.held(domain, o.Limit)
	if err != nil && !o.Deny { // the rules are not those that it was made for
		return
	}
	if row.Unlimited {
		own, _ := r.policy.Override(domain, entries, o.Limit)
		row.Key, row.ChargeOnDeny = own.Key, own.ChargeOnDeny
	}
	row.Unlimited, row.Deny, row.Limit, row.Stated = false, o.Deny, limit, o.Limit
	row.ChargeOnDeny = row.ChargeOnDeny && charge
}

// held returns a limit of an override as a domain keeps it, and whether what it
// denies can be charged.
func (r *rules) held(domain string, limit weir.Limit) (held weir.Limit, charge bool, err error) {
	held = limit
	if limit.Algorithm == 0 && limit.Burst == 0 && limit.Buckets == 0 && !limit.Epoch {
		row, _ := r.policy.Override(domain, nil, limit)
		held = row.Limit
	}
	held, err = held.Normal()
	return held, held.Algorithm == weir.FixedWindow, err
}
