//go:build long

package proxies

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/docs"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/lab/debian"
)

// programs are the proxies.
var programs = debian.Packages{
	Name:     "proxies",
	Names:    []string{"nginx", "caddy", "haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"},
	Programs: map[string]string{"nginx": "usr/sbin/nginx", "caddy": "usr/bin/caddy", "haproxy": "usr/sbin/haproxy"},
}

// proxy is how a proxy is started.
type proxy struct {
	name string
	main string // its file, which the diffs are for
	args []string
	// door is what its file listens on; %s stands for the address instead.
	door, instead string
	// slow says to wait for weir as long as a busy machine may need.
	slow bool
	// adapt changes what only a test has to.
	adapt func(text string) string
}

// patient returns a proxy that waits for weir as long as a busy machine needs.
func patient(p proxy) proxy {
	p.slow = true
	return p
}

// longer has how long the pages wait, and what to wait instead.
var longer = strings.NewReplacer("100ms", "15s", "200ms", "15s", "timeout = 1000", "timeout = 30000")

var proxies = []proxy{
	{
		name: "nginx", main: "nginx.conf", door: "listen 80;", instead: "listen %s;",
		args: []string{"-p", ".", "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off; master_process off; pid nginx.pid; error_log stderr;"},
		adapt: func(text string) string {
			paths := "http {\n    access_log off;\n"
			for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
				paths += "    " + kind + "_temp_path " + kind + ";\n"
			}
			return strings.Replace(text, "http {\n", paths, 1)
		},
	},
	{name: "caddy", main: "Caddyfile", door: ":80 {", instead: "http://%s {", args: []string{"run", "--config", "Caddyfile", "--adapter", "caddyfile"}},
	{name: "haproxy", main: "haproxy.cfg", door: "bind :80", instead: "bind %s", args: []string{"-db", "-f", "haproxy.cfg"}},
}

// rig is a proxy before an app, with weir to ask.
type rig struct {
	url    string
	app    atomic.Int64 // requests that it has got
	client *http.Client
}

// Addresses of this machine that clients have, and proxies have not.
const alice, bob = "127.0.0.2", "127.0.0.3"

// client returns one that is at an address.
func client(ip string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       20 * time.Second,
	}
}

// set starts a proxy as its page says, with all changes of it if open, and an
// app. Whom it asks is at the address weir.
func set(t *testing.T, p proxy, open bool, weir string) *rig {
	t.Helper()
	r := &rig{client: client(alice)}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.app.Add(1)
		body, _ := io.ReadAll(q.Body)
		if q.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "%s %s %s", q.Method, q.RequestURI, body)
	}))
	t.Cleanup(app.Close)

	files := read(t, p.name).files
	if open {
		for _, diff := range read(t, p.name).diffs {
			files[p.main] = docs.Patch(t, files[p.main], diff)
		}
	}
	door := unused(t)
	files[p.main] = once(t, files[p.main], p.door, fmt.Sprintf(p.instead, door))
	if p.adapt != nil {
		files[p.main] = p.adapt(files[p.main])
	}
	dir, own := t.TempDir(), strings.NewReplacer("127.0.0.1:8080", weir, "127.0.0.1:9000", app.Listener.Addr().String(), "127.0.0.1:8079", unused(t))
	for name, text := range files {
		if p.slow {
			text = longer.Replace(text)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(own.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start(t, p, dir, door)
	r.url = "http://" + door
	return r
}

// once replaces what a text must have once.
func once(t *testing.T, text, old, with string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("%q is there %d times, want 1, in\n%s", old, n, text)
	}
	return strings.Replace(text, old, with, 1)
}

// start runs a proxy in dir until the test ends, and returns when it listens.
func start(t *testing.T, p proxy, dir, door string) {
	t.Helper()
	path := programs.Find(t, p.name)
	cmd := exec.Command(path, p.args...)
	cmd.Dir = dir
	cmd.Env = append(debian.Libraries(path), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "CADDY_ADMIN=unix//"+filepath.Join(dir, "admin"))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed, so it always fails
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // which fails if it has ended
		<-ended
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s said: %s %v", p.name, text, err)
		}
	})
	redistest.Await(t, p.name+" to listen", func() error {
		select {
		case <-ended:
			t.Fatalf("%s ended: %v", p.name, cmd.ProcessState)
		default:
		}
		conn, err := net.Dial("tcp", door)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
}

// unused returns an address that nobody listens on.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// hung returns an address that takes connections and never answers.
func hung(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// build builds the service and returns the path of the program.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/weir")
	cmd.Dir = filepath.Join("..", "..", "service")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return path
}

var listening = regexp.MustCompile(`listening door=http address=(\S+)`)

// serve runs the service as a page says until the test ends, and returns its
// address.
func serve(t *testing.T, path string, p proxy, env ...string) (address string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(config, []byte(read(t, p.name).files["weir.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "serve", "--config", config, "--grpc", "off", "--admin", "off")
	cmd.Env = append(append(os.Environ(), "WEIR_HTTP=127.0.0.1:0"), env...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			address = m[1]
		}
		if strings.HasSuffix(lines.Text(), " serving") {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = io.Copy(io.Discard, stderr)
				_ = cmd.Wait() // it is killed, so it always fails
			}()
			t.Cleanup(func() {
				_ = cmd.Process.Kill() // which fails if it has ended
				<-ended
			})
			return address
		}
		t.Log(lines.Text())
	}
	t.Fatalf("weir did not come up: %v", cmd.Wait())
	return ""
}
