package weir_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// row says what the code of a package, its tests apart, may import besides the
// standard library.
type row struct {
	pkg    string   // path in the repository; "." is the root package
	may    []string // packages here, or third-party modules; "..." is anything
	never  []string // packages it must not reach, not even through others
	reason string
}

// law is the import law. A package that has no row may not exist.
var law = []row{
	{"internal/algo", nil, pure, "an algorithm is arithmetic that every store runs or ports, so it knows nobody"},
	{"internal/siphash", nil, pure, "a hash is arithmetic on bytes"},
	{".", []string{"internal/algo", "internal/siphash"}, pure, "who imports the library gets the library: no server, no logger, no flag, no third party"},
	{"internal/docs", nil, nil, "tests of every module hold pages to the code with it, so it costs none of them a dependency"},
	{"internal/redistest", nil, nil, "tests of every module import it, so it costs none of them a dependency"},
	{"redisstore", []string{".", "internal/algo", "github.com/redis/rueidis"}, []string{"net/http"}, "a store keeps states; rules and requests over the network are not its business"},
	{"httplimit", []string{"."}, []string{"flag", "os/exec", "log/slog"}, "limits are told over HTTP in one way, by the service and by programs: it knows no store and no policy"},
	{"grpclimit", []string{".", "httplimit", "google.golang.org/genproto/googleapis/rpc/errdetails", "google.golang.org/grpc", "google.golang.org/protobuf"}, nil, "gRPC calls are limited as HTTP's are, and told in the same words; who serves no gRPC does not pay for it"},
	{"layer", []string{".", "internal/algo"}, pure, "a layer is a store made of any store, so it knows none and no wire"},
	{"policy", []string{".", "internal/algo"}, pure, "rules become requests; where they came from and who asks is not theirs to know"},
	{"sim", []string{".", "internal/algo", "policy", "storetest"}, pure, "what it says holds because it has no clock and no I/O but what it is handed"},
	{"storetest", []string{".", "internal/algo"}, []string{"net/http"}, "authors of stores import it, so it costs them nothing"},
	{"service/decide", []string{".", "policy", "service/spell"}, []string{"net/http", "log", "log/slog"}, "one way to decide for every front end: it knows no wire, no store and no telemetry"},
	{"service/config", []string{".", "policy", "service/spell", "github.com/fsnotify/fsnotify", "github.com/goccy/go-yaml"}, []string{"net/http"}, "text becomes a policy, whoever serves it"},
	{"service/wire", []string{".", "service/decide"}, []string{"flag", "os/exec", "log/slog"}, "strict JSON and its errors are the same at every door over HTTP"},
	{"service/httpapi", []string{"httplimit", "service/decide", "service/wire"}, nil, "a front end parses and encodes; it knows no other front end and picks no store"},
	{"service/adminapi", []string{".", "service/decide", "service/wire"}, nil, "operators ask over HTTP as callers do; what is shown of stores, files and telemetry it is handed"},
	{"service/rlsapi", []string{".", "httplimit", "service/decide", "github.com/envoyproxy/go-control-plane/envoy", "google.golang.org/grpc", "google.golang.org/protobuf"}, nil, "Envoy and envoyproxy/ratelimit are spoken to here alone, so that gRPC is nobody else's; it knows no other front end and picks no store"},
	{"service/hotkeys", nil, pure, "which keys come most often is arithmetic, whoever asks"},
	{"service/spell", nil, pure, "which word was meant is arithmetic on text, whoever reads it"},
	{"service/telemetry", []string{".", "policy", "service/decide", "service/hotkeys", "github.com/prometheus", "go.opentelemetry.io/otel"}, nil, "what is decided is counted here for whoever watches: it is told, and asks no store and no front end"},
	{"service/dashboard", nil, []string{"os/exec"}, "a page is files: what it shows it asks of the admin API, as anybody may"},
	{"service/load", nil, []string{"net", "net/http", "os/exec"}, "how fast something answers is measured in one way, whatever it speaks"},
	{"service/cmd/weir", []string{"..."}, nil, "somebody has to put the parts together: only it picks a store"},
	{"examples/crawler", []string{".", "httplimit", "redisstore"}, nil, "it shows what users write, so it has what they have"},
	{"examples/httpserver", []string{".", "httplimit", "redisstore"}, nil, "it shows what users write, so it has what they have"},
	{"lab/faults", nil, nil, "it has tests alone, which want a third-party tool"},
	{"lab/dashboard", nil, nil, "it has tests alone, which drive the dashboard in a browser"},
	{"lab/check", []string{".", "internal/algo", "github.com/anishathalye/porcupine"}, []string{"net", "os/exec"}, "what must hold of a history holds whoever recorded it: it knows no store and no server"},
	{"lab/fleet", nil, nil, "it has tests alone, which simulate a fleet"},
	{"lab/frameworks", nil, nil, "it has tests alone, which run the middleware with third-party routers"},
	{"lab/linear", nil, nil, "it has tests alone, which want a third-party tool"},
	{"lab/rediscost", nil, nil, "it has measurements alone, which make bench runs"},
	{"lab/properties", nil, nil, "it has tests alone, which want a third-party tool"},
	{"lab/debian", nil, nil, "how tests find programs is the same whichever they are"},
	{"lab/prometheus", nil, nil, "it has tests alone, which run a real Prometheus"},
	{"lab/proxies", nil, nil, "it has tests alone, which run the service behind real proxies"},
	{"lab/pictures", []string{".", "policy", "sim"}, nil, "it draws what the simulator decides"},
	{"lab/soak", nil, nil, "it has tests alone, which run the service as it is built"},
	{"lab/ratios", nil, nil, "it reads text and prints text"},
}

// pure is what no part of the library reaches.
var pure = []string{"net", "net/http", "log", "log/slog", "flag", "os/exec"}

const (
	module      = "github.com/weirlimit/weir"
	maxExported = 45 // names in the root package
	maxFile     = 500
	maxFunc     = 90
)

// TestHouse holds what is true of the whole repository, every module of it.
func TestHouse(t *testing.T) {
	h := load(t)
	t.Run("import law", h.importLaw)
	t.Run("library requires nothing", h.requiresNothing)
	t.Run("documented", h.documented)
	t.Run("small surface", h.smallSurface)
	t.Run("no test sleeps", h.noSleep)
	t.Run("small files and functions", h.small)
	t.Run("no machine paths", h.noMachinePaths)
	t.Run("guarantees are tested", h.guarantees)
	t.Run("errors are explained", h.errorsExplained)
	t.Run("types have examples", h.examples)
	t.Run("links lead somewhere", h.links)
}

type house struct {
	files    map[string][]byte // every file, by its path from the root
	fset     *token.FileSet
	code     map[string]*ast.File // every Go file
	packages map[string]listed    // every package here, by the path the law uses
	standard map[string]bool
}

// listed is what go list tells of a package.
type listed struct {
	ImportPath    string
	Standard      bool
	Imports, Deps []string
}

func load(t *testing.T) *house {
	h := &house{
		files: make(map[string][]byte), code: make(map[string]*ast.File), fset: token.NewFileSet(),
		packages: make(map[string]listed), standard: make(map[string]bool),
	}
	if err := fs.WalkDir(os.DirFS("."), ".", h.read); err != nil {
		t.Fatal(err)
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(goTool(t, ".", "work", "edit", "-json", "go.work"), &work); err != nil {
		t.Fatal(err)
	}
	for _, use := range work.Use {
		out := json.NewDecoder(bytes.NewReader(goTool(t, use.DiskPath, "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...")))
		for {
			var p listed
			if err := out.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			h.standard[p.ImportPath] = p.Standard
			if name, ok := local(p.ImportPath); ok {
				h.packages[name] = p
			}
		}
	}
	return h
}

// read is called with every path in the repository.
func (h *house) read(name string, d fs.DirEntry, err error) error {
	if err != nil || d.IsDir() {
		if name == ".git" {
			return fs.SkipDir
		}
		return err
	}
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		return err
	}
	h.files[name] = text
	if strings.HasSuffix(name, ".go") && !strings.Contains(name, "testdata/") {
		h.code[name], err = parser.ParseFile(h.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	}
	return err
}

func goTool(t *testing.T, dir string, args ...string) []byte {
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, &stderr)
	}
	return out
}

// local returns the law's name of a package of this repository.
func local(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func (h *house) importLaw(t *testing.T) {
	lawful := make(map[string]bool)
	for _, row := range law {
		lawful[row.pkg] = true
		p, ok := h.packages[row.pkg]
		if !ok {
			t.Errorf("%s: the law has a row for it, but it is no more", row.pkg)
		}
		if line := row.line(); !bytes.Contains(h.files["ARCHITECTURE.md"], []byte("\n"+line+"\n")) {
			t.Errorf("ARCHITECTURE.md lacks a line of the law:\n%s", line)
		}
		for _, imported := range p.Imports {
			if !h.standard[imported] && !row.allows(imported) {
				t.Errorf("%s may not import %s: %s", row.pkg, imported, row.reason)
			}
		}
		for _, never := range row.never {
			if slices.Contains(p.Deps, never) {
				t.Errorf("%s must not reach %s: %s", row.pkg, never, row.reason)
			}
		}
	}
	for name := range h.packages {
		if !lawful[name] {
			t.Errorf("%s: the law has no row for it; add one, with its reason", name)
		}
	}
}

// line is the row as ARCHITECTURE.md has it.
func (r row) line() string {
	may := cmp.Or(strings.Join(r.may, ", "), "nothing")
	return fmt.Sprintf("| `%s` | %s | %s |", r.pkg, may, r.reason)
}

// allows reports whether the package may import what is not standard.
func (r row) allows(imported string) bool {
	name, here := local(imported)
	return slices.ContainsFunc(r.may, func(m string) bool {
		return m == "..." || here && m == name || !here && (imported == m || strings.HasPrefix(imported, m+"/"))
	})
}

func (h *house) requiresNothing(t *testing.T) {
	if text := h.files["go.mod"]; !bytes.Contains(text, []byte("module "+module+"\n")) || bytes.Contains(text, []byte("require")) {
		t.Errorf("go.mod of the library has a require block, which every user's graph would inherit:\n%s", text)
	}
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.go") }

// documented checks that every exported name has a comment, and every package
// exactly one.
func (h *house) documented(t *testing.T) {
	comments := make(map[string]int)
	for name, file := range h.code {
		if isTest(name) {
			continue
		}
		comments[path.Dir(name)] += len(notNil(file.Doc))
		for _, d := range declared(file) {
			if len(notNil(d.docs...)) == 0 {
				t.Errorf("%s: %s has no comment", h.fset.Position(d.ident.Pos()), d.ident.Name)
			}
		}
	}
	for dir, n := range comments {
		if n != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, n)
		}
	}
}

func notNil(docs ...*ast.CommentGroup) []*ast.CommentGroup {
	return slices.DeleteFunc(docs, func(g *ast.CommentGroup) bool { return g == nil })
}

// declaration is an exported name of a package, or a method of one.
type declaration struct {
	ident  *ast.Ident
	docs   []*ast.CommentGroup // where its comment may stand
	method bool
	enum   string // a constant's type, if it is one of an enumeration
}

func declared(file *ast.File) (all []declaration) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(typeName(d.Recv.List[0].Type)) {
				all = append(all, declaration{ident: d.Name, docs: []*ast.CommentGroup{d.Doc}, method: d.Recv != nil})
			}
		case *ast.GenDecl:
			all = append(all, declaredBy(d)...)
		}
	}
	return slices.DeleteFunc(all, func(d declaration) bool { return !d.ident.IsExported() })
}

func declaredBy(d *ast.GenDecl) (all []declaration) {
	enum := ""
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			docs := []*ast.CommentGroup{s.Doc}
			if !d.Lparen.IsValid() {
				docs = append(docs, d.Doc)
			}
			all = append(all, declaration{ident: s.Name, docs: docs})
		case *ast.ValueSpec:
			enum = enumeration(d.Tok, s, enum)
			for _, ident := range s.Names {
				all = append(all, declaration{ident: ident, docs: []*ast.CommentGroup{s.Doc, s.Comment, d.Doc}, enum: enum})
			}
		}
	}
	return all
}

// enumeration returns the type whose value a constant is: as declared, as
// converted to, or, without either, as the constant before.
func enumeration(tok token.Token, s *ast.ValueSpec, before string) string {
	if tok != token.CONST {
		return ""
	}
	if s.Type == nil && len(s.Values) == 0 {
		return before
	}
	if s.Type != nil {
		return typeName(s.Type)
	}
	if call, ok := s.Values[0].(*ast.CallExpr); ok {
		return typeName(call.Fun)
	}
	return ""
}

// typeName returns the name of a type of this package, or of what it points to.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return ""
}

func (h *house) smallSurface(t *testing.T) {
	names := make(map[string]bool)
	for name, file := range h.code {
		if path.Dir(name) != "." || isTest(name) {
			continue
		}
		for _, d := range declared(file) {
			switch {
			case d.enum != "":
				names["the constants of "+d.enum] = true
			case !d.method:
				names[d.ident.Name] = true
			}
		}
	}
	if len(names) > maxExported || len(names) == 0 {
		t.Errorf("the root package exports %d names, want at most %d: %v", len(names), maxExported, names)
	}
}

// noSleep looks at the tests and at storetest, which is tests for others.
func (h *house) noSleep(t *testing.T) {
	for name, file := range h.code {
		if !isTest(name) && path.Dir(name) != "storetest" {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" && typeName(s.X) == "time" {
				t.Errorf("%s: a test sleeps; give what it tests a clock instead", h.fset.Position(s.Pos()))
			}
			return true
		})
	}
}

// guarantees holds that the tests and checks that docs/guarantees.md names exist.
func (h *house) guarantees(t *testing.T) {
	var tests, checks []string
	for name, file := range h.code {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && isTest(name) {
				tests = append(tests, f.Name.Name)
			}
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^\t\t\{"([a-z-]+)",`).FindAllSubmatch(h.files["storetest/storetest.go"], -1) {
		checks = append(checks, string(found[1]))
	}
	text, n := h.files["docs/guarantees.md"], 0
	for _, found := range regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(text, -1) {
		if n++; !slices.Contains(tests, string(found[1])) {
			t.Errorf("docs/guarantees.md names %s, which is not there", found[1])
		}
	}
	for _, found := range regexp.MustCompile("`storetest`: ([a-z, -]+[a-z])").FindAllSubmatch(text, -1) {
		for check := range strings.SplitSeq(string(found[1]), ", ") {
			if n++; !slices.Contains(checks, check) {
				t.Errorf("docs/guarantees.md names the check %s, which storetest does not have", check)
			}
		}
	}
	if n < 40 {
		t.Errorf("docs/guarantees.md names %d tests, want one for each row", n)
	}
}

func (h *house) small(t *testing.T) {
	for name, file := range h.code {
		if isTest(name) {
			continue
		}
		if n := bytes.Count(h.files[name], []byte("\n")); n > maxFile {
			t.Errorf("%s has %d lines, want at most %d", name, n, maxFile)
		}
		for _, d := range file.Decls {
			from, to := h.fset.Position(d.Pos()), h.fset.Position(d.End())
			if f, ok := d.(*ast.FuncDecl); ok && to.Line-from.Line >= maxFunc {
				t.Errorf("%s: %s has %d lines, want at most %d", from, f.Name.Name, to.Line-from.Line+1, maxFunc)
			}
		}
	}
}

// machinePath is an absolute path that means something on one machine only.
var machinePath = regexp.MustCompile(`(^|[^\w.])/(work|farm|tmp)/`)

func (h *house) noMachinePaths(t *testing.T) {
	for name, text := range h.files {
		if bytes.IndexByte(text, 0) >= 0 { // a binary, such as one just built
			continue
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if machinePath.Match(line) {
				t.Errorf("%s:%d: a path of one machine: %s", name, i+1, line)
			}
		}
	}
}
