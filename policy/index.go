package policy

import (
	"slices"
	"strings"
)

// index finds, among conditions that are known by number, those that a request
// may meet. Each is filed under the literals of one attribute, so that a
// request reaches it only with a value that begins, ends or is as it must, or
// is not empty if that is all it must.
type index struct {
	always     []int32 // each attribute has a pattern of stars alone
	empty      []filed // an attribute must be empty or missing
	attributes map[string]*shelf
}

type filed struct {
	attribute string
	ids       []int32
}

// shelf holds what is filed under one attribute.
type shelf struct {
	exact, prefix, suffix literals
	present               []int32
}

type literals struct {
	ids     map[string][]int32
	lengths []int // of the literals in ids, ascending
}

// candidates visits the number of every member that matches the attributes,
// among some that do not. The order is arbitrary and numbers may come twice.
func (x *index) candidates(attributes map[string]string, visit func(id int32)) {
	each(x.always, visit)
	for i := range x.empty {
		if attributes[x.empty[i].attribute] == "" {
			each(x.empty[i].ids, visit)
		}
	}
	if len(x.attributes) == 0 {
		return
	}
	for name, value := range attributes {
		s := x.attributes[name]
		if s == nil || value == "" {
			continue
		}
		each(s.present, visit)
		each(s.exact.ids[value], visit)
		for _, n := range s.prefix.upTo(len(value)) {
			each(s.prefix.ids[value[:n]], visit)
		}
		for _, n := range s.suffix.upTo(len(value)) {
			each(s.suffix.ids[value[len(value)-n:]], visit)
		}
	}
}

func each(ids []int32, visit func(id int32)) {
	for _, id := range ids {
		visit(id)
	}
}

// upTo returns the lengths that are at most n.
func (l *literals) upTo(n int) []int {
	i, _ := slices.BinarySearch(l.lengths, n+1)
	return l.lengths[:i]
}

func (l *literals) add(text string, id int32) {
	if l.ids == nil {
		l.ids = make(map[string][]int32)
	}
	if _, known := l.ids[text]; !known {
		if i, found := slices.BinarySearch(l.lengths, len(text)); !found {
			l.lengths = slices.Insert(l.lengths, i, len(text))
		}
	}
	l.ids[text] = append(l.ids[text], id)
}

// literal is a place to file a pattern under.
type literal struct {
	attribute string
	kind      kind
	text      string
}

// kind orders the literals by how much they tell.
type kind uint8

const (
	exact kind = iota
	prefix
	suffix
	present // any text but the empty one
)

// newIndex files each of the members where the fewest others are.
func newIndex(members []conditions) index {
	uses := make(map[literal]int)
	for _, cs := range members {
		for i := range cs {
			for _, l := range cs[i].literals() {
				uses[l]++
			}
		}
	}
	x := index{attributes: make(map[string]*shelf)}
	for id, cs := range members {
		x.file(int32(id), cs.rarest(uses))
	}
	return x
}

// literals returns all that the patterns can be filed under.
func (c *condition) literals() []literal {
	var ls []literal
	for _, value := range c.exact {
		ls = append(ls, literal{c.attribute, exact, value})
	}
	for _, glob := range c.globs {
		ls = append(ls, globLiterals(c.attribute, glob)...)
	}
	return ls
}

// globLiterals returns what every match begins and ends with, unless empty; if
// both are, that it is present, unless "" is a match.
func globLiterals(attribute, glob string) []literal {
	var ls []literal
	if text := glob[:strings.IndexAny(glob, "*?")]; text != "" {
		ls = append(ls, literal{attribute, prefix, text})
	}
	if text := glob[strings.LastIndexAny(glob, "*?")+1:]; text != "" {
		ls = append(ls, literal{attribute, suffix, text})
	}
	if len(ls) == 0 && strings.Trim(glob, "*") != "" {
		ls = append(ls, literal{attribute, present, ""})
	}
	return ls
}

// rarest returns where to file conditions: under a literal for each pattern of
// the attribute whose most used one is used least; nil if no attribute can do.
func (cs conditions) rarest(uses map[literal]int) []literal {
	var best []literal
	var bestWorst literal
	for i := range cs {
		ls, worst := cs[i].rarest(uses)
		if ls != nil && (best == nil || rarer(worst, bestWorst, uses)) {
			best, bestWorst = ls, worst
		}
	}
	return best
}

// rarest returns the least used literal of each pattern, and the most used of
// those; nil if a pattern has none.
func (c *condition) rarest(uses map[literal]int) (ls []literal, worst literal) {
	for _, value := range c.exact {
		ls = append(ls, literal{c.attribute, exact, value})
	}
	for _, glob := range c.globs {
		options := globLiterals(c.attribute, glob)
		if len(options) == 0 {
			return nil, literal{}
		}
		l := options[0]
		if len(options) == 2 && rarer(options[1], l, uses) {
			l = options[1]
		}
		ls = append(ls, l)
	}
	worst = ls[0]
	for _, l := range ls {
		if rarer(worst, l, uses) {
			worst = l
		}
	}
	return ls, worst
}

// rarer reports whether fewer members share a than b, or as many and a tells more.
func rarer(a, b literal, uses map[literal]int) bool {
	if uses[a] != uses[b] {
		return uses[a] < uses[b]
	}
	return a.kind < b.kind
}

// file puts a member under each of the literals, or where it is always visited.
func (x *index) file(id int32, ls []literal) {
	if ls == nil {
		x.always = append(x.always, id)
	}
	for _, l := range ls {
		if l == (literal{l.attribute, exact, ""}) {
			x.fileEmpty(id, l.attribute)
			continue
		}
		s := x.attributes[l.attribute]
		if s == nil {
			s = new(shelf)
			x.attributes[l.attribute] = s
		}
		s.add(l, id)
	}
}

func (s *shelf) add(l literal, id int32) {
	switch l.kind {
	case exact:
		s.exact.add(l.text, id)
	case prefix:
		s.prefix.add(l.text, id)
	case suffix:
		s.suffix.add(l.text, id)
	case present:
		s.present = append(s.present, id)
	}
}

func (x *index) fileEmpty(id int32, attribute string) {
	for i := range x.empty {
		if x.empty[i].attribute == attribute {
			x.empty[i].ids = append(x.empty[i].ids, id)
			return
		}
	}
	x.empty = append(x.empty, filed{attribute, []int32{id}})
}
