package policy

import "strings"

// Keys join the domain, the rule's name and the values with ':', each escaped
// so that it contains none. The number of values is that of the separators, so
// no two lists of parts have one key.

const hex = "0123456789ABCDEF"

// keyOf returns the key of the partition that the attributes belong to.
func (r *rule) keyOf(attributes map[string]string) string {
	if len(r.By) == 0 {
		return r.key
	}
	size := len(r.key)
	for _, name := range r.By {
		size += 1 + escapedLen(attributes[name])
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteString(r.key)
	for _, name := range r.By {
		b.WriteByte(':')
		writeEscaped(&b, attributes[name])
	}
	return b.String()
}

// keyStart is the key of a rule without By.
func keyStart(domain, rule string) string {
	var b strings.Builder
	writeEscaped(&b, domain)
	b.WriteByte(':')
	writeEscaped(&b, rule)
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
