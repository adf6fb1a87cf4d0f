// Package docs reads the pages that people read, so that tests can hold them to
// the code: what a page says in a block, a table or a part that is generated is
// run, compared or written.
package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Update is the flag -update: expected texts are written instead of compared.
var Update = flag.Bool("update", false, "write the expected texts instead of comparing with them")

// Block is a fenced block of a page.
type Block struct {
	// Kind is what follows the fence, such as go or console.
	Kind string
	// Body is what is between the fences, its last line break included.
	Body string
}

var (
	block     = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	generated = regexp.MustCompile(`(?s)(\n<!-- begin: written by [^\n]* -->\n\n)(.*?)(\n<!-- end -->\n)`)
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// Root returns the folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "go.work")); missing == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			err = os.ErrNotExist
		}
	}
	t.Fatalf("no folder above has a go.work: %v", err)
	return ""
}

// Read returns the text of a page, named by its path from the root.
func Read(t testing.TB, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Blocks returns the fenced blocks of a text, in order.
func Blocks(text string) (all []Block) {
	for _, found := range block.FindAllStringSubmatch(text, -1) {
		all = append(all, Block{found[1], found[2]})
	}
	return all
}

// Section returns what stands in a page below a heading, up to the next one of
// any level.
func Section(t testing.TB, page, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(Read(t, page), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	text, _, _ = strings.Cut(text, "\n#")
	return text
}

// Names returns what stands in backquotes in the first column of the tables of
// a text, in order: the names that the tables explain.
func Names(text string) (all []string) {
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && cells[0] == "" {
			for _, found := range quoted.FindAllStringSubmatch(cells[1], -1) {
				all = append(all, found[1])
			}
		}
	}
	return all
}

// Same fails the test unless a page explains each name of the code once, and no
// others.
func Same(t testing.TB, where string, page, code []string) {
	t.Helper()
	for _, problem := range differences(page, code) {
		t.Errorf("%s %s", where, problem)
	}
}

func differences(page, code []string) (all []string) {
	seen := make(map[string]bool)
	for _, name := range page {
		if seen[name] {
			all = append(all, fmt.Sprintf("explains %s twice", name))
		}
		if seen[name] = true; !slices.Contains(code, name) {
			all = append(all, fmt.Sprintf("explains %s, which the code does not have", name))
		}
	}
	for _, name := range code {
		if !seen[name] {
			all = append(all, fmt.Sprintf("does not explain %s", name))
		}
	}
	if len(code) == 0 {
		all = append(all, "is compared with nothing")
	}
	return all
}

// Golden fails the test unless the part of a page that is generated, between its
// two comments, is want. With -update it is written instead.
func Golden(t testing.TB, page, want string) {
	t.Helper()
	text := Read(t, page)
	updated, err := replace(text, want)
	switch {
	case err != nil:
		t.Fatalf("%s: %v", page, err)
	case updated == text:
	case *Update:
		if err := os.WriteFile(filepath.Join(Root(t), page), []byte(updated), 0o644); err != nil { //nolint:gosec // a page is for everybody
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the code says: its comment has the command that writes it. Want\n%s", page, want)
	}
}

// replace puts text into the only place of a page that is generated.
func replace(page, text string) (string, error) {
	found := generated.FindAllStringSubmatchIndex(page, -1)
	if len(found) != 1 {
		return "", fmt.Errorf("%d parts between <!-- begin: written by COMMAND --> and <!-- end -->, want 1", len(found))
	}
	return page[:found[0][4]] + text + page[found[0][5]:], nil
}

// Patch applies a diff, whose lines must be in text once; @@ on a line of its own
// stands between changes.
func Patch(t testing.TB, text, diff string) string {
	t.Helper()
	for hunk := range strings.SplitSeq(diff, "\n@@\n") {
		var before, after strings.Builder
		for line := range strings.Lines(strings.TrimSuffix(hunk, "\n") + "\n") {
			if line[0] != '+' {
				before.WriteString(line[1:])
			}
			if line[0] != '-' {
				after.WriteString(line[1:])
			}
		}
		if n := strings.Count(text, before.String()); n != 1 {
			t.Fatalf("what a diff changes is there %d times:\n%s", n, before.String())
		}
		text = strings.Replace(text, before.String(), after.String(), 1)
	}
	return text
}
