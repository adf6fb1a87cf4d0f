package redisstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// ways are how a store can work, and the user of examples/weir.acl for each.
var ways = map[string]Options{
	"weir":            {},
	"weir-sorted-set": {SortedSet: true},
	"weir-plain":      {Plain: true},
}

// users returns the lines of examples/weir.acl by their users, with a password.
func users(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", "weir.acl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		lines[strings.Fields(line)[1]] = strings.Replace(strings.TrimSpace(line), ">PASSWORD", ">hunter2", 1)
	}
	return lines
}

func openStore(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// notReady checks that Ready says what v does.
func notReady(t *testing.T, o Options, v verdict) {
	t.Helper()
	s := openStore(t, o)
	v.check(t, s.link, s.Ready(t.Context()))
}

// refusals returns how often the server has refused a right, apart from that to
// see a Cluster, which every connection asks for.
func refusals(t *testing.T, s *redistest.Server) (n int) {
	t.Helper()
	entries, _ := s.Must(t, "ACL", "LOG").([]any)
	for _, e := range entries {
		if fields, _ := e.([]any); !slices.Contains(fields, any("cluster|slots")) {
			n++
		}
	}
	return n
}

// The users of examples/weir.acl have every right that is needed, and none that
// is not: without one, the error names it.
func TestReadyAsksForEachRight(t *testing.T) {
	for user, line := range users(t) {
		o, known := ways[user]
		if !known {
			t.Errorf("examples/weir.acl has a user %s", user)
		}
		t.Run(user, func(t *testing.T) {
			server := startServer(t, line)
			o.URL = loginURL(server, user+":hunter2")
			if err := openStore(t, o).Ready(t.Context()); err != nil || refusals(t, server) > 0 {
				t.Fatalf("got %v, %d refusals", err, refusals(t, server))
			}
			if left := server.Must(t, "DBSIZE"); left != int64(0) {
				t.Errorf("%v keys are left: %v", left, server.Must(t, "KEYS", "*"))
			}
			for right := range strings.FieldsSeq(line) {
				if strings.HasPrefix(right, "+") {
					mustDo(t, server, "ACL", "SETUSER", user, "-"+right[1:])
					notReady(t, o, verdict{"", right, true, false})
					mustDo(t, server, "ACL", "SETUSER", user, right)
				}
			}
			mustDo(t, server, "ACL", "SETUSER", user, "resetkeys", "~other:*")
			notReady(t, o, verdict{"", "~weir:*", true, false})
			o.Prefix = "other"
			if err := openStore(t, o).Ready(t.Context()); err != nil {
				t.Errorf("another prefix: %v", err)
			}
			redistest.Await(t, "what could not be deleted to expire", func() error {
				if left := server.Must(t, "DBSIZE"); left != int64(0) {
					return fmt.Errorf("%v keys are left: %v", left, server.Must(t, "KEYS", "*"))
				}
				return nil
			})
		})
	}
}

// All rights that are missing are named at once.
func TestReadyNamesAllRights(t *testing.T) {
	server := startServer(t, "user weir on >hunter2 ~weir:* +ping +eval +evalsha +time +set")
	o := Options{URL: loginURL(server, "weir:hunter2")}
	notReady(t, o, verdict{"may not run", "+append +del +get +getrange +hdel +hgetall +hset +pexpire +pttl +setrange +strlen", true, false})
}

func TestNotReady(t *testing.T) {
	locked := startServer(t, "requirepass hunter2")
	full := startServer(t, "maxmemory 1")
	replica := startServer(t, "replicaof 127.0.0.1 1")
	scriptless := startServer(t, `rename-command EVAL ""`)
	gone := startServer(t)
	gone.Kill()
	for name, test := range map[string]struct {
		url string
		verdict
	}{
		"wrong password": {loginURL(locked, ":hunter22"), verdict{"WRONGPASS", "right user and password", true, false}},
		"full":           {full.URL(), verdict{"OOM", "maxmemory", false, false}},
		"replica":        {replica.URL(), verdict{"READONLY", "address of its primary", true, false}},
		"no scripts":     {scriptless.URL(), verdict{"unknown command", "plain mode", true, false}},
		"out of reach":   {gone.URL(), verdict{"refused", "is the server running", false, false}},
	} {
		t.Run(name, func(t *testing.T) { notReady(t, Options{URL: test.url}, test.verdict) })
	}
	if err := openStore(t, Options{URL: scriptless.URL(), Plain: true}).Ready(t.Context()); err != nil {
		t.Errorf("plain mode without scripts: %v", err)
	}
}

// Behind Sentinel a replica may only be the primary of a moment ago.
func TestReadyBehindSentinel(t *testing.T) {
	replica := startServer(t, "replicaof 127.0.0.1 1")
	s := openStore(t, Options{URL: replica.URL()})
	s.link.endpoint.sentinel = true
	verdict{"READONLY", "address of its primary", false, false}.check(t, s.link, s.Ready(t.Context()))
}

func TestReadyOfAClosedStore(t *testing.T) {
	s := openStore(t, Options{URL: "redis://127.0.0.1:1"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("got %v, want %v", err, weir.ErrClosed)
	}
}

// mayCall finds the commands of scripts by how they are written.
func TestScriptsCallByName(t *testing.T) {
	for _, l := range scripted {
		for _, script := range newScripts().of(l) {
			if n, named := strings.Count(script.text, "call("), len(called.FindAllString(script.text, -1)); n != named {
				t.Errorf("a script of layout %d has %d calls, of which %d name their command", l, n, named)
			}
		}
	}
}
