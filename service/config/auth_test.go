package config_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/service/config"
)

func TestAuthSettings(t *testing.T) {
	write(t, "weir.yaml", `server:
  auth_deny_status: 403
  auth_secret_file: /run/secrets/auth
  auth_peers: 10.0.0.0/8, 2001:db8::1
  auth_proxies: "192.0.2.1"
  auth_attributes: user=X-User, plan=X-Plan, plan=X-Old-Plan
  auth_ipv6_prefix: 56
  auth_dialect: delta
  auth_jitter: 0.1
`)
	s := load(t, "weir.yaml").Server
	want := config.Server{Auth: config.Auth{
		DenyStatus: 403, Secret: config.Secret{File: "/run/secrets/auth"}, Peers: "10.0.0.0/8, 2001:db8::1", Proxies: "192.0.2.1",
		Attributes: "user=X-User, plan=X-Plan, plan=X-Old-Plan", IPv6Prefix: 56, Dialect: "delta", Jitter: 0.1,
	}}
	if s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
	peers, ok := s.Auth.Peers.Prefixes()
	if !ok || !slices.Equal(peers, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::1/128")}) {
		t.Errorf("peers %v", peers)
	}
	headers, ok := s.Auth.Attributes.Map()
	if !ok || !reflect.DeepEqual(headers, map[string][]string{"user": {"X-User"}, "plan": {"X-Plan", "X-Old-Plan"}}) {
		t.Errorf("attributes %v", headers)
	}
	env := map[string]string{"WEIR_AUTH_SECRET": "hunter2", "WEIR_AUTH_DENY_STATUS": "429"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	if err := s.FromEnv(lookup); err != nil || s.Auth.DenyStatus != 429 || s.Auth.Secret != (config.Secret{Text: "hunter2"}) {
		t.Errorf("got %+v, %v", s.Auth, err)
	}
}

func TestBadAuthSettings(t *testing.T) {
	for key, values := range map[string][]string{
		"auth_deny_status": {"200", "500", "no"},
		"auth_peers":       {"office", "10.0.0.0/33", "fe80::1%eth0", "::ffff:10.0.0.0/104", ","},
		"auth_proxies":     {"10.0.0.0/8; 192.0.2.1"},
		"auth_attributes":  {"user", "=X-User", "user=", "user=X User: x", "user=X-Üser"},
		"auth_ipv6_prefix": {"0", "129"},
		"auth_dialect":     {"draft-7"},
		"auth_jitter":      {"-0.1", "1.1", "NaN", "10%"},
	} {
		for _, value := range values {
			var s config.Server
			err := s.Set(key, key, value)
			if err == nil || !strings.HasPrefix(err.Error(), "weir: "+key+" ") || s != (config.Server{}) {
				t.Errorf("%s %q: %v, %+v", key, value, err, s)
			}
		}
	}
}
