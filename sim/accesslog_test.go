package sim_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/sim"
)

func TestParseLine(t *testing.T) {
	at := time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC)
	const start = `192.0.2.7 - - [17/May/2015:10:05:03 +0000] `
	tests := []struct {
		name, line string
		want       map[string]string
	}{
		{"combined", start + `"GET /a/b.png HTTP/1.1" 200 5120 "http://example.com/" "Mozilla/5.0 (X11)"`, map[string]string{
			"ip": "192.0.2.7", "method": "GET", "path": "/a/b.png", "status": "200", "referer": "http://example.com/", "user_agent": "Mozilla/5.0 (X11)"}},
		{"common", start + `"GET /a HTTP/1.1" 304 -`, map[string]string{
			"ip": "192.0.2.7", "method": "GET", "path": "/a", "status": "304"}},
		{"windows line end", start + `"GET /a HTTP/1.1" 304 -` + "\r\n", map[string]string{
			"ip": "192.0.2.7", "method": "GET", "path": "/a", "status": "304"}},
		{"no referer, no agent", start + `"HEAD / HTTP/2.0" 200 0 "-" "-"`, map[string]string{
			"ip": "192.0.2.7", "method": "HEAD", "path": "/", "status": "200"}},
		{"empty referer", start + `"GET / HTTP/1.1" 200 0 "" "curl/8"`, map[string]string{
			"ip": "192.0.2.7", "method": "GET", "path": "/", "status": "200", "referer": "", "user_agent": "curl/8"}},
		{"query", start + `"GET /search?q=a+b?c HTTP/1.1" 200 1`, map[string]string{
			"ip": "192.0.2.7", "method": "GET", "path": "/search", "status": "200"}},
		{"escapes", start + `"GET /\"a\\b\xe4\t HTTP/1.1" 200 1 "\x22\q\u00e9" "say \"hi\", \\"`, map[string]string{
			"ip": "192.0.2.7", "method": "GET", "path": "/\"a\\b\xe4\t", "status": "200", "referer": `"\q\u00e9`, "user_agent": `say "hi", \`}},
		{"ipv6", `2001:db8::7 - frank [17/May/2015:12:05:03 +0200] "GET / HTTP/1.1" 200 1`, map[string]string{
			"ip": "2001:db8::7", "method": "GET", "path": "/", "status": "200"}},
		{"no request", start + `"-" 408 -`, map[string]string{"ip": "192.0.2.7", "status": "408"}},
		{"empty request", start + `"" 400 0`, map[string]string{"ip": "192.0.2.7", "status": "400"}},
		{"handshake", start + `"\x16\x03\x01\x02 \x01" 400 226`, map[string]string{"ip": "192.0.2.7", "status": "400"}},
		{"no protocol", start + `"GET /" 400 226`, map[string]string{"ip": "192.0.2.7", "status": "400"}},
		{"no target", start + `"GET HTTP/1.1" 400 226`, map[string]string{"ip": "192.0.2.7", "status": "400"}},
		{"spaces in the target", start + `"GET /a b c HTTP/1.1" 404 9`, map[string]string{
			"ip": "192.0.2.7", "method": "GET", "path": "/a b c", "status": "404"}},
		{"more fields", start + `"GET / HTTP/1.1" 200 1 "-" "curl/8" "203.0.113.9" 0.003`, map[string]string{
			"ip": "192.0.2.7", "method": "GET", "path": "/", "status": "200", "user_agent": "curl/8"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e, err := sim.ParseLine(test.line)
			if err != nil {
				t.Fatal(err)
			}
			if !e.Time.Equal(at) {
				t.Errorf("time %s, want %s", e.Time, at)
			}
			if !maps.Equal(e.Attributes, test.want) {
				t.Errorf("got  %q\nwant %q", e.Attributes, test.want)
			}
		})
	}
}

func TestParseLineRefuses(t *testing.T) {
	const start = `192.0.2.7 - - [17/May/2015:10:05:03 +0000] `
	tests := []struct{ line, want string }{
		{"", "host: missing, the line ends before it"},
		{"192.0.2.7", "identity: missing, the line ends before it"},
		{"192.0.2.7 - -", "time: missing, the line ends before it"},
		{`192.0.2.7 - - [17/May/2015:10:05 +0000] "GET / HTTP/1.1" 200 1`,
			`time: want [02/Jan/2006:15:04:05 -0700] after three words, got "[17/May/2015:10:05 +0000]`},
		{`192.0.2.7 - - 17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`, "time: want ["},
		{`192.0.2.7 - - [17/May/2015:10:05:03 +0000`, "time: want ["},
		{`192.0.2.7 - - [31/Dec/1969:23:59:59 +0000] "GET / HTTP/1.1" 200 1`, "time: want ["},
		{`192.0.2.7 - - [01/Jan/2200:00:00:00 +0000] "GET / HTTP/1.1" 200 1`, "time: want ["},
		{`www.example.com:80 192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`, "time: want ["},
		{start, "request: missing, the line ends before it"},
		{start + `GET / HTTP/1.1 200 1`, `request: want it in double quotes, got "GET / HTTP/1.1 200 1"`},
		{start + `"GET / HTTP/1.1`, "request: its closing quote is missing, the line is cut short"},
		{start + `"GET / HTTP/1.1\"`, "request: its closing quote is missing, the line is cut short"},
		{start + `"GET / HTTP/1.1"`, "status: missing, the line ends before it"},
		{start + `"GET / HTTP/1.1" 20 1`, `status: want three digits, such as 200, got "20"`},
		{start + `"GET / HTTP/1.1" 2xx 1`, `status: want three digits, such as 200, got "2xx"`},
		{start + `"GET / HTTP/1.1" 200`, "bytes: missing, the line ends before it"},
		{start + `"GET / HTTP/1.1" 200 -1`, `bytes: want a number, such as 5120, or "-", got "-1"`},
		{start + `"GET / HTTP/1.1" 200 1 "-"`, "user agent: missing, the line ends before it"},
		{start + `"GET / HTTP/1.1" 200 1 "-" "Mozilla/5.0 (compat`, "user agent: its closing quote is missing, the line is cut short"},
		{`{"time":"2015-05-17T10:05:03Z","path":"/"}`, "identity: missing"},
	}
	for _, test := range tests {
		e, err := sim.ParseLine(test.line)
		if err == nil {
			t.Errorf("ParseLine(%q) = %v, want an error with %q", test.line, e, test.want)
		} else if !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("ParseLine(%q)\n got error %q\nwant %q", test.line, err, test.want)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	for _, line := range []string{
		`192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 5120 "http://example.com/" "say \"hi\" \xe4\\"`,
		`2001:db8::7 - frank [17/May/2015:10:05:03 -0130] "-" 408 -`,
		`a b c [17/May/2015:10:05:03 +0000] "\x1" 000 0 "\"" "`,
		`- - - [] "" 200 - "\`,
		" \x00 \" [ ] \\",
		"",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e, err := sim.ParseLine(line)
		if err != nil {
			if e.Attributes != nil || !e.Time.IsZero() {
				t.Errorf("an event %v beside the error %v", e, err)
			}
			return
		}
		if status := e.Attributes["status"]; len(status) != 3 {
			t.Errorf("status %q", status)
		}
		if year := e.Time.Year(); year < 1970 || year >= 2200 {
			t.Errorf("year %d", year)
		}
		again, err := sim.ParseLine(line + "\r\n")
		if err != nil || !maps.Equal(again.Attributes, e.Attributes) {
			t.Errorf("with a line end %v, %v; without %v", again.Attributes, err, e.Attributes)
		}
	})
}
