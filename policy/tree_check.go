package policy

import (
	"errors"
	"strings"

	"github.com/weirlimit/weir"
)

// alone checks that a domain with a tree is named once.
func (c *checker) alone(p Path, d Domain) {
	first, known := c.domains[d.Name]
	switch {
	case d.Name == "":
	case !known:
		c.domains[d.Name] = named{p, d.Tree != nil}
	case first.tree || d.Tree != nil:
		c.add(p, "domain %s is there already, and the descriptors of a domain are all in one place: put them together, or give this domain a name of its own", clip(d.Name))
		c.errs[len(c.errs)-1].Other = first.at
	}
}

func (c *checker) tree(p Path, d Domain) {
	t := d.Tree
	if d.Name == "" {
		c.add(p.At("domain"), "a name is missing: write one such as edge")
	}
	if len(d.Rules) > 0 {
		c.add(p.At("rules"), "this domain has both rules and descriptors: keep one of them")
	}
	switch a := t.Algorithm; {
	case a > weir.TokenBucket:
		c.add(p.At("algorithm"), "%d is no algorithm: want one such as fixed-window or sliding-log", a)
	case t.ChargeOnDeny && a != 0 && a != weir.FixedWindow:
		c.add(p.At("charge_on_deny"), "only fixed windows can charge what they deny, and the algorithm is %s: leave out one of them", a)
	}
	if t.OnFailure > weir.OnFailureDeny {
		c.add(p.At("on_failure"), "%d is not one of allow, deny and local", t.OnFailure)
	}
	if t.Deadline < 0 {
		c.add(p.At("deadline"), "%s is negative: write how long the store may take, such as 20ms", t.Deadline)
	}
	c.descriptors(p.At("descriptors"), t, t.Descriptors)
}

func (c *checker) descriptors(p Path, t *Tree, ds []Descriptor) {
	names := make(map[string]int)
	for i := range ds {
		d, q := &ds[i], p.At(i)
		if d.Key == "" {
			c.add(q.At("key"), "this descriptor has no key: write one such as key: remote_address")
		} else if first, twice := names[d.composite()]; twice {
			c.add(q.At("key"), "%s is here twice, as key and value together: keep one of them", clip(d.composite()))
			c.errs[len(c.errs)-1].Other = p.At(first, "key")
		} else {
			names[d.composite()] = i
		}
		if d.ShareThreshold && !strings.Contains(d.Value, "*") {
			c.add(q.At("share_threshold"), "there is nothing to share without a star in the value: write one such as value: /api/*, or leave this out")
		}
		if d.RateLimit != nil {
			c.rateLimit(q.At("rate_limit"), t, d.RateLimit)
		}
		c.descriptors(q.At("descriptors"), t, d.Descriptors)
	}
}

func (c *checker) rateLimit(p Path, t *Tree, r *RateLimit) {
	switch {
	case r.Unlimited && r.Unit != 0:
		c.add(p.At("unit"), "what is unlimited has no unit: leave out unit, or unlimited")
	case r.Unlimited:
	case r.Unit == 0 || r.Unit > Year:
		c.add(p.At("unit"), "this rate_limit has no unit: write one such as unit: minute, or unlimited: true")
	case r.Requests < 0 || r.Requests > maxRequests:
		c.add(p.At("requests_per_unit"), "%d: want 0 to 4294967295 requests", r.Requests)
	case r.Requests > 0:
		c.kept(p.At("requests_per_unit"), t.kept(weir.Per(r.Requests, r.Unit.Window())))
	}
	for i, name := range r.Replaces {
		switch q := p.At("replaces", i, "name"); name {
		case "":
			c.add(q, "a name is missing: write that of the rate_limit to replace")
		case r.Name:
			c.add(q, "%s is this rate_limit itself, which cannot replace itself: name another, or leave this out", clip(name))
		}
	}
}

// maxRequests is the most that a rate_limit can say.
const maxRequests = 1<<32 - 1

// kept checks that the algorithm of a tree can keep a limit.
func (c *checker) kept(p Path, l weir.Limit) {
	var invalid *weir.InvalidError
	if errors.As(l.Validate(), &invalid) && l.Algorithm <= weir.TokenBucket {
		c.add(p, "%s %s: want %s", invalid.Field, invalid.Value, invalid.Want)
	}
}
