package policy

import "strings"

// Keys join the domain, the rule's name and the values with ':', each escaped
// so that it contains none. The number of values is that of the separators, so
// no two lists of parts have one key. Groups are keys without a rule's name.

const hex = "0123456789ABCDEF"

// SplitKey returns what the Key of a Row was made of: the domain, the name of
// the rule and the values of its By, in order. Of a Tree, and of a limit that a
// request brought, the name is empty and the values are the key and value of
// each entry in turn, a value that is counted together with others as the
// pattern of its descriptor. Of a text that is no Key it returns what it can.
func SplitKey(key string) (domain, rule string, values []string) {
	parts := strings.Split(key, ":")
	for i, part := range parts {
		parts[i] = unescape.Replace(strings.TrimPrefix(part, sharedMark))
	}
	if len(parts) == 1 {
		return parts[0], "", nil
	}
	return parts[0], parts[1], parts[2:]
}

var unescape = strings.NewReplacer("%3A", ":", "%25", "%")

// sharedMark begins what stands for any value that matches a pattern. No escaped
// value begins so.
const sharedMark = "%*"

// join adds the values of the attributes named to the start of a key.
func join(start string, names []string, attributes map[string]string) string {
	if len(names) == 0 {
		return start
	}
	size := len(start)
	for _, name := range names {
		size += 1 + escapedLen(attributes[name])
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteString(start)
	for _, name := range names {
		b.WriteByte(':')
		writeEscaped(&b, attributes[name])
	}
	return b.String()
}

// escaped returns the part of a key that stands for s.
func escaped(s string) string {
	var b strings.Builder
	writeEscaped(&b, s)
	return b.String()
}

func special(c byte) bool { return c == ':' || c == '%' }

func escapedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		if special(s[i]) {
			n += 2
		}
	}
	return n
}

// writeEscaped writes ':' and '%' as in URLs and every other byte as it is.
func writeEscaped(b *strings.Builder, s string) {
	plain := 0
	for i := range len(s) {
		if c := s[i]; special(c) {
			b.WriteString(s[plain:i])
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
			plain = i + 1
		}
	}
	b.WriteString(s[plain:])
}
