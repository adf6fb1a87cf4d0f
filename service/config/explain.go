package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Explain reads what Load reads and says in words what each limit of the
// envoyproxy/ratelimit files among it does, in the order of the files and their
// lines. The error is that of Load.
func Explain(paths []string) ([]Finding, error) {
	l, err := load(paths)
	if err != nil {
		return nil, err
	}
	var sentences []Finding
	for _, d := range l.docs {
		if d.domain.Tree == nil {
			continue
		}
		t := linter{document: d}
		t.add(policy.Path{"domain"}, "domain %s: %s", d.domain.Name, counting(d.domain.Tree))
		t.explain(policy.Path{"descriptors"}, nil, false, d.domain.Tree.Descriptors)
		sentences = append(sentences, t.findings...)
	}
	return sentences, nil
}

// counting says how a tree counts.
func counting(t *policy.Tree) string {
	kept := t.Algorithm.String() + " windows"
	switch t.Algorithm {
	case 0, weir.FixedWindow:
		kept = "fixed windows by the clock"
	case weir.TokenBucket:
		kept = "token buckets"
	}
	charged := "a request that is denied is not counted"
	if t.ChargeOnDeny {
		charged = "a request that is denied is counted, too"
	}
	return "limits are kept in " + kept + "; " + charged
}

// explain says what a level does, whose requests have the conditions before.
// each says that one of those counts its values apart.
func (t *linter) explain(p policy.Path, before []string, each bool, ds []policy.Descriptor) {
	for i := range ds {
		d, q := &ds[i], p.At(i)
		conditions := append(slices.Clip(before), condition(d))
		each := each || d.Value == "" || strings.Contains(d.Value, "*") && !d.ShareThreshold
		if said := said(d, each); said != "" {
			t.add(q, "a request with %s: %s", strings.Join(conditions, " and "), said)
		}
		t.explain(q.At("descriptors"), conditions, each, d.Descriptors)
	}
}

// condition says what a descriptor matches.
func condition(d *policy.Descriptor) string {
	switch {
	case d.Value == "":
		return d.Key + " of any value"
	case d.ShareThreshold:
		return fmt.Sprintf("%s like %q (all counted together)", d.Key, d.Value)
	case strings.Contains(d.Value, "*"):
		return fmt.Sprintf("%s like %q", d.Key, d.Value)
	}
	return fmt.Sprintf("%s %q", d.Key, d.Value)
}

// said says what becomes of requests that arrive at a descriptor; "" if there
// is nothing to tell of those.
func said(d *policy.Descriptor, each bool) string {
	r := d.RateLimit
	switch {
	case r == nil && len(d.Descriptors) > 0:
		return ""
	case r == nil || r.Unlimited:
		return "no limit" + replacing(r)
	}
	text := fmt.Sprintf("%d %s %s", r.Requests, article(r.Unit), r.Unit)
	if r.Requests == 0 {
		text = "always denied"
	} else if each {
		text += " each"
	}
	if d.Shadow {
		text += ", in shadow: never denied"
	}
	if d.Quota {
		text += ", as a quota: denied only if all quotas of the request are used up"
	}
	return text + replacing(r)
}

func replacing(r *policy.RateLimit) string {
	if r == nil || len(r.Replaces) == 0 {
		return ""
	}
	return ", in place of " + strings.Join(r.Replaces, " and ")
}

func article(u policy.Unit) string {
	if u == policy.Hour {
		return "an"
	}
	return "a"
}
