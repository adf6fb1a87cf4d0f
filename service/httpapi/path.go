package httpapi

import (
	"path"
	"strings"
)

// normalPath returns the path of a request's target as servers commonly see it,
// so that one resource has one spelling: without query, scheme and host;
// escapes of unreserved characters (RFC 3986) decoded, those of others in upper
// case; a % that begins none escaped, and bytes outside of printable ASCII;
// several slashes as one; dot segments resolved. Case, a slash at the end, and
// what else is escaped stay as they are.
func normalPath(target string) string {
	if len(target) > 0 && target[0] != '/' {
		target = afterHost(target)
	}
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	decoded := unescape("/" + target)
	clean := path.Clean(decoded)
	last := decoded[strings.LastIndexByte(decoded, '/')+1:]
	if clean != "/" && (last == "" || last == "." || last == "..") {
		clean += "/"
	}
	return clean
}

// afterHost returns what follows the host of an absolute http URL.
func afterHost(target string) string {
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return target
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return rest[i:]
	}
	return ""
}

const hexDigits = "0123456789ABCDEF"

// unescape decodes what needs no escape and escapes what does.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c, escaped := s[i], s[i] == '%'
		if escaped && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
		}
		if escaped && !unreserved(c) || c <= ' ' || c >= 0x7f {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

func unreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// normalHost returns the name that a Host field has, without what does not
// matter: case, port, and the dot of the root.
func normalHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
