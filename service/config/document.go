package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/spell"
)

// document reads one document. Its methods take a node and its path, report to
// the loader what is wrong with it, and return what they could read.
type document struct {
	*loader
	source *source
	domain policy.Domain
	places map[string]spot
	failed map[string]bool // the paths of what could not be read
	left   int             // how much more aliases may repeat, see repeats
}

// fail reports that what is at p cannot be read.
func (d *document) fail(n *node, p policy.Path, format string, args ...any) *Error {
	e := &Error{Place: d.source.place(n.line, n.column, p.String()), Message: fmt.Sprintf(format, args...)}
	d.errs = append(d.errs, e)
	d.failed[p.String()] = true
	return e
}

// note remembers where p is.
func (d *document) note(n *node, p policy.Path) {
	d.places[p.String()] = spot{d.source, n.line, n.column}
}

// placeOf returns where p is written, or where what lacks it is.
func (d *document) placeOf(p policy.Path) Place {
	for n := len(p); n > 0; n-- {
		if at, ok := d.places[p[:n].String()]; ok {
			return at.place(p.String())
		}
	}
	return d.places[""].place(p.String())
}

// follows reports whether what is at p, or should be, could not be read.
func (d *document) follows(p policy.Path) bool {
	for n := range p {
		if d.failed[p[:n+1].String()] {
			return true
		}
	}
	switch last := len(p) - 1; {
	case p[last] == "limit":
		return d.failed[sibling(p, "deny").String()]
	case last > 0 && p[last-1] == "slot":
		return d.failed[sibling(p[:last], "by").String()]
	}
	return false
}

// fields reads the value of each key that a mapping may have.
type fields map[string]func(*node, policy.Path)

// mapping reads a mapping by its fields; want is what to write instead of
// something else, here and below.
func (d *document) mapping(n *node, p policy.Path, want string, fs fields) {
	known := slices.Sorted(maps.Keys(fs))
	d.pairs(n, p, want, func(key, value *node, p policy.Path) {
		if read := fs[key.text]; read != nil {
			read(value, p)
			return
		}
		if place := home(key.text); place != "" && d.domain.Tree != nil {
			d.fail(key, p, "this does nothing here: it belongs into %s", place)
			return
		}
		e := d.fail(key, p, "unknown key")
		if e.Nearest = spell.Nearest(key.text, known); e.Nearest == "" {
			e.Message += "; known here are " + strings.Join(known, ", ")
			return
		}
		if n.find(e.Nearest).key == nil {
			d.failed[sibling(p, e.Nearest).String()] = true
		}
	})
}

// pairs visits the keys of a mapping, each of which may be there once.
func (d *document) pairs(n *node, p policy.Path, want string, visit func(key, value *node, p policy.Path)) {
	if !d.is(mapping, n, p, want) {
		return
	}
	d.note(n, p)
	lines := make(map[string]int)
	for _, pair := range n.pairs {
		q := p.At(pair.key.text)
		switch line := lines[pair.key.text]; {
		case pair.key.kind == broken:
			d.fail(pair.key, p, "%s", pair.key.text)
		case pair.key.kind == list || pair.key.kind == mapping:
			d.fail(pair.key, p, "a key cannot be %s: write %s", pair.key.kind, want)
		case line > 0:
			d.fail(pair.key, q, "this key is already on line %d: keep one of them", line)
		default:
			lines[pair.key.text] = pair.key.line
			d.note(pair.value, q)
			visit(pair.key, pair.value, q)
		}
	}
}

// is reports whether n is of a kind.
func (d *document) is(k kind, n *node, p policy.Path, want string) bool {
	switch {
	case n.kind == broken:
		d.fail(n, p, "%s", n.text)
	case n.kind == null && k != null:
		d.fail(n, p, "there is no value: write %s", want)
	case n.kind != k:
		d.fail(n, p, "this is %s: write %s", n.kind, want)
	}
	return n.kind == k
}

// text reads a single value as it is written.
func (d *document) text(n *node, p policy.Path, want string) string {
	if !d.is(scalar, n, p, want) {
		return ""
	}
	if n.text == "" {
		d.fail(n, p, "there is no value: write %s", want)
	}
	return n.text
}

// boolean reads true or false.
func (d *document) boolean(n *node, p policy.Path) bool {
	return d.oneOf(n, p, "true", "false") == "true"
}

// oneOf reads one of some words, or "" if it is none of them.
func (d *document) oneOf(n *node, p policy.Path, words ...string) string {
	want := alternatives(words)
	word := d.text(n, p, want)
	if word != "" && !slices.Contains(words, word) {
		d.fail(n, p, "%q: want %s", word, want).Nearest = spell.Nearest(word, words)
		return ""
	}
	return word
}

// alternatives reads: allow, deny or local.
func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// texts reads a value or a list of values, which may be empty text.
func (d *document) texts(n *node, p policy.Path, want string) []string {
	if n.kind == scalar {
		return []string{n.text}
	}
	if !d.is(list, n, p, want) {
		return nil
	}
	values := make([]string, len(n.items))
	for i, item := range n.items {
		q := p.At(i)
		d.note(item, q)
		if d.is(scalar, item, q, want) {
			values[i] = item.text
		}
	}
	return values
}

// each visits the items of a list.
func (d *document) each(n *node, p policy.Path, want string, visit func(*node, policy.Path)) {
	if !d.is(list, n, p, want) {
		return
	}
	for i, item := range n.items {
		d.note(item, p.At(i))
		visit(item, p.At(i))
	}
}

// sibling is the path of another key of the mapping that p is in.
func sibling(p policy.Path, key string) policy.Path { return p[:len(p)-1].At(key) }
