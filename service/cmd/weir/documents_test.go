package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/internal/docs"
	"github.com/weirlimit/weir/internal/redistest"
)

// TestDocuments runs the blocks of the documents, as a reader would: yaml blocks
// become files, which must pass weir lint, go blocks become a program, which diff
// blocks change, and console blocks are typed in. In expected output "..." stands for any text, alone on a
// line for any lines. A block of kind sh or text is not run.
func TestDocuments(t *testing.T) {
	for name, before := range map[string]func(*reader){
		"README.md": func(r *reader) {
			r.copy("examples/website.yaml", "website.yaml")
			r.copy("examples/envoy.yaml", "envoy.yaml")
			r.copy("sim/testdata/access-extract.log", "access.log")
			r.redisServer()
			r.serve("make run")
		},
		"docs/tutorial.md":          func(*reader) {},
		"docs/algorithms.md":        func(*reader) {},
		"docs/operating.md":         func(*reader) {},
		"docs/reference/admin.md":   func(*reader) {},
		"docs/recipes.md":           func(r *reader) { r.redisServer() },
		"docs/redis.md":             func(r *reader) { r.redisServer() },
		"docs/reference/config.md":  func(*reader) {},
		"docs/reference/http.md":    func(*reader) {},
		"docs/reference/headers.md": func(*reader) {},
		"docs/reference/errors.md":  func(*reader) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := reader{t: t, root: docs.Root(t), dir: t.TempDir(), bin: t.TempDir()}
			r.is("localhost:9000", free(t))
			r.is("FallbackOptions{", "FallbackOptions{Deadline: 10e9, ") // as patient does
			before(&r)
			for _, b := range docs.Blocks(docs.Read(t, name)) {
				r.block(b)
			}
		})
	}
}

// reader is somebody who types what a document says.
type reader struct {
	t         *testing.T
	root, dir string
	bin       string   // where go install puts programs
	source    string   // of main.go
	real      []string // addresses and the like, each behind what the document calls it
	redis     *redistest.Server
	jobs      []*job
}

// atOnce is how a program under -race exits, or it takes a second.
const atOnce = "GORACE=atexit_sleep_ms=0"

// job is a program in the background.
type job struct {
	command string
	ports   []string // those that it takes of the reader's machine
	stop    func()
}

func (r *reader) block(b docs.Block) {
	switch b.Kind {
	case "yaml":
		name, _, _ := strings.Cut(b.Body, "\n")
		name = strings.TrimPrefix(name, "# ")
		r.write(name, b.Body)
		r.run("weir lint "+name, "...\n"+name+": ok\n")
	case "go":
		r.program(b.Body)
	case "diff":
		r.source = docs.Patch(r.t, r.source, r.really(b.Body))
		r.write("main.go", r.source)
	case "console":
		r.console(b.Body)
	case "json":
		if !json.Valid([]byte(b.Body)) {
			r.t.Errorf("this is no JSON:\n%s", b.Body)
		}
	case "sh", "text":
	default:
		r.t.Errorf("no test runs a block of kind %q", b.Kind)
	}
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

// packages are those that a block without a package clause may use.
var packages = []string{
	"context", "errors", "fmt", "log", "net/http", "net/http/httptest", "time",
	"github.com/weirlimit/weir", "github.com/weirlimit/weir/httplimit", "github.com/weirlimit/weir/layer", "github.com/weirlimit/weir/redisstore",
}

// program makes the folder a module, unless it is one, that uses the library as
// released, and the block its program.
func (r *reader) program(source string) {
	if !regexp.MustCompile(`(?m)^package main$`).MatchString(source) {
		var imports strings.Builder
		for _, path := range packages {
			if regexp.MustCompile(`\b` + filepath.Base(path) + `\.[A-Z]`).MatchString(source) {
				fmt.Fprintf(&imports, "import %q\n", path)
			}
		}
		source = "package main\n\n" + imports.String() + source
	}
	r.source = r.really(source)
	r.write("main.go", r.source)
	if _, err := os.Stat(filepath.Join(r.dir, "go.mod")); errors.Is(err, os.ErrNotExist) {
		r.write("go.mod", "module document\n\ngo 1.26.0\n\nreplace (\n\tgithub.com/weirlimit/weir => "+r.root+"\n\tgithub.com/weirlimit/weir/redisstore => "+r.root+"/redisstore\n)\n")
		r.run("go mod tidy", "")
		r.run("go vet .", "")
	}
}

// really puts the addresses of this test in the place of the document's.
func (r *reader) really(text string) string { return strings.NewReplacer(r.real...).Replace(text) }

// is makes an address of the document stand for one of this test. The newest
// comes first, which is the one that is replaced.
func (r *reader) is(name, address string) { r.real = append([]string{name, address}, r.real...) }

func (r *reader) console(body string) {
	for _, part := range regexp.MustCompile(`(?m)^\$ `).Split(body, -1)[1:] {
		command, want, _ := strings.Cut(part, "\n")
		program, background := strings.CutSuffix(command, " &")
		words := strings.Fields(program)
		switch {
		case background && words[0] == "weir":
			r.serve(program, strings.Fields(r.really(program))[2:]...)
		case background && words[0] == "redis-server":
			r.redisServer()
		case background:
			r.start(program)
		case words[0] == "kill":
			r.kill(strings.TrimPrefix(words[1], "%"))
		case words[0] == "cd":
			r.dir = filepath.Join(r.dir, words[1])
		case strings.HasPrefix(program, "git clone "): // of what this is a test of
			if err := os.Symlink(r.root, filepath.Join(r.dir, filepath.Base(words[2]))); err != nil {
				r.t.Fatal(err)
			}
		default:
			r.run(command, want)
		}
	}
}

func (r *reader) run(command, want string) {
	c := exec.Command("sh", "-c", r.really(command))
	c.Dir = r.dir
	c.Env = append(os.Environ(), "GOWORK=", "GOBIN="+r.bin, "GOFLAGS="+os.Getenv("GOFLAGS")+" -ldflags=-w", atOnce)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	got, err := c.Output()
	if err != nil {
		r.t.Fatalf("$ %s\n%v\n%s", command, err, stderr.String())
	}
	pattern := regexp.QuoteMeta(want)
	pattern = regexp.MustCompile(`(?m)^\\\.\\\.\\\.\n`).ReplaceAllString(pattern, "(?s:.*)")
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, ".*")
	if got = bytes.ReplaceAll(got, []byte("\r\n"), []byte("\n")); !regexp.MustCompile(`^` + pattern + `$`).Match(got) {
		r.t.Errorf("$ %s\ngot:\n%s\nthe document says:\n%s", command, got, want)
	}
}

// background notes a job and the ports that it takes, which nobody else may have.
func (r *reader) background(command string, ports []string, stop func()) {
	for _, other := range r.jobs {
		for _, port := range ports {
			if slices.Contains(other.ports, port) {
				r.t.Errorf("$ %s &\ncannot have port %s, which is taken by\n$ %s &", command, port, other.command)
			}
		}
	}
	j := &job{command: command, ports: ports}
	stop = sync.OnceFunc(stop)
	j.stop = func() { stop(); j.ports = nil }
	r.jobs = append(r.jobs, j)
	r.t.Cleanup(j.stop)
}

func (r *reader) kill(prefix string) {
	i := slices.IndexFunc(r.jobs, func(j *job) bool { return j.ports != nil && strings.HasPrefix(j.command, prefix) })
	if i < 0 {
		r.t.Fatalf("$ kill %%%s\nthere is no such job", prefix)
	}
	r.jobs[i].stop()
}

// serve starts weir serve on free ports instead of those it names.
func (r *reader) serve(command string, args ...string) {
	doors := map[string]string{"--http": ":8080", "--grpc": ":8081", "--admin": ":6070"}
	for i := range len(args) - 1 {
		if _, ok := doors[args[i]]; ok {
			if doors[args[i]] = args[i+1]; args[i+1] != off {
				args[i+1] = "127.0.0.1:0"
			}
		}
	}
	var ports []string
	for _, address := range doors {
		if address != off && command != "make run" {
			ports = append(ports, address)
		}
	}
	if slices.Contains(args, "--redis") {
		args = append(args, patient)
	}
	b, err := begin(r.dir, []string{atOnce}, append([]string{"--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	if err != nil {
		r.t.Fatalf("$ %s &\n%v", command, err)
	}
	r.is("localhost"+doors["--http"], strings.TrimPrefix(b.http, "http://"))
	r.is("localhost"+doors["--admin"], strings.TrimPrefix(b.admin, "http://"))
	r.background(command, ports, func() {
		if err := b.interrupt(); err != nil {
			r.t.Error(err)
		}
	})
}

// redisServer starts the server that the document has at localhost:6379.
func (r *reader) redisServer() {
	if r.redis == nil {
		r.redis = redistest.Start(r.t, redistest.Options{})
		r.is("localhost:6379", r.redis.Addr())
	} else {
		r.redis.Restart(r.t)
	}
	r.background("redis-server", []string{":6379"}, r.redis.Kill)
}

// start starts a program that listens on localhost:9000.
func (r *reader) start(command string) {
	c := exec.Command(filepath.Join(r.dir, command))
	c.Dir = r.dir
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.background(command, []string{":9000"}, func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	redistest.Await(r.t, command+" listens", func() error {
		conn, err := net.Dial("tcp", r.really("localhost:9000"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// free returns an address that nobody listens on.
func free(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}
