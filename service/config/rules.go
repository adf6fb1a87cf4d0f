package config

import (
	"cmp"
	"errors"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/spell"
)

// What to write, in errors.
const (
	wantDocument  = "a mapping with a domain and its rules or descriptors, or with server settings"
	wantDomain    = "a name such as slack"
	wantRule      = "a rule such as {name: per-user, by: user, limit: 5/minute}"
	wantRules     = "a list of rules such as [{name: per-user, by: user, limit: 5/minute}]"
	wantName      = "a name such as per-user"
	wantWhen      = "attributes and their values, such as {path: /search}"
	wantValue     = `a value such as /search or "audit-*", or a list such as [spam, test]`
	wantBy        = "an attribute such as user, or a list such as [user, path]"
	wantLimit     = `a limit such as 5/minute, 100/30m or "10/s burst=20"`
	wantOverride  = "an override such as {when: {user: admin}, limit: 50/minute}"
	wantDeadline  = "how long the store may take, such as 20ms"
	wantSlot      = "domain, or a list of attributes of by such as [user]"
	wantOverrides = "a list of overrides such as [{when: {user: admin}, limit: 50/minute}]"
)

// read reads the whole document and reports whether it has a domain.
func (d *document) read(n *node) bool {
	root := policy.Path{}
	if n.find("descriptors").key != nil {
		d.tree(n)
		return true
	}
	if n.kind == mapping && len(n.pairs) == 0 {
		d.fail(n, root, nothing)
		return false
	}
	d.mapping(n, root, wantDocument, fields{
		"domain": func(n *node, p policy.Path) { d.domain.Name = d.text(n, p, wantDomain) },
		"rules": func(n *node, p policy.Path) {
			d.each(n, p, wantRules, func(n *node, p policy.Path) { d.domain.Rules = append(d.domain.Rules, d.rule(n, p)) })
		},
		"server":      d.settings,
		"descriptors": nil, // there are none, but the name may be misspelt
	})
	at := cmp.Or(n.find("rules").value, n.find("domain").value)
	if p := root.At("rules"); at != nil && len(d.domain.Rules) == 0 && !d.follows(p) && !d.failed["descriptors"] {
		d.fail(at, p, "this domain has no rules: write %s", wantRules)
	}
	return at != nil
}

func (d *document) rule(n *node, p policy.Path) policy.Rule {
	var r policy.Rule
	var limit limitKeys
	var overrides []override
	fs := limit.fields(d)
	fs["name"] = func(n *node, p policy.Path) { r.Name = d.text(n, p, wantName) }
	fs["when"] = func(n *node, p policy.Path) { r.When = d.when(n, p) }
	fs["by"] = func(n *node, p policy.Path) { r.By = d.texts(n, p, wantBy) }
	fs["optional"] = func(n *node, p policy.Path) { r.Optional = d.boolean(n, p) }
	fs["deny"] = func(n *node, p policy.Path) { r.Deny = d.boolean(n, p) }
	fs["shadow"] = func(n *node, p policy.Path) { r.Shadow = d.boolean(n, p) }
	fs["on_failure"] = func(n *node, p policy.Path) { r.OnFailure = d.onFailure(n, p) }
	fs["deadline"] = func(n *node, p policy.Path) { r.Deadline = d.deadline(n, p) }
	fs["slot"] = func(n *node, p policy.Path) { r.Slot, r.SlotDomain = d.slot(n, p) }
	fs["overrides"] = func(n *node, p policy.Path) {
		d.each(n, p, wantOverrides, func(n *node, p policy.Path) { overrides = append(overrides, d.override(n, p)) })
	}
	d.mapping(n, p, wantRule, fs)
	r.Limit = d.join(limit, limitKeys{}, p)
	for i, o := range overrides {
		o.Limit = d.join(o.keys, limit, p.At("overrides", i))
		r.Overrides = append(r.Overrides, o.Override)
	}
	return r
}

func (d *document) onFailure(n *node, p policy.Path) (o weir.OnFailure) {
	_ = o.UnmarshalText([]byte(d.oneOf(n, p, "allow", "deny", "local"))) // what oneOf refused stays local
	return o
}

func (d *document) deadline(n *node, p policy.Path) time.Duration {
	text := d.text(n, p, wantDeadline)
	v, err := time.ParseDuration(text)
	if text != "" && (err != nil || v <= 0) {
		d.fail(n, p, "%q: want %s", text, wantDeadline)
	}
	return v
}

// slot reads what picks the slot of a rule.
func (d *document) slot(n *node, p policy.Path) (attributes []string, domain bool) {
	switch {
	case n.kind != list:
		word := d.text(n, p, wantSlot)
		if word != "" && word != "domain" {
			d.fail(n, p, "%q: want %s", word, wantSlot).Nearest = spell.Nearest(word, []string{"domain"})
		}
		return nil, word == "domain"
	case len(n.items) == 0:
		d.fail(n, p, "there is no attribute: write %s", wantSlot)
	}
	return d.texts(n, p, wantSlot), false
}

// override is read before the keys beside its rule's limit are known.
type override struct {
	policy.Override
	keys limitKeys
}

func (d *document) override(n *node, p policy.Path) override {
	var o override
	fs := o.keys.fields(d)
	fs["when"] = func(n *node, p policy.Path) { o.When = d.when(n, p) }
	fs["deny"] = func(n *node, p policy.Path) { o.Deny = d.boolean(n, p) }
	d.mapping(n, p, wantOverride, fs)
	return o
}

func (d *document) when(n *node, p policy.Path) policy.When {
	w := make(policy.When)
	d.pairs(n, p, wantWhen, func(key, value *node, p policy.Path) {
		w[key.text] = d.texts(value, p, wantValue)
	})
	return w
}

// limitKeys are the keys that make a limit, as far as they are there and right.
type limitKeys struct {
	limit     weir.Limit
	algorithm weir.Algorithm
	epoch     bool
	at        map[string]*node // by key
}

// fields reads into k.
func (k *limitKeys) fields(d *document) fields {
	k.at = make(map[string]*node)
	return fields{
		"limit": func(n *node, p policy.Path) {
			k.at["limit"] = n
			k.limit = d.limit(n, p)
		},
		"algorithm": func(n *node, p policy.Path) {
			k.at["algorithm"] = n
			k.algorithm, _ = weir.ParseAlgorithm(d.oneOf(n, p, algorithms()...))
		},
		"align": func(n *node, p policy.Path) {
			k.at["align"] = n
			k.epoch = d.oneOf(n, p, "epoch") != ""
		},
	}
}

func algorithms() []string {
	var names []string
	for a := weir.SlidingLog; a <= weir.TokenBucket; a++ {
		names = append(names, a.String())
	}
	return names
}

// limit reads the text of a limit.
func (d *document) limit(n *node, p policy.Path) weir.Limit {
	text := d.text(n, p, wantLimit)
	if text == "" {
		return weir.Limit{}
	}
	l, err := weir.ParseLimit(text)
	if invalid, ok := errors.AsType[*weir.InvalidError](err); ok {
		d.fail(n, p, "%q: want %s", invalid.Value, invalid.Want)
		return weir.Limit{}
	}
	return l
}

// join makes one limit of the keys of the rule or override at p. An override
// that says nothing of an algorithm is kept as the keys of its rule say.
func (d *document) join(k, rule limitKeys, p policy.Path) weir.Limit {
	l, key := k.limit, "limit"
	if l == weir.Per(l.Max, l.Window) && k.at["algorithm"] == nil && k.at["align"] == nil {
		k.algorithm, k.epoch = rule.algorithm, rule.epoch
	}
	for _, name := range []string{"align", "algorithm"} {
		if k.at[name] != nil {
			key = name
		}
	}
	switch at := k.at[key]; {
	case k.at["limit"] == nil && key != "limit":
		d.fail(at, p.At(key), "there is no limit beside this: write one such as limit: 5/minute")
		d.failed[p.At("limit").String()] = true
		return l
	case l == weir.Limit{}:
		return l
	case k.algorithm != 0 && l.Algorithm != 0 && l.Algorithm != k.algorithm:
		d.fail(at, p.At(key), "the limit's text says %s: name one algorithm, in one place", l.Algorithm)
		return l
	}
	joined := l
	if k.algorithm != 0 {
		joined.Algorithm = k.algorithm
	}
	joined.Epoch = l.Epoch || k.epoch
	if invalid, ok := errors.AsType[*weir.InvalidError](joined.Validate()); ok {
		d.fail(k.at[key], p.At(key), "%s %s: want %s", invalid.Field, invalid.Value, invalid.Want)
		return l
	}
	return joined
}
