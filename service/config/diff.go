package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Change is what became of a rule from one policy to another.
type Change struct {
	// Rule is its domain and name, as in slack/search; the domain alone if the
	// change is none of a limit.
	Rule string
	// Kind is added, changed or removed.
	Kind string
	// Text is what the rule says, or how that has changed, such as
	// 5/1m -> 10/1m, cut to a bearable length; it shows no secret.
	Text string
}

// String reads: slack/search changed: 5/1m -> 10/1m.
func (c Change) String() string { return c.Rule + " " + c.Kind + ": " + c.Text }

// Diff returns how the rules differ: those added and changed in the order of
// the new policy, then those removed in the order of the old one.
func Diff(was, is *policy.Policy) []Change {
	before, after := rulesOf(was), rulesOf(is)
	old := make(map[string]*policy.Rule)
	for _, r := range before {
		old[r.name] = r.Rule
	}
	var changes []Change
	for _, r := range after {
		switch o := old[r.name]; {
		case o == nil:
			changes = append(changes, Change{r.name, "added", short(describe(r.Rule))})
		case !slices.Equal(aspects(o), aspects(r.Rule)):
			changes = append(changes, Change{r.name, "changed", short(compare(o, r.Rule))})
		}
		delete(old, r.name)
	}
	for _, r := range before {
		if old[r.name] != nil {
			changes = append(changes, Change{r.name, "removed", short(describe(r.Rule))})
		}
	}
	return append(changes, beside(changes, was, is)...)
}

// beside returns the domains whose descriptors differ, though none of their
// limits is among the changes.
func beside(changes []Change, was, is *policy.Policy) (more []Change) {
	old := make(map[string]*policy.Tree)
	for _, d := range was.Domains() {
		old[d.Name] = d.Tree
	}
	for _, d := range is.Domains() {
		told := slices.ContainsFunc(changes, func(c Change) bool { return strings.HasPrefix(c.Rule, d.Name+"/") })
		if !told && !reflect.DeepEqual(old[d.Name], d.Tree) {
			more = append(more, Change{d.Name, "changed", "its descriptors, but not their limits"})
		}
	}
	return more
}

// named is a rule and what a Change calls it.
type named struct {
	name string
	*policy.Rule
}

func rulesOf(p *policy.Policy) []named {
	var all []named
	for _, d := range p.Domains() {
		for i := range d.Rules {
			all = append(all, named{d.Name + "/" + d.Rules[i].Name, &d.Rules[i]})
		}
	}
	return all
}

// aspect is a key of a rule, as configuration names it, and its value. The
// limit has none.
type aspect struct{ key, value string }

func aspects(r *policy.Rule) []aspect {
	slot := words(r.Slot)
	if r.SlotDomain {
		slot = "domain"
	}
	all := []aspect{
		{"", held(r.Limit, r.Deny)},
		{"when", whenText(r.When)},
		{"by", words(r.By)},
		{"optional", strconv.FormatBool(r.Optional)},
		{"shadow", strconv.FormatBool(r.Shadow)},
		{"on_failure", r.OnFailure.String()},
		{"deadline", r.Deadline.String()},
		{"slot", slot},
	}
	for _, o := range r.Overrides {
		all = append(all, aspect{"override " + whenText(o.When), held(o.Limit, o.Deny)})
	}
	return all
}

// describe tells what a rule says, as far as it is no default.
func describe(r *policy.Rule) string {
	usual := make(map[aspect]bool)
	for _, a := range aspects(new(policy.Rule)) {
		usual[a] = true
	}
	var parts []string
	for _, a := range aspects(r) {
		if !usual[a] {
			parts = append(parts, strings.TrimSpace(a.key+" "+a.value))
		}
	}
	return strings.Join(parts, "; ")
}

// compare tells what differs.
func compare(was, is *policy.Rule) string {
	old := make(map[string]string)
	for _, a := range aspects(was) {
		old[a.key] = a.value
	}
	var parts []string
	tell := func(key, was, is string) {
		parts = append(parts, strings.TrimSpace(key+" "+cmp.Or(was, "none")+" -> "+cmp.Or(is, "none")))
	}
	for _, a := range aspects(is) {
		if old[a.key] != a.value {
			tell(a.key, old[a.key], a.value)
		}
		delete(old, a.key)
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		tell(key, old[key], "")
	}
	return cmp.Or(strings.Join(parts, "; "), "other overrides come first")
}

func held(l weir.Limit, deny bool) string {
	if deny {
		return "deny"
	}
	return l.String()
}

// whenText reads: path=/search|/find user=*.
func whenText(w policy.When) string {
	parts := make([]string, 0, len(w))
	for _, name := range slices.Sorted(maps.Keys(w)) {
		patterns := make([]string, len(w[name]))
		for i, pattern := range w[name] {
			patterns[i] = word(pattern)
		}
		parts = append(parts, word(name)+"="+strings.Join(patterns, "|"))
	}
	return strings.Join(parts, " ")
}

func words(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = word(s)
	}
	return strings.Join(quoted, ", ")
}

// word quotes what would not read as one word.
func word(s string) string {
	if q := strconv.Quote(s); s == "" || strings.ContainsAny(s, " ,;=|") || len(q) > len(s)+2 {
		return q
	}
	return s
}

// short is a text that a log may have.
func short(text string) string {
	const most = 200
	switch {
	case secret(text):
		return "not shown, as it may hold a secret"
	case len(text) > most:
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// Changed returns the keys of the server mapping under which t differs from s.
func (s Server) Changed(t Server) []string {
	var keys []string
	for _, this := range settings {
		a, b := s, t
		for _, other := range settings { // so that only this one can differ
			if other.key != this.key {
				other.set(&a, "")
				other.set(&b, "")
			}
		}
		if !reflect.DeepEqual(a, b) {
			keys = append(keys, this.key)
		}
	}
	return keys
}
