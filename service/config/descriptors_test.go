package config_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
	"github.com/weirlimit/weir/service/config"
)

func TestLoadReadsEveryKeyOfDescriptors(t *testing.T) {
	write(t, "edge.yaml", `
domain: edge
algorithm: fixed-window
charge_on_deny: yes
on_failure: allow
deadline: 10ms
server: {http: off}
descriptors:
  - key: path
    value: /api/*
    share_threshold: On
    shadow_mode: true
    quota_mode: y
    detailed_metric: TRUE
    value_to_metric: n
    metadata: {on: true, off: "true", n: 010, f: 1.5, s: "1", none: ~, list: [a, {b: c}], text: 1.2.3}
    rate_limit:
      unit: MINUTE
      requests_per_unit: 1_000
      name: api
      replaces: [{name: a}, {name: b}]
    descriptors:
      - {key: 404, value: "", rate_limit: {unlimited: yes}}
      - key: user
        value: al
        descriptors:
      - key: user
        descriptors: []
`)
	c := load(t, "edge.yaml")
	got, err := json.Marshal(c.Policy.Domains()[0].Tree)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(policy.Tree{
		Algorithm: weir.FixedWindow, ChargeOnDeny: true, OnFailure: weir.OnFailureAllow, Deadline: 10 * time.Millisecond,
		Descriptors: []policy.Descriptor{{
			Key: "path", Value: "/api/*", ShareThreshold: true, Shadow: true, Quota: true, DetailedMetric: true,
			Metadata: map[string]any{"on": true, "off": "true", "n": 8.0, "f": 1.5, "s": "1", "none": nil, "list": []any{"a", map[string]any{"b": "c"}}, "text": "1.2.3"},
			RateLimit: &policy.RateLimit{
				Unit: policy.Minute, Requests: 1000, Name: "api", Replaces: []string{"a", "b"},
			},
			Descriptors: []policy.Descriptor{
				{Key: "404", RateLimit: &policy.RateLimit{Unlimited: true}}, {Key: "user", Value: "al"}, {Key: "user"},
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if c.Server.HTTP != "off" {
		t.Errorf("the server mapping is read as %+v", c.Server)
	}
}

func TestBothDialectsInADirectory(t *testing.T) {
	write(t, "conf/a.yaml", "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 5}}]\n---\ndomain: other\ndescriptors: []\n",
		"conf/b.yaml", "domain: d\nrules: [{name: r, limit: 5/minute}]\n", "conf/c.yaml", "domain: d\nrules: [{name: s, limit: 5/minute}]\n")
	var got []string
	for _, d := range load(t, "conf").Policy.Domains() {
		for _, r := range d.Rules {
			got = append(got, d.Name+" "+r.Name+" "+r.Limit.String())
		}
		if len(d.Rules) == 0 {
			got = append(got, d.Name)
		}
	}
	if want := []string{"edge a 5/1d epoch", "other", "d r 5/1m", "d s 5/1m"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	write(t, "a.yaml", "domain: edge\ndescriptors: []\n", "b.yaml", "domain: edge\ndescriptors: []\n")
	_, err := config.Load([]string{"a.yaml", "b.yaml"})
	want := "b.yaml:1:9: domain: domain \"edge\" is there already, and the descriptors of a domain are all in one place: " +
		"put them together, or give this domain a name of its own (the other is at a.yaml:1:9)\n    1 | domain: edge"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestEnvoyExample(t *testing.T) {
	p := load(t, filepath.Join(examples, "envoy.yaml")).Policy
	entry := func(key, value string) policy.Entry { return policy.Entry{Key: key, Value: value} }
	for _, test := range []struct {
		entries []policy.Entry
		want    string
	}{
		{[]policy.Entry{entry("remote_address", "10.0.0.1")}, "edge::remote_address:10.0.0.1 100/1m epoch"},
		{[]policy.Entry{entry("remote_address", "10.0.0.2")}, ""},
		{[]policy.Entry{entry("path", "/api/items")}, "edge::path:%*/api/* 500/1s epoch"},
		{[]policy.Entry{entry("path", "/api/items"), entry("remote_address", "10.0.0.2")}, "edge::path:%*/api/*:remote_address:10.0.0.2 10/1s epoch"},
		{[]policy.Entry{entry("path", "/admin")}, "edge::path:/admin deny"},
		{[]policy.Entry{entry("plan", "gold")}, "unlimited"},
		{[]policy.Entry{entry("plan", "silver"), entry("user", "al")}, "edge::plan:silver:user:al 1000/1h epoch"},
		{[]policy.Entry{entry("user_agent", "a bot 1.0")}, "edge::user_agent:a bot 1.0 60/1h epoch"},
		{[]policy.Entry{entry("tokens", "shared")}, "edge::tokens:shared 5000/1d epoch"},
		{[]policy.Entry{entry("tokens", "other")}, ""},
	} {
		rows, ok := p.MatchEntries(nil, "edge", test.entries)
		got := ""
		for _, r := range rows {
			switch {
			case r.Unlimited:
				got = "unlimited"
			case r.Deny:
				got = r.Key + " deny"
			default:
				got = r.Key + " " + r.Limit.String()
			}
		}
		if !ok || got != test.want {
			t.Errorf("%v: got %q, %t, want %q", test.entries, got, ok, test.want)
		}
	}
}
