package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/spell"
)

// What to write in envoyproxy/ratelimit files, in errors.
const (
	wantDescriptor  = "a descriptor such as {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 10}}"
	wantDescriptors = "a list of descriptors such as [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 10}}]"
	wantKey         = "a key such as remote_address"
	wantMatch       = `a value such as /login or "/api/*", or leave this out for any`
	wantRateLimit   = "a rate_limit such as {unit: minute, requests_per_unit: 10}"
	wantRequests    = "a number of requests from 0 to 4294967295, such as 10"
	wantLimitName   = "a name such as free-plan"
	wantReplaces    = "a list of names such as [{name: free-plan}]"
	wantReplaced    = "a name such as {name: free-plan}"
	wantMetadata    = "keys and values such as {plan: free}"
)

// tree reads a document of envoyproxy/ratelimit, and the keys that it may have
// here besides: algorithm, charge_on_deny, on_failure, deadline and server.
func (d *document) tree(n *node) {
	t := new(policy.Tree)
	d.domain.Tree = t
	d.left = len(d.source.text) + 10_000
	d.mapping(n, policy.Path{}, wantDocument, fields{
		"domain":      func(n *node, p policy.Path) { d.domain.Name = d.text(n, p, wantDomain) },
		"descriptors": func(n *node, p policy.Path) { t.Descriptors = d.descriptors(n, p) },
		"rules": func(n *node, p policy.Path) {
			d.fail(n, p, "a domain has either rules or descriptors: put these rules in a domain of their own")
		},
		"algorithm": func(n *node, p policy.Path) {
			t.Algorithm, _ = weir.ParseAlgorithm(d.oneOf(n, p, algorithms()...))
		},
		"charge_on_deny": func(n *node, p policy.Path) { t.ChargeOnDeny = d.yes(n, p) },
		"on_failure":     func(n *node, p policy.Path) { t.OnFailure = d.onFailure(n, p) },
		"deadline":       func(n *node, p policy.Path) { t.Deadline = d.deadline(n, p) },
		"server":         d.settings,
	})
}

// descriptors reads a level, which may be empty.
func (d *document) descriptors(n *node, p policy.Path) []policy.Descriptor {
	if n.kind == null {
		return nil
	}
	var level []policy.Descriptor
	d.each(n, p, wantDescriptors, func(n *node, p policy.Path) {
		if d.repeats(n, p) {
			level = append(level, d.descriptor(n, p))
		}
	})
	return level
}

// repeats counts what aliases may repeat, lest a small file becomes a huge tree,
// and reports whether there may be more.
func (d *document) repeats(n *node, p policy.Path) bool {
	if d.left--; d.left == 0 {
		d.fail(n, p, "the aliases of this file repeat too much: write out what you need")
	}
	return d.left > 0
}

func (d *document) descriptor(n *node, p policy.Path) policy.Descriptor {
	var out policy.Descriptor
	d.mapping(n, p, wantDescriptor, fields{
		"key": func(n *node, p policy.Path) { out.Key = d.text(n, p, wantKey) },
		"value": func(n *node, p policy.Path) {
			if d.is(scalar, n, p, wantMatch) {
				out.Value = n.text
			}
		},
		"rate_limit":      func(n *node, p policy.Path) { out.RateLimit = d.rateLimit(n, p) },
		"descriptors":     func(n *node, p policy.Path) { out.Descriptors = d.descriptors(n, p) },
		"share_threshold": func(n *node, p policy.Path) { out.ShareThreshold = d.yes(n, p) },
		"shadow_mode":     func(n *node, p policy.Path) { out.Shadow = d.yes(n, p) },
		"quota_mode":      func(n *node, p policy.Path) { out.Quota = d.yes(n, p) },
		"detailed_metric": func(n *node, p policy.Path) { out.DetailedMetric = d.yes(n, p) },
		"value_to_metric": func(n *node, p policy.Path) { out.ValueToMetric = d.yes(n, p) },
		"metadata": func(n *node, p policy.Path) {
			if d.is(mapping, n, p, wantMetadata) {
				out.Metadata, _ = d.data(n, p).(map[string]any)
			}
		},
	})
	return out
}

func (d *document) rateLimit(n *node, p policy.Path) *policy.RateLimit {
	r := new(policy.RateLimit)
	d.mapping(n, p, wantRateLimit, fields{
		"unit":              func(n *node, p policy.Path) { r.Unit = d.unit(n, p) },
		"requests_per_unit": func(n *node, p policy.Path) { r.Requests = d.requests(n, p) },
		"unlimited":         func(n *node, p policy.Path) { r.Unlimited = d.yes(n, p) },
		"name":              func(n *node, p policy.Path) { r.Name = d.text(n, p, wantLimitName) },
		"replaces": func(n *node, p policy.Path) {
			d.each(n, p, wantReplaces, func(n *node, p policy.Path) { r.Replaces = append(r.Replaces, d.replaced(n, p)) })
		},
	})
	return r
}

// requests reads a number as YAML 1.1 writes it.
func (d *document) requests(n *node, p policy.Path) int64 {
	text := d.text(n, p, wantRequests)
	requests, err := strconv.ParseUint(strings.ReplaceAll(text, "_", ""), 0, 32)
	if text != "" && err != nil {
		d.fail(n, p, "%q: want %s", text, wantRequests)
		return 0
	}
	return int64(requests)
}

func (d *document) replaced(n *node, p policy.Path) (name string) {
	d.mapping(n, p, wantReplaced, fields{"name": func(n *node, p policy.Path) { name = d.text(n, p, wantReplaced) }})
	return name
}

// home says where in an envoyproxy/ratelimit file a key belongs that is unknown
// where it is; "" if it is unknown everywhere.
func home(key string) string {
	switch key {
	case "unit", "requests_per_unit", "unlimited", "name", "replaces":
		return "a rate_limit"
	case "key", "value", "rate_limit", "descriptors", "share_threshold", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "metadata":
		return "a descriptor, beside its key"
	case "domain", "algorithm", "charge_on_deny", "on_failure", "deadline":
		return "the file, beside its domain"
	}
	return ""
}

func (d *document) unit(n *node, p policy.Path) policy.Unit {
	var words []string
	for u := policy.Second; u <= policy.Year; u++ {
		words = append(words, u.String())
	}
	want := alternatives(words)
	text := d.text(n, p, want)
	var u policy.Unit
	if err := u.UnmarshalText([]byte(text)); text != "" && err != nil {
		d.fail(n, p, "%q: want %s", text, want).Nearest = spell.Nearest(text, words)
	}
	return u
}

// yes reads a truth value in any of its spellings in YAML 1.1, which is what
// envoyproxy/ratelimit reads.
func (d *document) yes(n *node, p policy.Path) bool {
	text := d.text(n, p, wantBool)
	switch word := strings.ToLower(text); {
	case slices.Contains([]string{"true", "yes", "on", "y"}, word):
		return true
	case text != "" && !slices.Contains([]string{"false", "no", "off", "n"}, word):
		d.fail(n, p, "%q: want %s", text, wantBool)
	}
	return false
}

// data reads what may be anything.
func (d *document) data(n *node, p policy.Path) any {
	if !d.repeats(n, p) {
		return nil
	}
	switch n.kind {
	case null:
		return nil
	case scalar:
		return n.typed()
	case list:
		items := make([]any, len(n.items))
		for i, item := range n.items {
			items[i] = d.data(item, p.At(i))
		}
		return items
	}
	values := make(map[string]any)
	d.pairs(n, p, wantMetadata, func(key, value *node, p policy.Path) { values[key.text] = d.data(value, p) })
	return values
}
