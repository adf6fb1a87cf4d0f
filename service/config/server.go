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
	// Redis is where limits are kept; without a URL, in memory.
	Redis Redis
}

// Redis holds the settings of a store on Redis or Valkey. All but URL have
// defaults there.
type Redis struct {
	// URL names the server, and may hold a user and a password.
	URL string
	// Username and Password win over those of the URL.
	Username string
	Password Secret
	// Prefix begins the name of every key.
	Prefix string
	// KeySecret, if not empty, hides in the names of keys what is limited.
	KeySecret Secret
	// Mode is scripts or plain.
	Mode string
	// Layout, of sliding logs, is packed or sorted-set.
	Layout string
}

// Secret is a Text, or is in a File, whose final line break does not count.
// The File wins.
type Secret struct{ Text, File string }

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
	wantURL     = "a URL such as redis://10.0.0.7:6379"
	wantUser    = "the name of a user"
	wantFile    = "the path of a file that holds the secret"
	wantPrefix  = "the beginning of all keys, such as weir"
	wantMode    = "scripts or plain"
	wantLayout  = "packed or sorted-set"
)

var settings = []setting{
	{"http", wantAddress, isAddress, func(s *Server, v string) { s.HTTP = v }},
	{"grpc", wantAddress, isAddress, func(s *Server, v string) { s.GRPC = v }},
	{"resp", wantAddress, isAddress, func(s *Server, v string) { s.RESP = v }},
	{"admin", wantAddress, isAddress, func(s *Server, v string) { s.Admin = v }},
	{"admin_token", wantToken, notEmpty, func(s *Server, v string) { s.AdminToken = v }},
	{"inline", wantBool, func(v string) bool { return v == "true" || v == "false" }, func(s *Server, v string) { yes := v == "true"; s.Inline = &yes }},
	{"log_level", wantLevel, among("debug", "info", "warn", "error"), func(s *Server, v string) { s.LogLevel = v }},
	{"redis", wantURL, notEmpty, func(s *Server, v string) { s.Redis.URL = v }},
	{"redis_username", wantUser, notEmpty, func(s *Server, v string) { s.Redis.Username = v }},
	{"redis_password_file", wantFile, notEmpty, func(s *Server, v string) { s.Redis.Password = Secret{File: v} }},
	{"redis_prefix", wantPrefix, notEmpty, func(s *Server, v string) { s.Redis.Prefix = v }},
	{"redis_key_secret_file", wantFile, notEmpty, func(s *Server, v string) { s.Redis.KeySecret = Secret{File: v} }},
	{"redis_mode", wantMode, among("scripts", "plain"), func(s *Server, v string) { s.Redis.Mode = v }},
	{"redis_layout", wantLayout, among("packed", "sorted-set"), func(s *Server, v string) { s.Redis.Layout = v }},
}

func notEmpty(v string) bool { return v != "" }

func among(words ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(words, v) }
}

// isAddress reports whether v is host:port, or off.
func isAddress(v string) bool {
	_, port, err := net.SplitHostPort(v)
	_, portErr := strconv.ParseUint(port, 10, 16)
	return v == "off" || err == nil && portErr == nil
}

// FromEnv replaces the settings for which lookup, such as os.LookupEnv, knows
// a value that is not empty. A variable is called as the key of the server
// mapping, WEIR_HTTP or WEIR_ADMIN_TOKEN for example; secrets that no file of
// rules should hold are in WEIR_REDIS_PASSWORD and WEIR_REDIS_KEY_SECRET. The
// error joins a *weir.InvalidError for each value that is wrong; those settings
// stay.
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
	return errors.Join(append(errs,
		s.Redis.Password.fromEnv(lookup, "WEIR_REDIS_PASSWORD"),
		s.Redis.KeySecret.fromEnv(lookup, "WEIR_REDIS_KEY_SECRET"))...)
}

// fromEnv replaces s if the variable is set, beside which the one that names a
// file must not be.
func (s *Secret) fromEnv(lookup func(name string) (string, bool), name string) error {
	text, _ := lookup(name)
	file, _ := lookup(name + "_FILE")
	switch {
	case text == "":
		return nil
	case file != "":
		return &weir.InvalidError{Field: name + "_FILE", Value: file, Want: "either it or " + name}
	}
	*s = Secret{Text: text}
	return nil
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
