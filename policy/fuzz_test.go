package policy

import (
	"slices"
	"strconv"
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

// FuzzDescriptors looks for two lists of entries, up to two each, that share
// their state though they must not, or the other way round, under a tree in
// which the first key shares its values that match a pattern.
func FuzzDescriptors(f *testing.F) {
	f.Add("a", "b*", "a", "bc", "u", "x", uint8(2), "a", "bd", "u", "x", uint8(2))
	f.Add("a", "b*", "a", "b*", "", "", uint8(1), "a", "%*b*", "", "", uint8(1))
	f.Add("a", "*b", "a:b", "", "", "", uint8(1), "a", "b:", "", "", uint8(1))
	f.Add("a", "*", "a", "x", "a", "y", uint8(2), "a", "x:a:y", "", "", uint8(1))
	f.Add("", "*", "", "", "", "", uint8(2), "", "", "", "", uint8(1))
	f.Add("a", "?*", "a", "%", "3A", "", uint8(2), "a", "%3A", "", "", uint8(2))
	f.Fuzz(func(t *testing.T, key, value, k1, v1, k2, v2 string, n uint8, l1, w1, l2, w2 string, m uint8) {
		if strings.Count(value, "*") > 3 || len(v1) > 60 || len(w1) > 60 {
			return // naiveStars takes too long
		}
		limit := &RateLimit{Requests: 5, Unit: Minute}
		descriptors := []Descriptor{{Key: key, Value: value, ShareThreshold: true, RateLimit: limit}}
		for _, k := range []string{k1, l1} {
			descriptors = append(descriptors, Descriptor{Key: k, RateLimit: limit})
		}
		for i := range descriptors {
			descriptors[i].Descriptors = []Descriptor{{Key: k2, RateLimit: limit}, {Key: l2, RateLimit: limit}}
		}
		_, _ = Compile([]Domain{{Name: "d", Tree: &Tree{Descriptors: descriptors}}}) // whatever it says of such keys
		top, _ := newTree(&Tree{Descriptors: descriptors})
		d := &domain{start: "d", tree: top}
		one, two := []Entry{{k1, v1}, {k2, v2}}[:n%3], []Entry{{l1, w1}, {l2, w2}}[:m%3]
		key1, parts1 := d.counted(one, key, value)
		key2, parts2 := d.counted(two, key, value)
		if (key1 == key2) != slices.Equal(parts1, parts2) {
			t.Errorf("%q has the key %q, and %q the key %q", parts1, key1, parts2, key2)
		}
		attributes := make(map[string]string)
		for _, e := range one {
			attributes[e.Key] = e.Value
		}
		d.tree.arrange(nil, attributes)
	})
}

// counted returns the key of entries and what it must stand for, in which a
// pattern that is shared takes the place of values.
func (d *domain) counted(entries []Entry, key, value string) (text string, parts []string) {
	for i, e := range entries {
		shared := i == 0 && e.Key == key && strings.Contains(value, "*") && naiveStars(value, e.Value)
		if shared {
			e.Value = value
		}
		parts = append(parts, e.Key, strconv.FormatBool(shared), e.Value)
	}
	for _, row := range d.matchEntries(nil, entries) {
		text = row.Key
	}
	return text, parts
}

// naiveStars tries every split of value.
func naiveStars(pattern, value string) bool {
	switch {
	case pattern == "":
		return value == ""
	case pattern[0] == '*':
		return naiveStars(pattern[1:], value) || value != "" && naiveStars(pattern, value[1:])
	}
	return value != "" && pattern[0] == value[0] && naiveStars(pattern[1:], value[1:])
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
