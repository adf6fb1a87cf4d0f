package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/docs"
	"github.com/weirlimit/weir/service/config"
)

// golden runs a test for each YAML file in a folder, with the folder as working
// directory, and compares what it returns with the file's .txt.
func golden(t *testing.T, dir string, run func(t *testing.T, name string) string) {
	t.Chdir(filepath.Join("testdata", dir))
	names, err := filepath.Glob("*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d files, error %v", len(names), err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			got := run(t, name)
			file := strings.TrimSuffix(name, ".yaml") + ".txt"
			if *docs.Update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	golden(t, "errors", func(t *testing.T, name string) string {
		c, err := config.Load([]string{name})
		if c != nil || err == nil {
			t.Fatalf("got %v and no error", c)
		}
		if _, lintErr := config.Lint([]string{name}); lintErr == nil || lintErr.Error() != err.Error() {
			t.Errorf("Lint gives another error: %v", lintErr)
		}
		return err.Error() + "\n"
	})
}

func TestFindings(t *testing.T) {
	golden(t, "lint", func(t *testing.T, name string) string {
		findings, err := config.Lint([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range findings {
			b.WriteString(f.String() + "\n")
		}
		return b.String()
	})
}

func TestExplain(t *testing.T) {
	golden(t, "explain", func(t *testing.T, name string) string {
		sentences, err := config.Explain([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range sentences {
			b.WriteString(f.String() + "\n")
		}
		return b.String()
	})
}
