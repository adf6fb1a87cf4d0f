package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weir": main, "curl": curl})
}

// TestScript runs sessions at a terminal. Beside weir and curl they know
//
//	start ARG...      weir serve ARG... in the background, until it serves; sets
//	                  $URL, $ADMIN and $ADDRESS (that of $URL); logs to server.log
//	interrupt         asks that server to stop and waits until it has
//	exits N CMD...    runs a command that must exit with N
//
// $EXAMPLES is the folder of the examples.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Values[running{}] = &background{}
			env.Setenv("GORACE", strings.TrimPrefix(atOnce, "GORACE="))
			examples, err := filepath.Abs("../../../examples")
			env.Setenv("EXAMPLES", examples)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": start, "interrupt": interrupt, "exits": exits,
		},
	})
}

// background is a server in a process of its own.
type background struct {
	http, admin string // the URLs of its doors
	grpc        string // the address of that one
	cmd         *exec.Cmd
	done        chan error // what Wait returned, once; then it is closed
}

// running is where a script has its background.
type running struct{}

var listening = regexp.MustCompile(`listening door=(\w+) address=(\S+)`)

// begin starts weir serve and returns once it serves. It logs to server.log.
func begin(dir string, env []string, args ...string) (*background, error) {
	b := &background{cmd: exec.Command("weir", append([]string{"serve"}, args...)...), done: make(chan error, 1)}
	b.cmd.Dir, b.cmd.Env = dir, append(append(os.Environ(), "WEIR_GRPC=off"), env...)
	stderr, err := b.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	lines := bufio.NewScanner(io.TeeReader(stderr, log))
	for lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			switch m[1] {
			case "http":
				b.http = "http://" + m[2]
			case "grpc":
				b.grpc = m[2]
			case "admin":
				b.admin = "http://" + m[2]
			}
		}
		if strings.HasSuffix(lines.Text(), " serving") {
			go func() {
				for lines.Scan() { // to its end, for the log
				}
				b.done <- errors.Join(b.cmd.Wait(), log.Close())
				close(b.done)
			}()
			return b, nil
		}
	}
	return nil, fmt.Errorf("weir serve did not come up: %w", errors.Join(b.cmd.Wait(), log.Close()))
}

// interrupt asks the server to stop and waits until it has.
func (b *background) interrupt() error {
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return <-b.done
}

func start(ts *testscript.TestScript, _ bool, args []string) {
	var env []string
	for _, name := range []string{"WEIR_HTTP", "WEIR_ADMIN", "WEIR_ADMIN_TOKEN", "WEIR_ADMIN_TOKENS_FILE", "WEIR_REDACT_KEYS", "WEIR_CONFIG", "WEIR_INLINE", "WEIR_LOG_LEVEL", "GORACE"} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	b, err := begin(ts.Getenv("WORK"), env, args...)
	ts.Check(err)
	ts.Defer(func() { _ = b.cmd.Process.Kill() }) // unless it has been interrupted
	*ts.Value(running{}).(*background) = *b
	ts.Setenv("URL", b.http)
	ts.Setenv("ADDRESS", strings.TrimPrefix(b.http, "http://"))
	ts.Setenv("ADMIN", b.admin)
}

func interrupt(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(ts.Value(running{}).(*background).interrupt())
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// curl is as much of curl as the scripts and the documents need, wherever they run.
func curl() {
	flags := pflag.NewFlagSet("curl", pflag.ExitOnError)
	data := flags.StringP("data", "d", "", "body")
	head := flags.BoolP("include", "i", false, "print the head too")
	headers := flags.StringArrayP("header", "H", nil, "header")
	request := flags.StringP("request", "X", "", "method")
	_ = flags.BoolP("silent", "s", false, "show no progress")
	check(flags.Parse(os.Args[1:]))
	if *data == "@-" {
		text, err := io.ReadAll(os.Stdin)
		check(err)
		*data = string(text)
	}
	url := flags.Arg(0)
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	method := http.MethodGet
	if *data != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequest(cmp.Or(*request, method), url, strings.NewReader(*data))
	check(err)
	if *data != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range *headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	check(err)
	if *head {
		fmt.Printf("%s %s\n", response.Proto, response.Status)
		check(response.Header.Write(os.Stdout))
		fmt.Println()
	}
	_, err = io.Copy(os.Stdout, response.Body)
	check(err)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "curl:", err)
		os.Exit(7)
	}
}
