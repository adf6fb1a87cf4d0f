package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
	r.copy("examples/website.yaml", "website.yaml")
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
	url       string
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

// serve starts weir serve on a free port.
func (r *reader) serve(args ...string) {
	s := startServer(r.t, r.dir, args...)
	r.url = strings.TrimPrefix(s.http, "http://")
}

func (r *reader) console(body string) {
	for _, part := range regexp.MustCompile(`(?m)^\$ `).Split(body, -1)[1:] {
		command, want, _ := strings.Cut(part, "\n")
		if args, ok := strings.CutSuffix(command, " &"); ok {
			r.serve(strings.Fields(args)[2:]...)
			continue
		}
		r.run(command, want)
	}
}

func (r *reader) run(command, want string) {
	c := exec.Command("sh", "-c", strings.ReplaceAll(command, "localhost:8080", r.url))
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
