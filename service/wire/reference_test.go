package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/docs"
)

const page, adminPage, errorPage = "docs/reference/http.md", "docs/reference/admin.md", "docs/reference/errors.md"

// TestReference holds the page to the code that reads requests and writes answers.
func TestReference(t *testing.T) {
	members := append(slices.Clone(refundMembers), "last")
	for where, names := range map[string][2][]string{
		"Endpoints": {append(docs.Names(docs.Section(t, page, "## Endpoints")), docs.Names(docs.Section(t, adminPage, "## Endpoints"))...), served(t)},
		"A request": {docs.Names(docs.Section(t, page, "## A request")), members},
		"Readiness": {docs.Names(docs.Section(t, page, "## Readiness")), tags(Readiness{})},
		"Reasons":   {docs.Names(docs.Section(t, page, "## Reasons")), reasons()},
		"Statuses":  {docs.Names(docs.Section(t, page, "## Statuses")), statuses(t)},
		"Over gRPC": {docs.Names(docs.Section(t, errorPage, "## Over gRPC")), codes(t)},
		"Over HTTP": {docs.Names(docs.Section(t, errorPage, "## Over HTTP")), append(tags(Problem{}), "violated-policies")},
	} {
		docs.Same(t, where, names[0], names[1])
	}
}

// tags returns the names that the members of a struct have on the wire.
func tags(of any) (all []string) {
	for field := range reflect.TypeOf(of).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, name)
	}
	return all
}

func reasons() (all []string) {
	for r := weir.OK; r.String() != "unknown"; r++ {
		all = append(all, r.String())
	}
	return all
}

// inspect visits the code of what serves HTTP.
func inspect(t *testing.T, visit func(ast.Node) bool) {
	for _, pattern := range []string{"*.go", "../httpapi/*.go", "../adminapi/*.go", "../rlsapi/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%d files %s, error %v", len(names), pattern, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, visit)
		}
	}
}

// served returns the paths that are served: every text in the code that is one,
// but for those below which there is nothing else.
func served(t *testing.T) []string {
	all := make(map[string]bool)
	inspect(t, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, _ := strconv.Unquote(l.Value); regexp.MustCompile(`^/[a-z]\S*$`).MatchString(text) {
				all[text] = !slices.Contains([]string{"/api/", "/debug/", "/v1/"}, text)
			}
		}
		return true
	})
	maps.DeleteFunc(all, func(_ string, there bool) bool { return !there })
	return slices.Sorted(maps.Keys(all))
}

// selected returns what the code names of a package.
func selected(t *testing.T, pkg string) []string {
	all := make(map[string]bool)
	inspect(t, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
				all[s.Sel.Name] = true
			}
		}
		return true
	})
	return slices.Sorted(maps.Keys(all))
}

// codes returns those of gRPC that the code names, and OK.
func codes(t *testing.T) []string {
	return append(slices.DeleteFunc(selected(t, "codes"), func(name string) bool { return name == "Code" }), "OK")
}

// statuses returns those of net/http that the code names, as numbers.
func statuses(t *testing.T) (all []string) {
	names := selected(t, "http")
	for n := 100; n < 600; n++ {
		if text := http.StatusText(n); text != "" && slices.Contains(names, "Status"+strings.ReplaceAll(text, " ", "")) {
			all = append(all, strconv.Itoa(n))
		}
	}
	return all
}
