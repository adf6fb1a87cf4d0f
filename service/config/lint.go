package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Finding is something that is allowed, but probably not what was meant.
type Finding struct {
	Place
	Message string `json:"message"`
}

// String reads file:line:column: path: message. The text of the line follows
// on a line of its own.
func (f Finding) String() string { return f.report(f.Message) }

// Lint reads what Load reads and returns its findings, in the order of the
// files and their lines. The error is that of Load.
func Lint(paths []string) ([]Finding, error) {
	l, err := load(paths)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, d := range l.docs {
		t := linter{document: d}
		for i, r := range d.domain.Rules {
			t.rule(policy.Path{"rules", i}, r)
		}
		if d.domain.Tree != nil {
			t.tree(d.domain.Tree)
		}
		findings = append(findings, t.findings...)
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return a.compare(b.Place) })
	return findings, nil
}

type linter struct {
	*document
	findings []Finding
}

func (t *linter) add(p policy.Path, format string, args ...any) {
	t.findings = append(t.findings, Finding{t.placeOf(p), fmt.Sprintf(format, args...)})
}

func (t *linter) rule(p policy.Path, r policy.Rule) {
	switch {
	case r.Optional && len(r.By) == 0:
		t.add(p.At("optional"), "this does nothing without by: name the attribute whose absence is to skip the rule")
	case r.Optional:
		t.add(p.At("optional"), "a request without %s is not held to this rule: a way around it, unless another rule limits such requests", strings.Join(r.By, " or "))
	}
	t.defaults(p, r)
	t.unreachable(p, r.Overrides)
	t.failure(p, r)
}

// deadline is that of a server that is told no other.
const deadline = 50 * time.Millisecond

// failure finds what is said of a store in vain.
func (t *linter) failure(p policy.Path, r policy.Rule) {
	limited := func(o policy.Override) bool { return !o.Deny }
	if r.Deny && !slices.ContainsFunc(r.Overrides, limited) {
		for _, key := range []string{"on_failure", "deadline"} {
			if _, written := t.places[p.At(key).String()]; written {
				t.add(p.At(key), "this does nothing: a rule that only denies asks no store")
			}
		}
		return
	}
	if most := cmp.Or(t.server.Redis.Deadline, deadline); r.Deadline > most {
		t.add(p.At("deadline"), "the shortest deadline holds, and that of the server is %s: write server: {deadline: %s} too, or leave this out", most, r.Deadline)
	}
}

// defaults finds overrides that name no algorithm and so are kept by another
// than their rule.
func (t *linter) defaults(p policy.Path, r policy.Rule) {
	for i, o := range r.Overrides {
		if r.Deny || o.Deny || !plain(o.Limit) {
			continue
		}
		of, by := algorithm(r.Limit), algorithm(o.Limit)
		if of == by {
			continue
		}
		name := of
		if of == weir.SlidingLog { // which this override may be too large for
			name = by
		}
		t.add(p.At("overrides", i, "limit"), "%s is kept by %s, the default for its size, and the rule's %s by %s: what a key has used does not carry over between them; write algorithm: %s beside the rule's limit",
			o.Limit, by, r.Limit, of, name)
	}
}

// plain reports whether a limit leaves its algorithm to its size.
func plain(l weir.Limit) bool { return l == weir.Per(l.Max, l.Window) }

func algorithm(l weir.Limit) weir.Algorithm {
	l, _ = l.Normal() // it has been compiled
	return l.Algorithm
}

// unreachable finds overrides of which every request is taken by an earlier
// one. It asks a policy with a rule for each of them which ones match an example.
func (t *linter) unreachable(p policy.Path, overrides []policy.Override) {
	var rules []policy.Rule
	for i, o := range overrides {
		rules = append(rules, policy.Rule{Name: strconv.Itoa(i), When: o.When, Deny: true})
	}
	all := compiled(rules)
	for i, o := range overrides {
		rows, _ := all.Match(nil, probe, example(o.When))
		for _, row := range rows {
			j, _ := strconv.Atoi(row.Rule.Name)
			if j < i && covers(overrides[j].When, o.When) {
				t.add(p.At("overrides", i), "this override never matches: overrides[%d] takes all of its requests; put this one before it, or remove it", j)
				break
			}
		}
	}
}

const probe = "probe"

// compiled compiles rules made of parts of a policy, which cannot fail.
func compiled(rules []policy.Rule) *policy.Policy {
	p, err := policy.Compile([]policy.Domain{{Name: probe, Rules: rules}})
	if err != nil {
		return new(policy.Policy)
	}
	return p
}

// example is a request that w matches: a glob matches its own text.
func example(w policy.When) map[string]string {
	attributes := make(map[string]string)
	for name, patterns := range w {
		attributes[name] = patterns[0]
	}
	return attributes
}

// covers reports whether w surely matches all that narrow matches.
func covers(w, narrow policy.When) bool {
	for name, patterns := range w {
		if len(narrow[name]) == 0 {
			return false
		}
		for _, pattern := range narrow[name] {
			if !slices.Contains(patterns, pattern) && !swallow(patterns, pattern) {
				return false
			}
		}
	}
	return true
}

// swallow reports whether one of the patterns matches all that pattern
// matches. That holds if it matches the text of it, unless a '?' has taken a '*'.
func swallow(patterns []string, pattern string) bool {
	if strings.Contains(pattern, "*") && strings.Contains(strings.Join(patterns, ""), "?") {
		return false
	}
	p := compiled([]policy.Rule{{Name: probe, When: policy.When{probe: patterns}, Deny: true}})
	rows, _ := p.Match(nil, probe, map[string]string{probe: pattern})
	return len(rows) > 0
}
