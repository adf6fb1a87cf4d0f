package config

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Server holds the settings of the server. Those not given are zero: their
// defaults are the server's.
type Server struct {
	// HTTP, GRPC, RESP and Admin are the addresses to listen on, host:port, or
	// "off".
	HTTP, GRPC, RESP, Admin string
	// AdminToken is what the admin address asks for.
	AdminToken string
	// Inline allows requests that bring a limit of their own.
	Inline *bool
	// LogLevel is debug, info, warn or error.
	LogLevel string
}

// setting is a key of the server mapping, and how its value is checked and kept.
type setting struct {
	key  string
	want string
	ok   func(string) bool
	set  func(*Server, string)
}

const (
	wantAddress = "an address such as :8080 or 127.0.0.1:8080, or off"
	wantBool    = "true or false"
	wantToken   = "a token such as the output of: openssl rand -hex 16"
	wantLevel   = "debug, info, warn or error"
)

var settings = []setting{
	{"http", wantAddress, isAddress, func(s *Server, v string) { s.HTTP = v }},
	{"grpc", wantAddress, isAddress, func(s *Server, v string) { s.GRPC = v }},
	{"resp", wantAddress, isAddress, func(s *Server, v string) { s.RESP = v }},
	{"admin", wantAddress, isAddress, func(s *Server, v string) { s.Admin = v }},
	{"admin_token", wantToken, func(v string) bool { return v != "" }, func(s *Server, v string) { s.AdminToken = v }},
	{"inline", wantBool, func(v string) bool { return v == "true" || v == "false" }, func(s *Server, v string) { yes := v == "true"; s.Inline = &yes }},
	{"log_level", wantLevel, func(v string) bool { return slices.Contains([]string{"debug", "info", "warn", "error"}, v) }, func(s *Server, v string) { s.LogLevel = v }},
}

// isAddress reports whether v is host:port, or off.
func isAddress(v string) bool {
	_, port, err := net.SplitHostPort(v)
	_, portErr := strconv.ParseUint(port, 10, 16)
	return v == "off" || err == nil && portErr == nil
}

// FromEnv replaces the settings for which lookup, such as os.LookupEnv, knows
// a value that is not empty: WEIR_HTTP, WEIR_GRPC, WEIR_RESP, WEIR_ADMIN,
// WEIR_ADMIN_TOKEN, WEIR_INLINE and WEIR_LOG_LEVEL. The error joins a
// *weir.InvalidError for each value that is wrong; those settings stay.
func (s *Server) FromEnv(lookup func(name string) (string, bool)) error {
	var errs []error
	for _, setting := range settings {
		name := "WEIR_" + strings.ToUpper(setting.key)
		switch value, _ := lookup(name); {
		case value == "":
		case !setting.ok(value):
			errs = append(errs, &weir.InvalidError{Field: name, Value: value, Want: setting.want})
		default:
			setting.set(s, value)
		}
	}
	return errors.Join(errs...)
}

// settings reads the server mapping, of which there is at most one.
func (d *document) settings(n *node, p policy.Path) {
	if d.serverAt != nil {
		d.fail(n, p, "there are server settings already, at %s: keep one of them", d.serverAt.place("").position())
		return
	}
	d.serverAt = &spot{d.source, n.line, n.column}
	fs := make(fields)
	for _, s := range settings {
		fs[s.key] = func(n *node, p policy.Path) {
			if text := d.text(n, p, s.want); text != "" && !s.ok(text) {
				d.fail(n, p, "%q: want %s", text, s.want)
			} else {
				s.set(&d.server, text)
			}
		}
	}
	d.mapping(n, p, `settings such as {http: ":8080"}`, fs)
}
