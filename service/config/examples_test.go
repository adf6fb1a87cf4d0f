package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/service/config"
)

const examples = "../../examples"

func TestExamplesHaveNoFindings(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(names) < 3 {
		t.Fatalf("found only %q, error %v", names, err)
	}
	findings, err := config.Lint(append(names, examples))
	if err != nil || len(findings) > 0 {
		t.Errorf("findings %v, error %v", findings, err)
	}
}

func TestExamples(t *testing.T) {
	tests := []struct {
		file, domain string
		attributes   map[string]string
		want         string
	}{
		{"search", "search", map[string]string{"user": "alice"}, "search:everyone 5/1m"},
		{"search", "search-per-user", map[string]string{"user": "alice"}, "search-per-user:per-user:alice 5/1m"},
		{"search", "search-per-user", nil, "search-per-user:per-user: 5/1m"},
		{"search", "search-per-user", map[string]string{"user": "partner-a"}, "search-per-user:per-user:partner-a 50/1m"},
		{"search", "search-per-user", map[string]string{"user": "trudy"}, "search-per-user:per-user:trudy deny"},
		{"slack", "slack", map[string]string{"category": "errors"}, "slack:global 100/30m, slack:per-category:errors 10/30m"},
		{"slack", "slack", map[string]string{"category": "audit-x"}, "slack:global 100/30m, slack:per-category:audit-x 50/30m"},
		{"slack", "slack", map[string]string{"category": "spam"}, "slack:global 100/30m, slack:per-category:spam deny"},
		{"website", "website", map[string]string{"ip": "10.0.0.1", "path": "/"},
			"website:per-ip:10.0.0.1 20/1m, website:per-ip-burst:10.0.0.1 7/20s, website:global 100/1m"},
		{"failure", "shop", map[string]string{"path": "/login", "user": "alice"}, "shop:login:alice 5/1m deny"},
		{"failure", "shop", map[string]string{"path": "/search", "user": "alice"}, "shop:search:alice 30/1m"},
		{"failure", "shop", map[string]string{"path": "/help", "user": "alice"}, "shop:help:alice 100/1m allow 10ms"},
	}
	for _, tt := range tests {
		rows, ok := load(t, filepath.Join(examples, tt.file+".yaml")).Policy.Match(nil, tt.domain, tt.attributes)
		var got []string
		for _, r := range rows {
			limit := r.Limit.String()
			if r.Deny {
				limit = "deny"
			}
			if r.Rule.OnFailure != weir.OnFailureLocal {
				limit += " " + r.Rule.OnFailure.String()
			}
			if r.Rule.Deadline > 0 {
				limit += " " + r.Rule.Deadline.String()
			}
			got = append(got, r.Key+" "+limit)
		}
		if text := strings.Join(got, ", "); !ok || text != tt.want {
			t.Errorf("%s %v: ok=%t, got %s, want %s", tt.domain, tt.attributes, ok, text, tt.want)
		}
	}
}
