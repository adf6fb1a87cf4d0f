package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Reason is why a rule holds for a request, or does not.
type Reason struct {
	// Rule is shared with the Policy and must not be changed; nil if nothing in
	// a Tree was arrived at.
	Rule *Rule
	// Row is what Match appends for the rule, or one that is Unlimited, which it
	// leaves out; nil if the rule does not match.
	Row *Row
	// Why says it in words, such as: path is "/x": want "/search" or like "/api/*".
	Why string
}

// Explain returns a Reason for each rule of the domain, in their order, or the
// one Reason of a Tree: how far the attributes get in it, and what is there. It
// returns false if there is no such domain.
func (p *Policy) Explain(domain string, attributes map[string]string) ([]Reason, bool) {
	d := p.byName[domain]
	if d == nil {
		return nil, false
	}
	if d.tree != nil {
		entries := d.tree.arrange(nil, attributes)
		if entries == nil {
			entries = d.tree.farthest(nil, attributes)
		}
		return []Reason{d.explain(entries, attributes)}, true
	}
	reasons := make([]Reason, len(d.rules))
	for i := range d.rules {
		reasons[i] = d.rules[i].explain(attributes)
	}
	return reasons, true
}

// ExplainEntries is to Explain what MatchEntries is to Match.
func (p *Policy) ExplainEntries(domain string, entries []Entry) ([]Reason, bool) {
	if d := p.byName[domain]; d != nil && d.tree != nil {
		return []Reason{d.explain(entries, nil)}, true
	}
	attributes := make(map[string]string, len(entries))
	for _, e := range entries {
		attributes[e.Key] = e.Value
	}
	return p.Explain(domain, attributes)
}

func (r *rule) explain(attributes map[string]string) Reason {
	own, optional := r.when[:len(r.When)], r.when[len(r.When):]
	for i := range own {
		if c := &own[i]; !c.match(attributes[c.attribute]) {
			return Reason{Rule: r.Rule, Why: c.is(attributes) + ": want " + c.wants()}
		}
	}
	for i := range optional {
		if c := &optional[i]; attributes[c.attribute] == "" {
			return Reason{Rule: r.Rule, Why: c.is(attributes) + ", and the rule is optional"}
		}
	}
	row := Row{Rule: r.Rule}
	r.fill(&row, attributes)
	why := own.explain(attributes)
	if i := r.override(attributes); i >= 0 {
		why += "; of its overrides number " + strconv.Itoa(int(i)+1) + " holds: " + r.overrides[i].explain(attributes)
	}
	return Reason{Rule: r.Rule, Row: &row, Why: why}
}

// explain says why all conditions hold.
func (cs conditions) explain(attributes map[string]string) string {
	if len(cs) == 0 {
		return "it has no conditions"
	}
	var why []string
	for i := range cs {
		c := &cs[i]
		text := c.is(attributes)
		if _, found := slices.BinarySearch(c.exact, attributes[c.attribute]); !found {
			text += ", which is " + c.like(attributes[c.attribute])
		}
		why = append(why, text)
	}
	return strings.Join(why, " and ")
}

// like names the first glob that matches a value.
func (c *condition) like(value string) string {
	i := slices.IndexFunc(c.globs, func(glob string) bool { return globMatch(glob, value) })
	return globWords(c.globs[i])
}

// is says what a request has of an attribute.
func (c *condition) is(attributes map[string]string) string {
	name := word(c.attribute)
	value, present := attributes[c.attribute]
	switch {
	case !present:
		return name + " is missing"
	case value == "":
		return name + " is empty"
	}
	return name + " is " + clip(value)
}

// wants says what the condition wants.
func (c *condition) wants() string {
	var words []string
	for _, value := range c.exact {
		if value == "" {
			words = append(words, "none")
			continue
		}
		words = append(words, clip(value))
	}
	for _, glob := range c.globs {
		words = append(words, globWords(glob))
	}
	return either(words)
}

func globWords(glob string) string {
	switch glob {
	case "*":
		return "anything"
	case "?*":
		return "any but the empty value"
	}
	return "like " + clip(glob)
}

// either joins what one can choose from, and counts what there is no room for.
func either(words []string) string {
	const most = 5
	if n := len(words) - most; n > 1 {
		words = append(words[:most:most], strconv.Itoa(n)+" others")
	}
	return strings.Join(words, " or ")
}

// word is a name as it is, where it cannot be taken for more than that.
func word(name string) string {
	if plain(name) {
		return name
	}
	return clip(name)
}

// explain follows entries through a tree as far as they get. If they are of
// attributes, they may be only as many of these as the tree has.
func (d *domain) explain(entries []Entry, attributes map[string]string) Reason {
	l, path := d.tree, make([]string, 0, len(entries))
	var n *node
	for i := range entries {
		e := &entries[i]
		if n = l.at(e); n == nil {
			return Reason{Why: sentence(path, l.lacks(e))}
		}
		path = append(path, word(e.Key)+" "+clip(e.Value))
		l = n.below
	}
	switch {
	case len(entries) < len(attributes):
		return Reason{Why: sentence(path, l.lacksAll(entries, attributes))}
	case n == nil:
		return Reason{Why: "there is nothing to look up"}
	case n.row == nil:
		return Reason{Why: sentence(path, "there is no limit")}
	}
	row := d.matchEntries(nil, entries)[0]
	end := "there is the limit " + word(row.Rule.Name)
	if row.Unlimited {
		end = "it is unlimited"
	}
	return Reason{row.Rule, &row, sentence(path, end)}
}

// sentence reads: at user "al", then path "/x": there is no limit.
func sentence(path []string, end string) string {
	if len(path) == 0 {
		return end
	}
	return "at " + strings.Join(path, ", then ") + ": " + end
}

// lacks says that the level has nothing for an entry, and what it has.
func (l *level) lacks(e *Entry) string {
	b := l.byKey[e.Key]
	if b == nil {
		return "there is nothing for " + word(e.Key) + l.offers()
	}
	var words []string
	for _, value := range slices.Sorted(maps.Keys(b.exact)) {
		words = append(words, clip(value))
	}
	for i := range b.patterns {
		words = append(words, "like "+clip(strings.Join(b.patterns[i].parts, "*")))
	}
	return word(e.Key) + " is " + clip(e.Value) + ": want " + either(words)
}

// lacksAll says that of the attributes, apart from the entries that led to the
// level, it has none.
func (l *level) lacksAll(entries []Entry, attributes map[string]string) string {
	var left []string
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if has(entries, name) {
			continue
		}
		if l.byKey[name] != nil {
			return l.lacks(&Entry{name, attributes[name]})
		}
		left = append(left, word(name))
	}
	return "there is nothing for " + either(left) + l.offers()
}

// offers names the keys of the level.
func (l *level) offers() string {
	if len(l.keys) == 0 {
		return ", since the tree ends here"
	}
	words := make([]string, len(l.keys))
	for i, key := range l.keys {
		words[i] = word(key)
	}
	return ": want " + either(words)
}

// farthest adds to the entries as many of the attributes as get anywhere, of
// several such lists the first.
func (l *level) farthest(entries []Entry, attributes map[string]string) []Entry {
	best := entries
	for _, key := range l.keys {
		value, ok := attributes[key]
		if !ok || has(entries, key) {
			continue
		}
		e := Entry{key, value}
		if n := l.at(&e); n != nil {
			if longer := n.below.farthest(append(slices.Clip(entries), e), attributes); len(longer) > len(best) {
				best = longer
			}
		}
	}
	return best
}

func has(entries []Entry, key string) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool { return e.Key == key })
}

// Arrange returns attributes as the entries as which Match looks them up; nil if
// the domain has no Tree or they arrive at no limit.
func (p *Policy) Arrange(domain string, attributes map[string]string) []Entry {
	if d := p.byName[domain]; d != nil && d.tree != nil {
		return d.tree.arrange(nil, attributes)
	}
	return nil
}

// Names returns what the rules of a domain are called, or the limits of its
// Tree, with those that lift any limit; nil if there is no such domain.
func (p *Policy) Names(domain string) []string {
	i := slices.IndexFunc(p.domains, func(d Domain) bool { return d.Name == domain })
	if i < 0 {
		return nil
	}
	d := &p.domains[i]
	if d.Tree != nil {
		return limitNames("", d.Tree.Descriptors)
	}
	names := make([]string, len(d.Rules))
	for i := range d.Rules {
		names[i] = d.Rules[i].Name
	}
	return names
}

func limitNames(path string, ds []Descriptor) (names []string) {
	for i := range ds {
		at := path + ds[i].composite()
		if ds[i].RateLimit != nil {
			names = append(names, printable(at))
		}
		names = append(names, limitNames(at+".", ds[i].Descriptors)...)
	}
	return names
}
