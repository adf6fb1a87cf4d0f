package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/weirlimit/weir/service/config"
)

const everyKey = `
domain: "all: of it"
rules:
  - name: search
    when: {path: [/search, "a*"], user: ["", "true", "007", "two\nlines", "# none"]}
    by: [user, path]
    optional: true
    limit: 10/s burst=20
    overrides:
      - {when: {user: admin}, limit: 50/minute fixed-window}
      - {when: {user: trudy}, deny: true}
    shadow: true
    on_failure: deny
    deadline: 20ms
    slot: [user]
  - {name: clock, by: user, limit: 50000/h, align: epoch, algorithm: fixed-window, slot: domain}
  - {name: blocked, when: {user: mallory}, deny: true}
---
domain: tree
algorithm: token-bucket
on_failure: allow
deadline: 1.5s
descriptors:
  - key: plan
    value: "yes"
    rate_limit: {unit: minute, requests_per_unit: 0, name: free}
    shadow_mode: true
    metadata: {plan: "12", limit: 12, deep: {list: [true, null, "null"]}}
    descriptors:
      - {key: path, value: "/api/*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 4000000000, replaces: [{name: free}]}}
      - {key: path, rate_limit: {unlimited: true}, detailed_metric: true}
  - {key: user, quota_mode: true, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
`

// TestTextIsReadBack checks that what is shown of a policy is the policy.
func TestTextIsReadBack(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, file := range append(files, write("every-key.yaml", everyKey)) {
		was := load(t, file).Policy
		text, err := config.Text(was)
		if err != nil {
			t.Fatal(err)
		}
		is := load(t, write("again.yaml", text)).Policy
		if changes := config.Diff(was, is); len(changes) > 0 || !reflect.DeepEqual(was.Domains(), is.Domains()) {
			t.Errorf("%s: %v in\n%s\n%+v\n%+v", file, changes, text, was.Domains(), is.Domains())
		}
	}
}
