package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirlimit/weir"
)

// Compile checks the domains and returns a Policy of copies of them. The error
// is Errors: everything that is wrong, each with its path.
func Compile(domains []Domain) (*Policy, error) {
	c := checker{names: make(map[[2]string]Path), always: make(map[string]int), domains: make(map[string]named)}
	for i, d := range domains {
		c.domain(Path{"domains", i}, d)
	}
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	p := &Policy{domains: merge(domains), byName: make(map[string]*domain)}
	for i := range p.domains {
		p.byName[p.domains[i].Name] = newDomain(&p.domains[i])
	}
	return p, nil
}

// merge copies the domains, putting those of one name together and filling in
// the defaults of limits.
func merge(domains []Domain) []Domain {
	var merged []Domain
	places := make(map[string]int)
	for _, d := range domains {
		i, known := places[d.Name]
		if !known {
			i = len(merged)
			places[d.Name] = i
			merged = append(merged, Domain{Name: d.Name, Tree: copyTree(d.Tree)})
		}
		for _, r := range d.Rules {
			merged[i].Rules = append(merged[i].Rules, copyRule(r))
		}
	}
	return merged
}

func copyRule(r Rule) Rule {
	r.When = copyWhen(r.When)
	r.By, r.Slot = slices.Clone(r.By), slices.Clone(r.Slot)
	r.Limit = normal(r.Limit)
	r.Overrides = slices.Clone(r.Overrides)
	for i := range r.Overrides {
		o := &r.Overrides[i]
		o.When, o.Limit = copyWhen(o.When), normal(o.Limit)
	}
	return r
}

func copyWhen(w When) When {
	w = maps.Clone(w)
	for name, patterns := range w {
		w[name] = slices.Clone(patterns)
	}
	return w
}

// normal fills in the defaults of a valid limit and leaves a zero one alone.
func normal(l weir.Limit) weir.Limit {
	n, err := l.Normal()
	if err != nil {
		return l
	}
	return n
}

func newDomain(d *Domain) *domain {
	if d.Tree != nil {
		var top *level
		top, d.Rules = newTree(d.Tree)
		return &domain{start: escaped(d.Name), tree: top, of: d.Tree, own: &Rule{OnFailure: d.Tree.OnFailure, Deadline: d.Tree.Deadline}}
	}
	rules := make([]rule, len(d.Rules))
	whens := make([]conditions, len(d.Rules))
	for i := range d.Rules {
		rules[i] = newRule(d.Name, &d.Rules[i])
		whens[i] = rules[i].when
	}
	return &domain{rules: rules, index: newIndex(whens)}
}

func newRule(domain string, r *Rule) rule {
	overrides := make([]conditions, len(r.Overrides))
	for i := range r.Overrides {
		overrides[i] = compileWhen(r.Overrides[i].When)
	}
	when := compileWhen(r.When)
	if r.Optional {
		for _, name := range r.By {
			when = append(when, condition{attribute: name, globs: []string{"?*"}})
		}
	}
	slot := ""
	if r.SlotDomain || len(r.Slot) > 0 {
		slot = escaped(domain)
	}
	return rule{
		Rule:      r,
		key:       escaped(domain) + ":" + escaped(r.Name),
		slot:      slot,
		when:      when,
		overrides: overrides,
		index:     newIndex(overrides),
	}
}

// checker collects what is wrong.
type checker struct {
	errs   Errors
	names  map[[2]string]Path // domain and rule -> where it was named first
	always map[string]int     // domain -> how many of its limits hold for every request

	domains map[string]named
}

// named is where a domain was named first, and whether it has a tree there.
type named struct {
	at   Path
	tree bool
}

func (c *checker) add(p Path, format string, args ...any) {
	c.errs = append(c.errs, &Error{Path: p, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) domain(p Path, d Domain) {
	c.alone(p.At("domain"), d)
	if d.Tree != nil {
		c.tree(p, d)
		return
	}
	c.name(p.At("domain"), d.Name, "slack")
	for i := range d.Rules {
		r := &d.Rules[i]
		c.rule(p.At("rules", i), r)
		c.unique(p.At("rules", i, "name"), d.Name, r.Name)
		c.count(p.At("rules", i), d.Name, r)
	}
}

// count checks that the limits of every request fit in a weir.List.
func (c *checker) count(p Path, domain string, r *Rule) {
	const most = 1000
	if r.Deny || len(r.When) > 0 || r.Optional && len(r.By) > 0 {
		return
	}
	if c.always[domain]++; c.always[domain] == most+1 {
		c.add(p, "domain %s has more than %d limits for every request, which is the most that can decide one: give rules a when, such as when: {path: /search}, or split the domain", clip(domain), most)
	}
}

// name checks what ends up in strings of HTTP structured fields.
func (c *checker) name(p Path, name, example string) {
	if name == "" {
		c.add(p, "a name is missing: write one such as %s", example)
		return
	}
	for _, b := range []byte(name) {
		if b < ' ' || b > '~' {
			c.add(p, "%s is not printable ASCII, which names must be because they are sent in HTTP header fields: write one such as %s", clip(name), example)
			return
		}
	}
}

func (c *checker) unique(p Path, domain, rule string) {
	id := [2]string{domain, rule}
	if first, known := c.names[id]; known && rule != "" {
		c.add(p, "domain %s already has a rule named %s: give each rule a name of its own", clip(domain), clip(rule))
		c.errs[len(c.errs)-1].Other = first
		return
	}
	c.names[id] = p
}

func (c *checker) rule(p Path, r *Rule) {
	c.name(p.At("name"), r.Name, "per-user")
	c.when(p.At("when"), r.When)
	c.attributes(p.At("by"), r.By)
	c.slot(p.At("slot"), r)
	c.limit(p, "rule", r.Limit, r.Deny)
	for i, o := range r.Overrides {
		q := p.At("overrides", i)
		if len(o.When) == 0 {
			c.add(q.At("when"), "this override has no when and would replace the rule's limit for everyone: write one such as when: {user: admin}")
		}
		c.when(q.At("when"), o.When)
		c.limit(q, "override", o.Limit, o.Deny)
	}
	if r.OnFailure > weir.OnFailureDeny {
		c.add(p.At("on_failure"), "%d is not one of allow, deny and local", r.OnFailure)
	}
	if r.Deadline < 0 {
		c.add(p.At("deadline"), "%s is negative: write how long the store may take, such as 20ms", r.Deadline)
	}
}

func (c *checker) when(p Path, w When) {
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if name == "" {
			c.add(p.At(name), "an attribute has no name: write one such as path")
		}
		if len(w[name]) == 0 {
			c.add(p.At(name), "there is no value to match: write one such as /search, or \"*\" for any")
		}
	}
}

func (c *checker) attributes(p Path, names []string) {
	for i, name := range names {
		if name == "" {
			c.add(p.At(i), "an attribute has no name: write one such as user")
		} else if slices.Contains(names[:i], name) {
			c.add(p.At(i), "attribute %s is named twice: name it once", clip(name))
		}
	}
}

// slot checks that all use of a key is in one slot.
func (c *checker) slot(p Path, r *Rule) {
	if r.SlotDomain && len(r.Slot) > 0 {
		c.add(p, "this rule has a slot for its domain and by attributes: keep one of them")
	}
	c.attributes(p, r.Slot)
	for i, name := range r.Slot {
		if name != "" && !slices.Contains(r.By, name) {
			c.add(p.At(i), "attribute %s is not among by, so that each value would get the whole limit in a slot of its own: add it to by, or write slot: domain", clip(name))
		}
	}
}

// limit checks that there is either a valid limit or deny.
func (c *checker) limit(p Path, of string, l weir.Limit, deny bool) {
	zero := l == weir.Limit{}
	_, err := l.Normal()
	var invalid *weir.InvalidError
	switch {
	case zero && !deny:
		c.add(p.At("limit"), "this %s has no limit: write one such as limit: 5/minute, or deny: true", of)
	case deny && !zero:
		c.add(p.At("deny"), "this %s has both a limit and deny: keep one of them", of)
	case !zero && errors.As(err, &invalid):
		c.add(p.At("limit"), "%s %s: want %s", invalid.Field, invalid.Value, invalid.Want)
	}
}
