package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Event is one request of a trace: when it came, and what it was.
type Event struct {
	Time       time.Time
	Attributes map[string]string
}

// ParseLine reads a line of an access log in the common or the combined format:
//
//	HOST IDENT USER [02/Jan/2006:15:04:05 -0700] "METHOD TARGET HTTP/1.1" STATUS BYTES
//	HOST IDENT USER [02/Jan/2006:15:04:05 -0700] "METHOD TARGET HTTP/1.1" STATUS BYTES "REFERER" "USER AGENT"
//
// The attributes are ip (HOST as it stands), method, path (TARGET without its
// query), status, referer and user_agent, with backslash escapes undone. One
// that the line does not know, because its format lacks it or says "-", is
// left out. So are method and path when the request line is anything else, such
// as "-" or a stray TLS handshake: it was a request all the same. Spaces in
// TARGET belong to it. What follows the user agent is ignored.
//
// The error says which field is missing or malformed, and what belongs there.
func ParseLine(line string) (Event, error) {
	f := fields{rest: strings.TrimRight(line, "\r\n")}
	host := f.word("host")
	f.word("identity")
	f.word("user")
	at := f.time()
	method, path := splitRequest(f.quoted("request"))
	status := f.word("status")
	f.check("status", status, "three digits, such as 200", len(status) == 3 && digits(status))
	size := f.word("bytes")
	f.check("bytes", size, `a number, such as 5120, or "-"`, size == "-" || digits(size))
	referer, agent := "-", "-"
	if f.rest != "" {
		referer, agent = f.quoted("referer"), f.quoted("user agent")
	}
	if f.err != nil {
		return Event{}, f.err
	}
	return Event{Time: at, Attributes: known(
		"ip", host, "method", method, "path", path, "status", status, "referer", referer, "user_agent", agent)}, nil
}

// known makes attributes of names and values, without those that say "-".
func known(pairs ...string) map[string]string {
	a := make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "-" {
			a[pairs[i]] = pairs[i+1]
		}
	}
	return a
}

// splitRequest takes a request line apart; both are "-" if it is none.
func splitRequest(line string) (method, path string) {
	method, rest, _ := strings.Cut(line, " ")
	end := strings.LastIndexByte(rest, ' ')
	if method == "" || end < 1 || !strings.HasPrefix(rest[end+1:], "HTTP/") {
		return "-", "-"
	}
	path, _, _ = strings.Cut(rest[:end], "?")
	return method, path
}

// fields takes a line apart from its left. After the first error it goes on
// without finding anything.
type fields struct {
	rest string
	err  error
}

func (f *fields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(name+": "+format, args...)
	}
	f.rest = ""
}

func (f *fields) check(name, got, want string, ok bool) {
	if !ok {
		f.fail(name, "want %s, got %s", want, excerpt(got))
	}
}

// excerpt quotes the beginning of s, which may hold anything.
func excerpt(s string) string {
	if len(s) > 40 {
		return strconv.Quote(s[:40]) + "..."
	}
	return strconv.Quote(s)
}

// begin skips spaces and reports whether a field follows.
func (f *fields) begin(name string) bool {
	f.rest = strings.TrimLeft(f.rest, " ")
	if f.rest == "" {
		f.fail(name, "missing, the line ends before it")
	}
	return f.rest != ""
}

// word takes what comes before the next space.
func (f *fields) word(name string) string {
	if !f.begin(name) {
		return ""
	}
	word, rest, _ := strings.Cut(f.rest, " ")
	f.rest = rest
	return word
}

const timeLayout = "02/Jan/2006:15:04:05 -0700"

// time takes the time in brackets. Stores count microseconds since 1970 below 2^53.
func (f *fields) time() time.Time {
	if !f.begin("time") {
		return time.Time{}
	}
	text, rest, closed := strings.Cut(strings.TrimPrefix(f.rest, "["), "]")
	at, err := time.Parse(timeLayout, text)
	year := at.UTC().Year()
	ok := f.rest[0] == '[' && closed && err == nil && year >= 1970 && year < 2200
	f.check("time", f.rest, "["+timeLayout+"] after three words", ok)
	if ok {
		f.rest = rest
	}
	return at.UTC()
}

// quoted takes a string in double quotes and undoes its escapes.
func (f *fields) quoted(name string) string {
	if !f.begin(name) {
		return ""
	}
	if f.rest[0] != '"' {
		f.fail(name, "want it in double quotes, got %s", excerpt(f.rest))
		return ""
	}
	for i := 1; i < len(f.rest); i++ {
		switch f.rest[i] {
		case '\\':
			i++
		case '"':
			text := f.rest[1:i]
			f.rest = f.rest[i+1:]
			return unescape(text)
		}
	}
	f.fail(name, "its closing quote is missing, the line is cut short")
	return ""
}

// unescape undoes the escapes of Apache and nginx: \" \\ \n \t and the like,
// and \xhh for any byte. Anything else after a backslash stays as it is.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for s != "" {
		c, multibyte, tail, err := strconv.UnquoteChar(s, '"')
		switch {
		case err != nil || s[0] != '\\':
			b.WriteByte(s[0])
			s = s[1:]
		case multibyte:
			b.WriteString(s[:len(s)-len(tail)])
			s = tail
		default:
			b.WriteByte(byte(c))
			s = tail
		}
	}
	return b.String()
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
