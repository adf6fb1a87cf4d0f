package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/redistest"
)

// TestReadme runs every block of the README but the first, as a reader would:
// yaml and go blocks become files, console blocks are typed in. In expected
// output "..." stands for any text, alone on a line for any lines.
func TestReadme(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	r := reader{t: t, root: root, dir: t.TempDir()}
	r.real = []string{"localhost:6379", redistest.Start(t, redistest.Options{}).Addr()}
	r.copy("examples/website.yaml", "website.yaml")
	r.copy("examples/envoy.yaml", "envoy.yaml")
	r.copy("sim/testdata/access-extract.log", "access.log")
	r.serve() // make run
	blocks := regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 || blocks[0][1] != "sh" {
		t.Fatalf("the README has %d blocks and starts with %q", len(blocks), blocks[0][1])
	}
	for _, b := range blocks[1:] {
		switch kind, body := b[1], b[2]; kind {
		case "yaml":
			name, _, _ := strings.Cut(body, "\n")
			r.write(strings.TrimPrefix(name, "# "), body)
		case "go":
			r.program(body)
		case "console":
			r.console(body)
		default:
			t.Errorf("no test runs a block of kind %q", kind)
		}
	}
}

// reader is somebody who types what the README says.
type reader struct {
	t         *testing.T
	root, dir string
	real      []string // addresses, each behind what the README calls it
}

func (r *reader) write(name, text string) {
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reader) copy(from, to string) {
	text, err := os.ReadFile(filepath.Join(r.root, from))
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(to, string(text))
}

// program makes the folder a module that uses the library as released.
func (r *reader) program(source string) {
	r.write("main.go", source)
	r.write("go.mod", "module readme\n\ngo 1.25.0\n\nrequire github.com/weirlimit/weir v0.0.0\n\nreplace github.com/weirlimit/weir => "+r.root+"\n")
}

// serve starts weir serve on a free port instead of the one it names, 8080 if none.
func (r *reader) serve(args ...string) {
	name := "localhost:8080"
	if i := slices.Index(args, "--http"); i >= 0 {
		name = "localhost" + args[i+1]
		args = slices.Delete(args, i, i+2)
	}
	if slices.Contains(args, "--redis") {
		args = append(args, patient)
	}
	s := startServer(r.t, r.dir, args...)
	// The newest comes first, which is the one that is replaced.
	r.real = append([]string{name, strings.TrimPrefix(s.http, "http://")}, r.real...)
}

// really puts the addresses of this test in the place of the README's.
func (r *reader) really(text string) string { return strings.NewReplacer(r.real...).Replace(text) }

func (r *reader) console(body string) {
	for _, part := range regexp.MustCompile(`(?m)^\$ `).Split(body, -1)[1:] {
		command, want, _ := strings.Cut(part, "\n")
		if args, ok := strings.CutSuffix(command, " &"); ok {
			r.serve(strings.Fields(r.really(args))[2:]...)
			continue
		}
		r.run(command, want)
	}
}

func (r *reader) run(command, want string) {
	c := exec.Command("sh", "-c", r.really(command))
	c.Dir = r.dir
	c.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	got, err := c.Output()
	if err != nil {
		r.t.Fatalf("$ %s\n%v\n%s", command, err, stderr.String())
	}
	pattern := regexp.QuoteMeta(want)
	pattern = regexp.MustCompile(`(?m)^\\\.\\\.\\\.\n`).ReplaceAllString(pattern, "(?s:.*)")
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, ".*")
	if !regexp.MustCompile(`^` + pattern + `$`).Match(got) {
		r.t.Errorf("$ %s\ngot:\n%s\nthe README says:\n%s", command, got, want)
	}
}
