package policy

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzKey looks for two different lists of domain, rule and values, up to two,
// with one key.
func FuzzKey(f *testing.F) {
	f.Add("a", "b", "c", "d", uint8(2), "a", "b", "c:d", "", uint8(1))
	f.Add("a:b", "c", "", "", uint8(0), "a", "b:c", "", "", uint8(0))
	f.Add("a", "b", "%", "3A", uint8(2), "a", "b", "%3", "A", uint8(2))
	f.Add("a", "b", "\x00{}", ":", uint8(2), "a", "b", "\x00{", "}:", uint8(2))
	f.Add("a", "b", "", "", uint8(0), "a", "b", "", "", uint8(1))
	f.Add("a", "b", "%3A", "", uint8(1), "a", "b", ":", "", uint8(1))
	f.Fuzz(func(t *testing.T, d1, r1, x1, y1 string, n1 uint8, d2, r2, x2, y2 string, n2 uint8) {
		key1, parts1 := keyFor(d1, r1, x1, y1, n1)
		key2, parts2 := keyFor(d2, r2, x2, y2, n2)
		if (key1 == key2) != slices.Equal(parts1, parts2) {
			t.Errorf("%q has the key %q, and %q the key %q", parts1, key1, parts2, key2)
		}
		if len(parts1) != strings.Count(key1, ":")+1 {
			t.Errorf("%q has the key %q, want one separator less than parts", parts1, key1)
		}
	})
}

// keyFor returns the key of a rule by the first n%3 of x and y.
func keyFor(domain, name, x, y string, n uint8) (key string, parts []string) {
	r := newRule(domain, &Rule{Name: name, By: []string{"x", "y"}[:n%3]})
	return join(r.key, r.By, map[string]string{"x": x, "y": y}), append([]string{domain, name}, []string{x, y}[:n%3]...)
}

// FuzzGlob compares globMatch with a table of what each part of the glob
// matches of each part of the value.
func FuzzGlob(f *testing.F) {
	for _, c := range []struct{ glob, value string }{
		{"", ""}, {"*", ""}, {"?", ""}, {"?", "é"}, {"??", "é"}, {"a*b*c", "abcbc"}, {"*a?", "aaé"}, {"audit-*", "audit-"},
		{"*.org", "a.org.org"}, {"é*", "\xc3\xa9"}, {"\xc3*", "é"}, {"*\xa9", "é"}, {"*?", "\xff"}, {"a**?b", "aaab"},
		{"*ab*ab", "abab"}, {"*\x00*", "a\x00b"}, {"/a?b", "/a/b"},
	} {
		f.Add(c.glob, c.value)
	}
	f.Fuzz(func(t *testing.T, glob, value string) {
		if len(glob) > 200 || len(value) > 1000 {
			return
		}
		want := globTable(chars(glob), chars(value))
		if got := globMatch(glob, value); got != want {
			t.Errorf("globMatch(%q, %q) = %t, want %t", glob, value, got, want)
		}
		c := compileWhen(When{"x": {glob}})
		if got := c.match(map[string]string{"x": value}); got != want {
			t.Errorf("%q matches %q: %t, want %t", glob, value, got, want)
		}
		x := newIndex([]conditions{c})
		if want && tested(&x, map[string]string{"x": value}) == 0 {
			t.Errorf("the index does not find %q for %q", glob, value)
		}
	})
}

// chars splits s into UTF-8 sequences and bytes that are not part of one.
func chars(s string) []string {
	var cs []string
	for s != "" {
		_, n := utf8.DecodeRuneInString(s)
		cs, s = append(cs, s[:n]), s[n:]
	}
	return cs
}

// globTable fills in ok[v], whether the glob so far matches the first v
// characters, one character of the glob after another.
func globTable(glob, value []string) bool {
	ok := make([]bool, len(value)+1)
	ok[0] = true
	for _, g := range glob {
		next := make([]bool, len(value)+1)
		for v := range next {
			switch {
			case g == "*":
				next[v] = ok[v] || v > 0 && next[v-1]
			case v > 0:
				next[v] = ok[v-1] && (g == "?" || g == value[v-1])
			}
		}
		ok = next
	}
	return ok[len(value)]
}

// TestGlobTakesLinearTime would not end in a lifetime if stars were tried in
// all combinations.
func TestGlobTakesLinearTime(t *testing.T) {
	glob := strings.Repeat("*a", 40) + "*b"
	if value := strings.Repeat("a", 20_000); globMatch(glob, value) || !globMatch(glob, value+"b") {
		t.Errorf("%q must match %d times a with a b after them only", glob, len(value))
	}
}
