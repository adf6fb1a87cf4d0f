package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/config"
)

// compiled is the policy of domain d with rules.
func compiled(t *testing.T, rules string) *policy.Policy {
	t.Helper()
	write(t, "d.yaml", "domain: d\nrules:\n"+rules)
	c, err := config.Load([]string{"d.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return c.Policy
}

func TestDiff(t *testing.T) {
	const other = "- {name: other, limit: 1/s}\n"
	for name, test := range map[string]struct {
		was, is string
		want    []string
	}{
		"nothing":   {"- {name: a, limit: 5/minute}", "- {name: a, limit: 5/1m, by: []} # the same", nil},
		"the order": {other + "- {name: a, limit: 5/m}", "- {name: a, limit: 5/m}\n" + other, nil},
		"a limit":   {"- {name: a, limit: 5/m}", "- {name: a, limit: 10/m}", []string{"d/a changed: 5/1m -> 10/1m"}},
		"to deny":   {"- {name: a, limit: 5/m}", "- {name: a, deny: true}", []string{"d/a changed: 5/1m -> deny"}},
		"an algorithm": {
			"- {name: a, limit: 5/m}", "- {name: a, limit: 5/m, algorithm: fixed-window}",
			[]string{"d/a changed: 5/1m -> 5/1m fixed-window"},
		},
		"everything else": {
			"- {name: a, limit: 5/m, by: user, deadline: 10ms}",
			`- {name: a, limit: 5/m, by: [user, "x y"], optional: true, shadow: true, on_failure: deny, when: {path: [/a, "", "b c"], method: "*"}, slot: domain}`,
			[]string{`d/a changed: when none -> method=* path=/a|""|"b c"; by user -> user, "x y"; optional false -> true; shadow false -> true; on_failure local -> deny; deadline 10ms -> 0s; slot none -> domain`},
		},
		"overrides": {
			"- {name: a, limit: 5/m, overrides: [{when: {u: x}, limit: 6/m}, {when: {u: y}, limit: 7/m}]}",
			"- {name: a, limit: 5/m, overrides: [{when: {u: x}, limit: 8/m}, {when: {u: z}, deny: true}]}",
			[]string{"d/a changed: override u=x 6/1m -> 8/1m; override u=z none -> deny; override u=y 7/1m -> none"},
		},
		"their order": {
			"- {name: a, limit: 5/m, overrides: [{when: {u: x}, limit: 6/m}, {when: {u: x*}, limit: 7/m}]}",
			"- {name: a, limit: 5/m, overrides: [{when: {u: x*}, limit: 7/m}, {when: {u: x}, limit: 6/m}]}",
			[]string{"d/a changed: other overrides come first"},
		},
		"rules come and go": {
			other + "- {name: a, limit: 5/m, by: user, shadow: true, overrides: [{when: {u: x}, deny: true}]}",
			"- {name: b, limit: 10/s burst=20, when: {path: /b}}\n" + other,
			[]string{"d/b added: 10/1s burst=20; when path=/b", "d/a removed: 5/1m; by user; shadow true; override u=x deny"},
		},
		"a secret": {
			other, other + "- {name: a, limit: 5/m, when: {api_token: hunter2}}",
			[]string{"d/a added: not shown, as it may hold a secret"},
		},
		"a long story": {
			other, other + "- {name: a, limit: 5/m, by: " + strings.Repeat("é", 150) + "}",
			[]string{"d/a added: 5/1m; by " + strings.Repeat("é", 95) + "..."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := compiled(t, test.was), compiled(t, test.is)
			var got []string
			for _, c := range config.Diff(was, is) {
				got = append(got, c.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if same := config.Diff(is, is); len(same) > 0 {
				t.Errorf("it differs from itself: %v", same)
			}
		})
	}
}

func TestDiffOfDomains(t *testing.T) {
	write(t, "a.yaml", "domain: a\nrules: [{name: r, limit: 1/s}]\n", "b.yaml", "domain: b\nrules: [{name: r, limit: 1/s}]\n", "server.yaml", "server: {inline: true}\n")
	load := func(paths ...string) *policy.Policy {
		c, err := config.Load(paths)
		if err != nil {
			t.Fatal(err)
		}
		return c.Policy
	}
	got := config.Diff(load("a.yaml"), load("b.yaml"))
	if want := []config.Change{{Rule: "b/r", Kind: "added", Text: "1/1s"}, {Rule: "a/r", Kind: "removed", Text: "1/1s"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := config.Diff(load("a.yaml"), load("server.yaml")); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestDiffOfDescriptors(t *testing.T) {
	tree := func(descriptor string) *policy.Policy {
		write(t, "d.yaml", "domain: d\ndescriptors:\n- {key: path, value: /a, rate_limit: {unit: minute, requests_per_unit: 7}}\n- "+descriptor+"\n")
		c, err := config.Load([]string{"d.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		return c.Policy
	}
	const five = "{key: user, rate_limit: {unit: minute, requests_per_unit: 5}}"
	for was, want := range map[string]string{
		five: "[]",
		"{key: user, rate_limit: {unit: minute, requests_per_unit: 4}}":                    "[d/user changed: 4/1m epoch -> 5/1m epoch]",
		"{key: user, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 5}}": "[d/user changed: shadow true -> false]",
		"{key: user, rate_limit: {unlimited: true}}":                                       "[d/user added: 5/1m epoch]",
		"{key: user, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 5}}":  "[d changed: its descriptors, but not their limits]",
	} {
		if got := fmt.Sprint(config.Diff(tree(was), tree(five))); got != want {
			t.Errorf("%s: got %s, want %s", was, got, want)
		}
	}
}

func TestChangedSettings(t *testing.T) {
	values := map[string]string{
		"http": ":1", "grpc": ":2", "resp": ":3", "admin": ":4", "admin_token": "t", "inline": "true", "log_level": "warn",
		"redis": "redis://h:1", "redis_username": "u", "redis_password_file": "p", "redis_prefix": "x", "redis_key_secret_file": "k",
		"redis_mode": "plain", "redis_layout": "packed", "replicas": "2", "deadline": "2s", "snapshot": "s", "snapshot_every": "2s",
		"auth_deny_status": "403", "auth_secret_file": "a", "auth_peers": "10.0.0.0/8", "auth_proxies": "10.0.0.1", "auth_attributes": "user=X-User",
		"auth_ipv6_prefix": "48", "auth_dialect": "none", "auth_jitter": "0.5",
		"grpc_cert_file": "c", "grpc_key_file": "y", "grpc_client_ca_file": "i", "grpc_dialect": "epoch",
	}
	var all config.Server
	for key, value := range values {
		var one config.Server
		if err := one.Set(key, key, value); err != nil {
			t.Error(err)
		}
		if err := all.Set(key, key, value); err != nil {
			t.Error(err)
		}
		if got := (config.Server{}).Changed(one); !slices.Equal(got, []string{key}) {
			t.Errorf("%s: %v changed", key, got)
		}
	}
	if got := all.Changed(config.Server{}); len(got) != len(values) {
		t.Errorf("of %d settings changed %v", len(values), got)
	}
	if got := all.Changed(all); len(got) > 0 {
		t.Errorf("changed from itself: %v", got)
	}
}
