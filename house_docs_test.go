package weir_test

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/docs"
)

// library is what programs import.
var library = []string{".", "policy", "layer", "httplimit", "storetest", "sim", "redisstore"}

// decls visits the declarations of the library, or of its tests.
func (h *house) decls(tests bool, visit func(dir string, decl ast.Decl)) {
	for name, file := range h.code {
		if dir := path.Dir(name); slices.Contains(library, dir) && isTest(name) == tests {
			for _, decl := range file.Decls {
				visit(dir, decl)
			}
		}
	}
}

// errorsExplained holds that the reference explains every error that a program
// can ask for: exported types that are errors, and variables.
func (h *house) errorsExplained(t *testing.T) {
	const page = "docs/reference/errors.md"
	var all []string
	h.decls(false, func(dir string, decl ast.Decl) {
		pkg := path.Base(dir) + "."
		if dir == "." {
			pkg = "weir."
		}
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || d.Name.Name != "Error" || !ast.IsExported(typeName(d.Recv.List[0].Type)) {
				return
			}
			if _, pointer := d.Recv.List[0].Type.(*ast.StarExpr); pointer {
				pkg = "*" + pkg
			}
			all = append(all, pkg+typeName(d.Recv.List[0].Type))
		case *ast.GenDecl:
			for _, v := range declaredBy(d) {
				if strings.HasPrefix(v.ident.Name, "Err") && d.Tok.String() == "var" {
					all = append(all, pkg+v.ident.Name)
				}
			}
		}
	})
	docs.Same(t, page, docs.Names(docs.Section(t, page, "## In Go")), all)
}

// examples holds that every exported type of the library has an Example.
func (h *house) examples(t *testing.T) {
	shown := make(map[string]bool)
	h.decls(true, func(dir string, decl ast.Decl) {
		if f, ok := decl.(*ast.FuncDecl); ok {
			name, _, _ := strings.Cut(strings.TrimPrefix(f.Name.Name, "Example"), "_")
			shown[dir+"."+name] = true
		}
	})
	h.decls(false, func(dir string, decl ast.Decl) {
		d, ok := decl.(*ast.GenDecl)
		if !ok {
			return
		}
		for _, spec := range d.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() && !shown[dir+"."+s.Name.Name] {
				t.Errorf("%s: %s has no Example", h.fset.Position(s.Pos()), s.Name.Name)
			}
		}
	})
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unnamed = regexp.MustCompile(`[^\w -]`)
)

// links holds that what a page links to in the repository is there.
func (h *house) links(t *testing.T) {
	anchors := make(map[string]bool)
	dirs := make(map[string]bool)
	for name, text := range h.files {
		dirs[path.Dir(name)] = true
		for _, found := range heading.FindAllSubmatch(text, -1) {
			anchors[name+"#"+strings.ReplaceAll(unnamed.ReplaceAllString(strings.ToLower(string(found[1])), ""), " ", "-")] = true
		}
	}
	for name, text := range h.files {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, found := range link.FindAllSubmatch(text, -1) {
			file, anchor, anchored := strings.Cut(string(found[1]), "#")
			target := path.Join(path.Dir(name), file)
			if file == "" {
				target = name
			}
			switch {
			case strings.Contains(file, "://"):
			case h.files[target] == nil && !dirs[target]:
				t.Errorf("%s links to %s, which is not there", name, found[1])
			case anchored && !anchors[target+"#"+anchor]:
				t.Errorf("%s links to %s, which has no such heading", name, found[1])
			}
		}
	}
}
