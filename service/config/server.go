package config

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Server holds the settings of the server. Those not given are zero: their
// defaults are the server's.
type Server struct {
	// HTTP, GRPC, RESP and Admin are the addresses to listen on, host:port, or
	// "off".
	HTTP, GRPC, RESP, Admin string
	// AdminToken is what the admin address asks for, or one of those in the
	// AdminTokensFile.
	AdminToken, AdminTokensFile string
	// RedactKeys does not show operators who is limited.
	RedactKeys bool
	// Inline allows requests that bring a limit of their own.
	Inline *bool
	// ShadowMode decides and counts, but denies nothing.
	ShadowMode bool
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// Redis is where limits are kept; without a URL, in memory.
	Redis Redis
	// Snapshot is where those in memory are kept across restarts.
	Snapshot Snapshot
	// Auth is how proxies are answered.
	Auth Auth
	// GRPCTLS is what the gRPC address is served with.
	GRPCTLS TLS
	// GRPCDialect is that of the headers that Envoy is told to add: draft-10,
	// draft-03, delta, epoch or none.
	GRPCDialect string
}

// TLS holds paths of PEM files; without a Cert there is no TLS.
type TLS struct {
	// Cert holds certificates, the server's first, and Key its private key.
	Cert, Key string
	// ClientCA, if there is one, holds those that must have signed what clients
	// show.
	ClientCA string
}

// Snapshot holds the settings of the file that what is in memory is kept in.
type Snapshot struct {
	// File is its path; empty for none.
	File string
	// Every is how often it is written, 1 s to 24 hours; 0 if not given.
	Every time.Duration
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
	// Replicas is how many processes share the server, 1 to 100,000.
	Replicas int
	// Deadline is how long the server may take to answer, 1 ms to 10 s.
	Deadline time.Duration
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
	wantTokens  = "the path of a file with lines NAME TOKEN [EXPIRY]"
	wantLevel   = "debug, info, warn or error"
	wantURL     = "a URL such as redis://10.0.0.7:6379"
	wantUser    = "the name of a user"
	wantFile    = "the path of a file that holds the secret"
	wantPrefix  = "the beginning of all keys, such as weir"
	wantMode    = "scripts or plain"
	wantLayout  = "packed or sorted-set"
	wantShares  = "how many processes share the server, 1 to 100000, such as 3"
	wantKept    = "the path of a file to keep limits in, such as limits.snapshot"
	wantEvery   = "how often to write the snapshot, 1s to 24h, such as 1m"
	wantDenied  = "a status from 400 to 499, such as 429, or 403 for nginx"
	wantNets    = "addresses and networks such as 10.0.0.0/8, 192.0.2.1"
	wantHeaders = "attributes and the headers they are read from, such as user=X-User, plan=X-Plan"
	wantBits    = "how many bits of an IPv6 address tell clients apart, 1 to 128, such as 64"
	wantDialect = "draft-10, draft-03, delta, epoch or none"
	wantJitter  = "how much longer at most Retry-After asks to wait, 0 to 1 of the wait, such as 0.1"
	wantPEM     = "the path of a PEM file"
	wantPatient = "how long the store may take to answer, 1ms to 10s, such as 50ms"
)

var settings = []setting{
	{"http", wantAddress, isAddress, func(s *Server, v string) { s.HTTP = v }},
	{"grpc", wantAddress, isAddress, func(s *Server, v string) { s.GRPC = v }},
	{"resp", wantAddress, isAddress, func(s *Server, v string) { s.RESP = v }},
	{"admin", wantAddress, isAddress, func(s *Server, v string) { s.Admin = v }},
	{"admin_token", wantToken, notEmpty, func(s *Server, v string) { s.AdminToken = v }},
	{"admin_tokens_file", wantTokens, notEmpty, func(s *Server, v string) { s.AdminTokensFile = v }},
	{"redact_keys", wantBool, among("true", "false"), func(s *Server, v string) { s.RedactKeys = v == "true" }},
	{"inline", wantBool, func(v string) bool { return v == "true" || v == "false" }, func(s *Server, v string) { yes := v == "true"; s.Inline = &yes }},
	{"shadow_mode", wantBool, among("true", "false"), func(s *Server, v string) { s.ShadowMode = v == "true" }},
	{"log_level", wantLevel, among("debug", "info", "warn", "error"), func(s *Server, v string) { s.LogLevel = v }},
	{"redis", wantURL, notEmpty, func(s *Server, v string) { s.Redis.URL = v }},
	{"redis_username", wantUser, notEmpty, func(s *Server, v string) { s.Redis.Username = v }},
	{"redis_password_file", wantFile, notEmpty, func(s *Server, v string) { s.Redis.Password = Secret{File: v} }},
	{"redis_prefix", wantPrefix, notEmpty, func(s *Server, v string) { s.Redis.Prefix = v }},
	{"redis_key_secret_file", wantFile, notEmpty, func(s *Server, v string) { s.Redis.KeySecret = Secret{File: v} }},
	{"redis_mode", wantMode, among("scripts", "plain"), func(s *Server, v string) { s.Redis.Mode = v }},
	{"redis_layout", wantLayout, among("packed", "sorted-set"), func(s *Server, v string) { s.Redis.Layout = v }},
	{"replicas", wantShares, within(1, 100_000, strconv.Atoi), func(s *Server, v string) { s.Redis.Replicas, _ = strconv.Atoi(v) }},
	{"snapshot", wantKept, notEmpty, func(s *Server, v string) { s.Snapshot.File = v }},
	{"snapshot_every", wantEvery, within(time.Second, 24*time.Hour, time.ParseDuration), func(s *Server, v string) { s.Snapshot.Every, _ = time.ParseDuration(v) }},
	{"deadline", wantPatient, within(time.Millisecond, 10*time.Second, time.ParseDuration), func(s *Server, v string) { s.Redis.Deadline, _ = time.ParseDuration(v) }},
	{"auth_deny_status", wantDenied, within(400, 499, strconv.Atoi), func(s *Server, v string) { s.Auth.DenyStatus, _ = strconv.Atoi(v) }},
	{"auth_secret_file", wantFile, notEmpty, func(s *Server, v string) { s.Auth.Secret = Secret{File: v} }},
	{"auth_peers", wantNets, isNetworks, func(s *Server, v string) { s.Auth.Peers = Networks(v) }},
	{"auth_proxies", wantNets, isNetworks, func(s *Server, v string) { s.Auth.Proxies = Networks(v) }},
	{"auth_attributes", wantHeaders, isHeaders, func(s *Server, v string) { s.Auth.Attributes = Headers(v) }},
	{"auth_ipv6_prefix", wantBits, within(1, 128, strconv.Atoi), func(s *Server, v string) { s.Auth.IPv6Prefix, _ = strconv.Atoi(v) }},
	{"auth_dialect", wantDialect, among("draft-10", "draft-03", "delta", "epoch", "none"), func(s *Server, v string) { s.Auth.Dialect = v }},
	{"grpc_cert_file", wantPEM, notEmpty, func(s *Server, v string) { s.GRPCTLS.Cert = v }},
	{"grpc_key_file", wantPEM, notEmpty, func(s *Server, v string) { s.GRPCTLS.Key = v }},
	{"grpc_client_ca_file", wantPEM, notEmpty, func(s *Server, v string) { s.GRPCTLS.ClientCA = v }},
	{"grpc_dialect", wantDialect, among("draft-10", "draft-03", "delta", "epoch", "none"), func(s *Server, v string) { s.GRPCDialect = v }},
	{"auth_jitter", wantJitter, within(0, 1, parseFloat), func(s *Server, v string) { s.Auth.Jitter, _ = parseFloat(v) }},
}

func parseFloat(v string) (float64, error) { return strconv.ParseFloat(v, 64) }

func isNetworks(v string) bool {
	all, ok := Networks(v).Prefixes()
	return ok && len(all) > 0
}

func isHeaders(v string) bool {
	all, ok := Headers(v).Map()
	return ok && len(all) > 0
}

func notEmpty(v string) bool { return v != "" }

func among(words ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(words, v) }
}

// within returns whether a value can be parsed and is one of least to most.
func within[T cmp.Ordered](least, most T, parse func(string) (T, error)) func(string) bool {
	return func(v string) bool {
		n, err := parse(v)
		return err == nil && least <= n && n <= most
	}
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
// rules should hold are in WEIR_REDIS_PASSWORD, WEIR_REDIS_KEY_SECRET and
// WEIR_AUTH_SECRET. The error joins a *weir.InvalidError for each value that is wrong; those settings
// stay.
func (s *Server) FromEnv(lookup func(name string) (string, bool)) error {
	var errs []error
	for _, setting := range settings {
		name := "WEIR_" + strings.ToUpper(setting.key)
		if value, _ := lookup(name); value != "" {
			errs = append(errs, s.Set(setting.key, name, value))
		}
	}
	return errors.Join(append(errs,
		s.Redis.Password.fromEnv(lookup, "WEIR_REDIS_PASSWORD"),
		s.Redis.KeySecret.fromEnv(lookup, "WEIR_REDIS_KEY_SECRET"),
		s.Auth.Secret.fromEnv(lookup, "WEIR_AUTH_SECRET"))...)
}

// Set replaces the setting that is called key in the server mapping, if one is.
// The error is a *weir.InvalidError about name, which is what the caller calls
// it; the setting then stays.
func (s *Server) Set(key, name, value string) error {
	for _, setting := range settings {
		switch {
		case setting.key != key:
		case !setting.ok(value):
			return &weir.InvalidError{Field: name, Value: value, Want: setting.want}
		default:
			setting.set(s, value)
		}
	}
	return nil
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
