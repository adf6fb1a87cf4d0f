package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// tree finds what does nothing in an envoyproxy/ratelimit file.
func (t *linter) tree(tree *policy.Tree) {
	if most := cmp.Or(t.server.Redis.Deadline, deadline); tree.Deadline > most {
		t.add(policy.Path{"deadline"}, "the shortest deadline holds, and that of the server is %s: write server: {deadline: %s} too, or leave this out", most, tree.Deadline)
	}
	if len(tree.Descriptors) == 0 {
		t.add(policy.Path{"descriptors"}, "this domain has no descriptors: nothing is limited")
	}
	t.level(policy.Path{"descriptors"}, tree.Descriptors, limitNames(tree.Descriptors))
}

// limitNames returns the names of all limits.
func limitNames(ds []policy.Descriptor) []string {
	var names []string
	for i := range ds {
		if r := ds[i].RateLimit; r != nil {
			names = append(names, r.Name)
		}
		names = append(names, limitNames(ds[i].Descriptors)...)
	}
	return names
}

func (t *linter) level(p policy.Path, ds []policy.Descriptor, names []string) {
	for i := range ds {
		d, q := &ds[i], p.At(i)
		if j := taken(ds, i); j >= 0 {
			t.add(q, "this never matches: %s takes all of its values before; put this one before it, or remove one of them", p.At(j))
		}
		if strings.Contains(d.Key, "*") {
			t.add(q.At("key"), "a star in a key is just a star: only a value can have a pattern")
		}
		t.idle(q, d, lifts(ds, i))
		if d.RateLimit != nil {
			t.rateLimit(q.At("rate_limit"), d.RateLimit, names)
		}
		t.level(q.At("descriptors"), d.Descriptors, names)
	}
}

// taken returns which descriptor takes every value of the one at i; -1 if none
// does. An exact value comes first wherever it is written, and a key alone last.
func taken(ds []policy.Descriptor, i int) int {
	d := &ds[i]
	pattern := strings.Contains(d.Value, "*")
	if d.Value != "" && !pattern {
		return -1
	}
	for j := range ds {
		o := &ds[j]
		switch {
		case o.Key != d.Key || !strings.Contains(o.Value, "*"):
		case !pattern && strings.Trim(o.Value, "*") == "":
			return j
		case pattern && j < i && swallow([]string{literal(o.Value)}, literal(d.Value)):
			return j
		}
	}
	return -1
}

// literal makes of a value a pattern of When, where '?' is one, too. What
// stands for it instead is in no value.
func literal(value string) string { return strings.ReplaceAll(value, "?", "\x00") }

// lifts reports whether the descriptor at i, which has no limit, frees requests
// from another.
func lifts(ds []policy.Descriptor, i int) bool {
	return ds[i].Value != "" && slices.ContainsFunc(ds, func(d policy.Descriptor) bool {
		return d.Key == ds[i].Key && (d.Value == "" || strings.Contains(d.Value, "*") && d.Value != ds[i].Value)
	})
}

// idle finds keys of a descriptor that do nothing.
func (t *linter) idle(p policy.Path, d *policy.Descriptor, lifts bool) {
	if d.RateLimit == nil {
		for _, key := range []string{"shadow_mode", "quota_mode", "detailed_metric", "metadata"} {
			if _, written := t.places[p.At(key).String()]; written {
				t.add(p.At(key), "this does nothing without a rate_limit beside it")
			}
		}
		if len(d.Descriptors) == 0 && !lifts {
			t.add(p, "this does nothing: it has neither a rate_limit nor descriptors, and there is no wider limit that it would lift")
		}
	}
}

func (t *linter) rateLimit(p policy.Path, r *policy.RateLimit, names []string) {
	_, written := t.places[p.At("requests_per_unit").String()]
	switch {
	case r.Unlimited && written:
		t.add(p.At("requests_per_unit"), "this does nothing beside unlimited: true")
	case !r.Unlimited && !written:
		t.add(p, "without requests_per_unit all is denied: write requests_per_unit: 0 if that is meant")
	case r.Requests > weir.MaxUnits:
		t.add(p.At("requests_per_unit"), "above %d this is kept as that: write unlimited: true if no limit is meant", weir.MaxUnits)
	}
	for i, name := range r.Replaces {
		if !slices.Contains(names, name) {
			t.add(p.At("replaces", i), "no rate_limit of this domain is named %s, so this replaces nothing", name)
		}
	}
}
