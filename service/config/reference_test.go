package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/docs"
	"github.com/weirlimit/weir/service/config"
)

const reference = "docs/reference/config.md"

// refusal returns what Load says of a file.
func refusal(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load([]string{name})
	if err == nil {
		t.Fatalf("this is taken:\n%s", text)
	}
	return err.Error()
}

// TestReferenceHasEveryKey asks each mapping of a file for a key that no mapping
// has: the error lists those that there are.
func TestReferenceHasEveryKey(t *testing.T) {
	for heading, text := range map[string]string{
		"## A document":                   "qqqqqqqq: 1",
		"## A rule":                       "rules: [{qqqqqqqq: 1}]",
		"## An override":                  "rules: [{overrides: [{qqqqqqqq: 1}]}]",
		"## Server settings":              "server: {qqqqqqqq: 1}",
		"### A document with descriptors": "descriptors: []\nqqqqqqqq: 1",
		"### A descriptor":                "descriptors: [{qqqqqqqq: 1}]",
		"### A rate_limit":                "descriptors: [{rate_limit: {qqqqqqqq: 1}}]",
	} {
		known := regexp.MustCompile(`known here are (.*)`).FindStringSubmatch(refusal(t, text))
		if known == nil {
			t.Errorf("%s: the error does not list what is known", heading)
			continue
		}
		docs.Same(t, reference+", "+heading, docs.Names(docs.Section(t, reference, heading)), strings.Split(known[1], ", "))
	}
}

// TestReferenceSaysWhatASettingTakes holds each row of the server settings to
// what the error about a missing value asks for.
func TestReferenceSaysWhatASettingTakes(t *testing.T) {
	n := 0
	for row := range strings.Lines(docs.Section(t, reference, "## Server settings")) {
		for _, key := range docs.Names(row) {
			n++
			want := regexp.MustCompile(`there is no value: write (.*)`).FindStringSubmatch(refusal(t, "server:\n  "+key+":\n"))
			if want == nil || !strings.Contains(row, want[1]) {
				t.Errorf("the row of %s lacks %q:\n%s", key, want, row)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d settings have a row", n)
	}
}
