package policy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// Tree is the limits of a domain as those of envoyproxy/ratelimit: a tree that
// the entries of a request are looked up in, one level after the other. What a
// level has for an entry is, the first that there is: its key and value, its
// key and a pattern of its value (of several the first), its key alone. Only
// the limit at which the last entry arrives holds.
type Tree struct {
	// Descriptors are the first level.
	Descriptors []Descriptor
	// Algorithm keeps every limit of the tree. Zero, like weir.FixedWindow,
	// means fixed windows by the clock: those with weir.Limit.Epoch.
	Algorithm weir.Algorithm
	// ChargeOnDeny charges requests that are denied, too, as that server does.
	// It needs fixed windows.
	ChargeOnDeny bool
	// OnFailure and Deadline are those of each limit, as in a Rule.
	OnFailure weir.OnFailure
	Deadline  time.Duration
}

// Descriptor is a node of a Tree.
type Descriptor struct {
	Key string // not empty
	// Value is exact, or a pattern if it has a '*', which stands for any run of
	// characters; empty means any. No level has a Key and Value twice.
	Value string
	// RateLimit holds the requests whose last entry arrives here; nil if they
	// are not limited.
	RateLimit *RateLimit
	// Descriptors are the next level.
	Descriptors []Descriptor
	// ShareThreshold counts all values that match the pattern together, here
	// and below. Otherwise each value of an entry is counted apart.
	ShareThreshold bool
	// Shadow decides and counts, but never denies.
	Shadow bool
	// Quota denies only a request all of whose Quota limits do.
	Quota bool
	// DetailedMetric and ValueToMetric ask for the values of requests in metrics.
	DetailedMetric, ValueToMetric bool
	// Metadata is what to tell of requests that the RateLimit admits: strings,
	// bools, float64s, nils, lists and maps of these. It is not copied.
	Metadata map[string]any
}

// RateLimit is a limit as envoyproxy/ratelimit writes it.
type RateLimit struct {
	// Requests per Unit, from 0, which denies all, to 2^32-1. Above
	// weir.MaxUnits it counts as that.
	Requests int64
	// Unit is zero if, and only if, Unlimited.
	Unit Unit
	// Unlimited says that what arrives here is not limited.
	Unlimited bool
	// Name is what Replaces calls it; it may be empty.
	Name string
	// Replaces names limits that do not hold for a request for which this one
	// does.
	Replaces []string
}

// Unit is a length of time by its name.
type Unit uint8

// The units. A Month has 30 days and a Year 365.
const (
	Second Unit = iota + 1
	Minute
	Hour
	Day
	Week
	Month
	Year
)

const day = 24 * time.Hour

var units = [...]struct {
	name   string
	length time.Duration
}{
	{"", 0}, {"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour},
	{"day", day}, {"week", 7 * day}, {"month", 30 * day}, {"year", 365 * day},
}

// String returns the name, such as "minute"; "" for what is no unit.
func (u Unit) String() string {
	if int(u) >= len(units) {
		return ""
	}
	return units[u].name
}

// Window is how long the unit is; 0 for what is no unit.
func (u Unit) Window() time.Duration {
	if int(u) >= len(units) {
		return 0
	}
	return units[u].length
}

// UnmarshalText reads what String writes, in capital or small letters; anything
// else is a *weir.InvalidError.
func (u *Unit) UnmarshalText(text []byte) error {
	for i := Second; i <= Year; i++ {
		if strings.EqualFold(string(text), i.String()) {
			*u = i
			return nil
		}
	}
	return &weir.InvalidError{Field: "unit", Value: string(text), Want: "second, minute, hour, day, week, month or year"}
}

// Entry is a part of what a request is described by.
type Entry struct{ Key, Value string }

// level is a compiled list of descriptors.
type level struct {
	keys  []string // in the order of the list
	byKey map[string]*branch
}

// branch is what a level has of a key.
type branch struct {
	exact    map[string]*node
	patterns []pattern
	any      *node // nil if there is none
}

type pattern struct {
	parts []string // between the stars
	*node
}

// node is a compiled descriptor.
type node struct {
	shared string // the part of a key that stands for any value; empty if each is apart
	row    *Row   // without a Key; nil if there is no limit
	below  *level
}

// newTree compiles a tree, and returns a Rule for each of its limits.
func newTree(t *Tree) (*level, []Rule) {
	c := treeCompiler{tree: t, rules: make([]Rule, 0, countLimits(t.Descriptors))}
	top := c.level("", t.Descriptors)
	return top, c.rules
}

func countLimits(ds []Descriptor) int {
	n := 0
	for i := range ds {
		if ds[i].limited() {
			n++
		}
		n += countLimits(ds[i].Descriptors)
	}
	return n
}

// limited reports whether a request may be denied here.
func (d *Descriptor) limited() bool { return d.RateLimit != nil && !d.RateLimit.Unlimited }

// composite is what envoyproxy/ratelimit calls a descriptor in its level.
func (d *Descriptor) composite() string {
	if d.Value == "" {
		return d.Key
	}
	return d.Key + "_" + d.Value
}

type treeCompiler struct {
	tree  *Tree
	rules []Rule // with room for all, so that none moves
}

func (c *treeCompiler) level(path string, ds []Descriptor) *level {
	l := &level{byKey: make(map[string]*branch)}
	for i := range ds {
		d := &ds[i]
		b := l.byKey[d.Key]
		if b == nil {
			b = &branch{exact: make(map[string]*node)}
			l.byKey[d.Key] = b
			l.keys = append(l.keys, d.Key)
		}
		n := c.node(path+d.composite(), d)
		switch {
		case d.Value == "":
			b.any = n
		case strings.Contains(d.Value, "*"):
			b.patterns = append(b.patterns, pattern{strings.Split(d.Value, "*"), n})
		default:
			b.exact[d.Value] = n
		}
	}
	return l
}

func (c *treeCompiler) node(path string, d *Descriptor) *node {
	n := &node{row: c.row(path, d), below: c.level(path+".", d.Descriptors)}
	if d.ShareThreshold {
		n.shared = sharedMark + escaped(d.Value)
	}
	return n
}

func (c *treeCompiler) row(path string, d *Descriptor) *Row {
	switch {
	case d.RateLimit == nil:
		return nil
	case d.RateLimit.Unlimited:
		return &Row{Rule: &Rule{Name: printable(path), Shadow: d.Shadow, OnFailure: c.tree.OnFailure, Deadline: c.tree.Deadline}, Descriptor: d, Unlimited: true}
	}
	row := c.tree.row(weir.Per(d.RateLimit.Requests, d.RateLimit.Unit.Window()))
	c.rules = append(c.rules, Rule{
		Name: printable(path), Limit: row.Limit, Deny: row.Deny, Shadow: d.Shadow,
		OnFailure: c.tree.OnFailure, Deadline: c.tree.Deadline,
	})
	row.Rule, row.Descriptor = &c.rules[len(c.rules)-1], d
	return &row
}

// printable makes of a path a name that header fields can hold.
func printable(path string) string {
	ascii := strconv.QuoteToASCII(path)
	return strings.ReplaceAll(ascii[1:len(ascii)-1], `\"`, `"`)
}

// row is a Row that is held to what is stated, without Rule and Key.
func (t *Tree) row(stated weir.Limit) Row {
	row := Row{Stated: stated, Limit: t.kept(stated), ChargeOnDeny: t.ChargeOnDeny}
	if stated.Max == 0 {
		row.Deny, row.Limit = true, weir.Limit{}
	}
	return row
}

// kept is a limit as the tree keeps it.
func (t *Tree) kept(l weir.Limit) weir.Limit {
	l.Max = min(l.Max, weir.MaxUnits)
	l.Algorithm = t.Algorithm
	if l.Algorithm == 0 || l.Algorithm == weir.FixedWindow {
		l.Algorithm, l.Epoch = weir.FixedWindow, true
	}
	return normal(l)
}

// find returns the nodes at which the entries arrive, or nil if one does not.
func (l *level) find(path []*node, entries []Entry) []*node {
	for i := range entries {
		n := l.at(&entries[i])
		if n == nil {
			return nil
		}
		path = append(path, n)
		l = n.below
	}
	return path
}

func (l *level) at(e *Entry) *node {
	b := l.byKey[e.Key]
	if b == nil {
		return nil
	}
	if n := b.exact[e.Value]; n != nil {
		return n
	}
	for i := range b.patterns {
		if starMatch(b.patterns[i].parts, e.Value) {
			return b.patterns[i].node
		}
	}
	return b.any
}

// starMatch reports whether value has the parts one after the other, the first
// at its beginning and the last, of at least two, at its end.
func starMatch(parts []string, value string) bool {
	last := parts[len(parts)-1]
	value, ok := strings.CutPrefix(value, parts[0])
	if !ok || !strings.HasSuffix(value, last) {
		return false
	}
	value = value[:len(value)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		if _, value, ok = strings.Cut(value, part); !ok {
			return false
		}
	}
	return true
}

// arrange adds attributes that are not among entries yet to them, in the first
// order in which all arrive at a limit, or returns nil.
func (l *level) arrange(entries []Entry, attributes map[string]string) []Entry {
	for _, key := range l.keys {
		value, ok := attributes[key]
		if !ok || has(entries, key) {
			continue
		}
		e := Entry{key, value}
		n := l.at(&e)
		switch {
		case n == nil:
		case len(entries)+1 < len(attributes):
			if all := n.below.arrange(append(entries, e), attributes); all != nil {
				return all
			}
		case n.row != nil:
			return append(entries, e)
		}
	}
	return nil
}

// matchEntries appends the Row of the limit that the entries arrive at.
func (d *domain) matchEntries(dst []Row, entries []Entry) []Row {
	var few [8]*node
	path := d.tree.find(few[:0], entries)
	if len(path) == 0 || path[len(path)-1].row == nil {
		return dst
	}
	row := *path[len(path)-1].row
	if !row.Unlimited {
		row.Key = entriesKey(d.start, path, entries)
	}
	return append(dst, row)
}

// entriesKey returns the key of entries that have arrived at path, or of such
// for which the tree has not been asked if path is nil. Their keys and values
// follow an empty name, which no Rule has.
func entriesKey(start string, path []*node, entries []Entry) string {
	size := len(start) + 1
	for i := range entries {
		size += 2 + escapedLen(entries[i].Key) + escapedLen(entries[i].Value)
		if path != nil {
			size += len(path[i].shared)
		}
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteString(start)
	b.WriteByte(':')
	for i := range entries {
		b.WriteByte(':')
		writeEscaped(&b, entries[i].Key)
		b.WriteByte(':')
		if path != nil && path[i].shared != "" {
			b.WriteString(path[i].shared)
			continue
		}
		writeEscaped(&b, entries[i].Value)
	}
	return b.String()
}

// copyTree copies what Compile is given.
func copyTree(t *Tree) *Tree {
	if t == nil {
		return nil
	}
	c := *t
	c.Descriptors = copyDescriptors(t.Descriptors)
	return &c
}

func copyDescriptors(ds []Descriptor) []Descriptor {
	ds = slices.Clone(ds)
	for i := range ds {
		ds[i].Descriptors = copyDescriptors(ds[i].Descriptors)
		if ds[i].RateLimit != nil {
			r := *ds[i].RateLimit
			r.Replaces = slices.Clone(r.Replaces)
			ds[i].RateLimit = &r
		}
	}
	return ds
}
