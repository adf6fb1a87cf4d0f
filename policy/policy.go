// Package policy turns the attributes of a request into the weir.Requests that
// decide it. A Policy is compiled once from named rules and then only read;
// what a match costs depends on the rules that can match, not on the others.
package policy

import (
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// Domain is a named set of rules, or has a Tree. Several Domains with rules may
// share a name: their rules are put together, in order. At most 1000 of its
// limits may hold for every request.
type Domain struct {
	Name  string // not empty; printable ASCII unless it has a Tree
	Rules []Rule
	Tree  *Tree // nil, or in place of Rules
}

// Rule limits the requests of its domain that match When, separately for each
// combination of the values of By.
type Rule struct {
	// Name is printable ASCII, not empty and unique in its domain: clients see
	// it in header fields.
	Name string
	// When says which requests the rule is for; empty means all.
	When When
	// By names the attributes that partition. A missing attribute counts as
	// the empty value.
	By []string
	// Optional makes a request whose value of any By attribute is missing or
	// empty skip the rule.
	Optional bool
	// Limit is what each partition is held to; zero if, and only if, Deny.
	Limit weir.Limit
	// Deny denies whatever matches, instead of a Limit.
	Deny bool
	// Overrides replace Limit or Deny for some requests; the first that
	// matches wins.
	Overrides []Override
	// Shadow decides and counts, but never denies.
	Shadow bool
	// OnFailure says what happens when the store cannot be asked.
	OnFailure weir.OnFailure
	// Deadline is how long the store may take to answer; 0 means as long as
	// for the others.
	Deadline time.Duration
	// Slot names attributes of By. Rules of a domain with the same Slot live,
	// for the same values, in one slot of a Cluster, where they are decided in
	// one step. With neither Slot nor SlotDomain each partition has a slot of
	// its own; without a Cluster it makes no difference.
	Slot []string
	// SlotDomain keeps all of the rule in one slot for its domain, instead of
	// Slot. One server of the Cluster then carries it alone.
	SlotDomain bool
}

// When maps attributes to patterns: it matches a request in which every
// attribute named has a value that matches one of its patterns, of which there
// is at least one. A pattern is an exact value, or a glob in which '*' stands
// for any run of characters and '?' for one.
//
// A missing attribute counts as the empty value, so the pattern "" is for
// requests without the attribute and "?*" for those with it.
type When map[string][]string

// Override replaces a rule's limit for the requests that match When, which is
// not empty. It has either a Limit or Deny.
type Override struct {
	When  When
	Limit weir.Limit
	Deny  bool
}

// Policy is a compiled set of domains. It never changes and is safe for
// concurrent use.
type Policy struct {
	domains []Domain
	byName  map[string]*domain
}

type domain struct {
	rules []rule
	index index
	start string // what its keys begin with

	// Of a domain with a Tree; nil otherwise.
	tree *level
	of   *Tree
	own  *Rule // of limits that requests bring
}

type rule struct {
	*Rule
	key       string     // the key of a rule without By, and what the others' begin with
	slot      string     // the same for the group; empty if the rule names no slot
	when      conditions // with those of Optional
	overrides []conditions
	index     index // of overrides
}

// Row is a rule that matched a request, and what the request is held to.
type Row struct {
	// Rule is shared with the Policy and must not be changed.
	Rule *Rule
	// Key encodes the domain, the rule's name and the values of its By
	// attributes; it differs wherever one of these does.
	Key string
	// Group is that of the weir.Request to make: it encodes the domain and the
	// values of the rule's Slot, and is empty if the rule names no slot.
	Group string
	// Limit is that of the rule or of its override, with defaults filled in;
	// zero if Deny.
	Limit weir.Limit
	// Deny says that the request is to be denied, whatever its cost.
	Deny bool
	// Stated is the limit as it was written: in a Tree its Max may be 0, which
	// denies, or above weir.MaxUnits. It is zero if a Rule denies.
	Stated weir.Limit
	// Descriptor is the one of the Tree that the limit is from; nil without a
	// Tree. It is shared with the Policy and must not be changed.
	Descriptor *Descriptor
	// Unlimited says that Descriptor lifts any limit. There is no Key then.
	Unlimited bool
	// ChargeOnDeny is that of the Tree.
	ChargeOnDeny bool

	order int32 // of the rule in its domain
}

// Domains returns the domains as compiled: those of one name put together, in
// order, limits with defaults filled in. Beside a Tree they have as Rules a list
// of its limits, with names such as "path_/login.user". They are shared with the
// Policy and must not be changed.
func (p *Policy) Domains() []Domain { return p.domains }

// Match appends a Row for each rule of the domain that matches the attributes,
// in the order of the rules. It returns dst as it was, and false, if there is
// no such domain. It allocates only what dst and the keys need.
//
// In a Tree the attributes are looked up as entries, all of them, in the first
// order in which they arrive at a limit.
func (p *Policy) Match(dst []Row, domain string, attributes map[string]string) (rows []Row, ok bool) {
	d := p.byName[domain]
	if d == nil {
		return dst, false
	}
	if d.tree != nil {
		dst = d.matchEntries(dst, d.tree.arrange(nil, attributes))
		if n := len(dst); n > 0 && dst[n-1].Unlimited {
			dst = dst[:n-1]
		}
		return dst, true
	}
	start := len(dst)
	d.index.candidates(attributes, func(id int32) {
		if r := &d.rules[id]; r.when.match(attributes) {
			dst = append(dst, Row{Rule: r.Rule, order: id})
		}
	})
	found := dst[start:]
	slices.SortFunc(found, func(a, b Row) int { return int(a.order - b.order) })
	found = slices.CompactFunc(found, func(a, b Row) bool { return a.order == b.order })
	for i := range found {
		d.rules[found[i].order].fill(&found[i], attributes)
	}
	return dst[:start+len(found)], true
}

// MatchEntries appends the Row of the limit at which the entries arrive in a
// Tree, if they do. Without a Tree it is Match, each entry an attribute; of those
// with one key the last counts.
func (p *Policy) MatchEntries(dst []Row, domain string, entries []Entry) (rows []Row, ok bool) {
	d := p.byName[domain]
	switch {
	case d == nil:
		return dst, false
	case d.tree != nil:
		return d.matchEntries(dst, entries), true
	}
	attributes := make(map[string]string, len(entries))
	for _, e := range entries {
		attributes[e.Key] = e.Value
	}
	return p.Match(dst, domain, attributes)
}

// Override returns the Row of a limit that a request brings for its entries, in
// place of those of the domain, and whether there is such a domain. A Max of 0
// denies. In a Tree the limit is kept as those of the tree are, and shares what
// is counted with the one of the same entries and window.
func (p *Policy) Override(domain string, entries []Entry, limit weir.Limit) (row Row, known bool) {
	d := p.byName[domain]
	if d != nil && d.tree != nil {
		row = d.of.row(limit)
		row.Rule, row.Key = d.own, entriesKey(d.start, nil, entries)
		return row, true
	}
	row = Row{Rule: &Rule{}, Stated: limit, Deny: limit.Max == 0, Key: entriesKey(escaped(domain), nil, entries)}
	if !row.Deny {
		limit.Max = min(limit.Max, weir.MaxUnits)
		row.Limit = normal(limit)
	}
	return row, d != nil
}

// fill sets what the request is held to.
func (r *rule) fill(row *Row, attributes map[string]string) {
	row.Key, row.Group = join(r.key, r.By, attributes), join(r.slot, r.Slot, attributes)
	row.Limit, row.Deny = r.Limit, r.Deny
	if i := r.override(attributes); i >= 0 {
		row.Limit, row.Deny = r.Overrides[i].Limit, r.Overrides[i].Deny
	}
	row.Stated = row.Limit
}

// override returns the number of the first override that matches, or -1.
func (r *rule) override(attributes map[string]string) int32 {
	first := int32(-1)
	r.index.candidates(attributes, func(id int32) {
		if (first < 0 || id < first) && r.overrides[id].match(attributes) {
			first = id
		}
	})
	return first
}
