package policy

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// conditions is a compiled When: all of them must hold.
type conditions []condition

// condition holds if the attribute's value is one of exact or matches one of globs.
type condition struct {
	attribute string
	exact     []string // sorted
	globs     []string
}

func compileWhen(w When) conditions {
	cs := make(conditions, 0, len(w))
	for _, name := range slices.Sorted(maps.Keys(w)) {
		c := condition{attribute: name}
		for _, pattern := range w[name] {
			if strings.ContainsAny(pattern, "*?") {
				c.globs = append(c.globs, pattern)
			} else {
				c.exact = append(c.exact, pattern)
			}
		}
		slices.Sort(c.exact)
		cs = append(cs, c)
	}
	return cs
}

func (cs conditions) match(attributes map[string]string) bool {
	for i := range cs {
		if !cs[i].match(attributes[cs[i].attribute]) {
			return false
		}
	}
	return true
}

func (c *condition) match(value string) bool {
	if _, found := slices.BinarySearch(c.exact, value); found {
		return true
	}
	for _, glob := range c.globs {
		if globMatch(glob, value) {
			return true
		}
	}
	return false
}

// globMatch reports whether glob matches the whole of value. A character is a
// UTF-8 sequence, or a byte that is not part of one.
//
// After a mismatch only the last '*' is extended: an earlier one that took
// less could only have left more to the last one. So the time is at most
// len(glob) * len(value), however many stars there are.
func globMatch(glob, value string) bool {
	g, v := 0, 0
	star, taken := -1, 0 // the last '*', and the end of what it has taken
	for v < len(value) {
		width := charLen(value[v:])
		switch {
		case g < len(glob) && glob[g] == '*':
			star, taken = g, v
			g++
			if g == len(glob) {
				return true
			}
		case g < len(glob) && glob[g] == '?':
			g++
			v += width
		case strings.HasPrefix(glob[g:], value[v:v+width]) && charLen(glob[g:]) == width:
			g += width
			v += width
		case star >= 0:
			taken += charLen(value[taken:])
			g, v = star+1, taken
		default:
			return false
		}
	}
	return strings.Trim(glob[g:], "*") == ""
}

func charLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}
