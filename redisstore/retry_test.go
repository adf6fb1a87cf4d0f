package redisstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// played is a server whose replies to scripts a test plays.
type played struct {
	t         *testing.T
	cluster   bool // it says that all slots of a Cluster are its own
	dialled   atomic.Int64
	mu        sync.Mutex
	plays     func(sent int, c net.Conn, command []string) string // "" ends the connection
	sent      [][]string                                          // the scripts
	addresses string
}

// play starts a server that greets its clients, and answers scripts by plays.
func play(t *testing.T, cluster bool, plays func(sent int, c net.Conn, command []string) string) *played {
	t.Helper()
	p := &played{t: t, cluster: cluster, plays: plays}
	p.addresses = listen(t, func(c net.Conn) {
		p.dialled.Add(1)
		in := bufio.NewReader(c)
		for {
			command, err := readCommand(in)
			if err != nil {
				return
			}
			reply := p.answer(c, command)
			if _, err := io.WriteString(c, reply); err != nil || reply == "" {
				return
			}
		}
	})
	return p
}

// readCommand reads an array of bulk strings.
func readCommand(in *bufio.Reader) (words []string, err error) {
	var n, size int
	if _, err = fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		if _, err = fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err = io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, nil
}

func (p *played) answer(c net.Conn, command []string) string {
	switch command[0] {
	case "HELLO":
		return "-ERR unknown command 'HELLO'\r\n"
	case "PING":
		return "+PONG\r\n"
	case "ASKING":
		return "+OK\r\n"
	case "CLUSTER":
		if !p.cluster {
			return "-ERR This instance has cluster support disabled\r\n"
		}
		host, port, _ := net.SplitHostPort(c.LocalAddr().String())
		return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	}
	p.mu.Lock()
	p.sent = append(p.sent, command)
	n, plays := len(p.sent), p.plays
	p.mu.Unlock()
	return plays(n, c, command)
}

// next plays on otherwise, and forgets what was sent.
func (p *played) next(plays func(sent int, c net.Conn, command []string) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent, p.plays = nil, plays
}

// commands returns the names of the scripts' commands since the last call of next.
func (p *played) commands() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, command := range p.sent {
		names = append(names, command[0])
	}
	return names
}

// store returns a store on the server.
func (p *played) store(parameters string) *Store {
	return openStore(p.t, Options{URL: "redis://" + p.addresses + parameters})
}

// refund sends a script for each key in one trip, and returns the sum of the replies.
func refund(ctx context.Context, s *Store, keys ...string) (int64, error) {
	var receipts []weir.Receipt
	for _, key := range keys {
		receipts = append(receipts, weir.Receipt{Request: weir.Request{Key: key, Limit: logLimit, Cost: 1}, Units: 1, ID: 1})
	}
	return s.Refund(ctx, receipts)
}

var logLimit = weir.Limit{Max: 10, Window: time.Hour, Algorithm: weir.SlidingLog}

// TestRetryOnce holds that a call is repeated once if the server has refused it
// for a reason that passes at once, and never otherwise.
func TestRetryOnce(t *testing.T) {
	texts := map[string]treatment{
		"ERR Error running script (call to f_5d): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.": elsewhere,
		"ERR no such reply":                 unavailable,
		"ERR max number of clients reached": unavailable,
	}
	for code, c := range replyCodes {
		texts[code+" 1 127.0.0.1:1"] = c.treatment
	}
	p := play(t, false, nil)
	s := p.store("")
	for text, done := range texts {
		for _, passes := range []bool{false, true} {
			p.next(func(sent int, _ net.Conn, _ []string) string {
				if passes && sent > 1 {
					return ":1\r\n"
				}
				return "-" + text + "\r\n"
			})
			n, err := refund(t.Context(), s, "k")
			want := map[treatment][]string{byText: {"EVALSHA", "EVAL"}, later: {"EVALSHA", "EVALSHA"}}[done]
			again := want != nil
			if !again {
				want = []string{"EVALSHA"}
			}
			if got := p.commands(); !slices.Equal(got, want) {
				t.Errorf("%s: sent %q, want %q", text, got, want)
			}
			if again && passes {
				if n != 1 || err != nil {
					t.Errorf("%s: got %d, %v, want 1", text, n, err)
				}
				continue
			}
			var e *weir.StoreError
			if wrong := done == settings || done == redirected; !errors.As(err, &e) || e.Settings != wrong || e.Unknown != (text == "ERR no such reply") {
				t.Errorf("%s: got %#v, want settings %t", text, err, wrong)
			}
		}
	}
}

// TestRetryWithText holds that a node to which a key moves in may not know the script.
func TestRetryWithText(t *testing.T) {
	replies := []string{"-TRYAGAIN\r\n", "-NOSCRIPT\r\n", ":1\r\n"}
	p := play(t, false, func(sent int, _ net.Conn, _ []string) string { return replies[sent-1] })
	if n, err := refund(t.Context(), p.store(""), "k"); n != 1 || err != nil || !slices.Equal(p.commands(), []string{"EVALSHA", "EVALSHA", "EVAL"}) {
		t.Errorf("got %d, %v by %q", n, err, p.commands())
	}
}

// TestRetryWhileAsked holds that nothing is repeated, or sent at all, for a
// caller who has left, who learns that nothing was done.
func TestRetryWhileAsked(t *testing.T) {
	for _, text := range []string{"NOSCRIPT", "TRYAGAIN"} {
		p := play(t, false, func(int, net.Conn, []string) string { return "-" + text + "\r\n" })
		s := p.store("")
		client, err := s.link.client(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		calls := []call{{newScript("return 1"), []string{"k"}, nil}}
		results := s.link.trip(t.Context(), client, calls, (*call).evalsha)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		s.link.again(ended, client, calls, results, treat(results[0].Error()), (*call).eval)
		if got := p.commands(); len(got) != 1 || results[0].Error() == nil {
			t.Errorf("%s: sent %q, got %v", text, got, results[0].Error())
		}
		_, err = refund(ended, s, "k")
		verdict{"canceled", "", false, false}.check(t, s.link, err)
		err = s.link.fail(s.link.run(ended, client, calls)[0].Error(), true)
		verdict{"canceled", "", false, false}.check(t, s.link, err)
		if got := p.commands(); len(got) != 1 {
			t.Errorf("%s: sent %q", text, got)
		}
	}
}

// TestRetryOfBatch holds that only those of a batch are repeated that the server
// has refused, and that the others keep their replies.
func TestRetryOfBatch(t *testing.T) {
	replies := []string{":1\r\n", "-TRYAGAIN\r\n", "-OOM\r\n", "-NOSCRIPT\r\n", ":10\r\n", ":100\r\n"}
	p := play(t, false, func(sent int, _ net.Conn, _ []string) string { return replies[sent-1] })
	s := p.store("")
	n, err := refund(t.Context(), s, "a", "b", "c", "d")
	verdict{"OOM", "maxmemory", false, false}.check(t, s.link, err)
	want := []string{"EVALSHA", "EVALSHA", "EVALSHA", "EVALSHA", "EVALSHA", "EVAL"}
	if got := p.commands(); n != 111 || !slices.Equal(got, want) || p.sent[4][3] != p.sent[1][3] || p.sent[5][3] != p.sent[3][3] {
		t.Errorf("got %d by %q", n, p.sent)
	}
}

// TestErrorOfOneList holds that a list's error is its own, on a real server.
func TestErrorOfOneList(t *testing.T) {
	server := startServer(t)
	s := openStore(t, Options{URL: server.URL()})
	requests := []weir.Request{{Key: "a", Limit: logLimit, Cost: 1}, {Key: "foreign", Limit: logLimit, Cost: 1}, {Key: "b", Limit: logLimit, Cost: 1}}
	server.Must(t, "LPUSH", s.keys.state(packedLog, &requests[1]), "1")
	for i := range 3 {
		server.Must(t, "SCRIPT", "FLUSH")
		lists := listsOf(requests...)
		s.Take(t.Context(), lists)
		verdict{"WRONGTYPE", "another prefix", true, false}.check(t, s.link, lists[1].Err)
		for _, at := range []int{0, 2} {
			if d := lists[at].Rows[0]; lists[at].Err != nil || !d.Allowed || d.Remaining != int64(9-i) {
				t.Errorf("list %d got %+v, %v", at, d, lists[at].Err)
			}
		}
	}
}

// listsOf returns a list for each request.
func listsOf(requests ...weir.Request) (lists []weir.List) {
	for i := range requests {
		lists = append(lists, weir.List{Requests: requests[i : i+1], Rows: make([]weir.Decision, 1)})
	}
	return lists
}

// TestUnknownIsNotRetried holds that what a server may have done is sent once:
// the rest of a batch whose connection ends, but not what was sent elsewhere.
func TestUnknownIsNotRetried(t *testing.T) {
	var sent [3]atomic.Int64
	keys := []string{"a", "b", "c"}
	p := play(t, true, func(_ int, c net.Conn, command []string) string {
		i := slices.IndexFunc(keys, func(key string) bool { return strings.HasSuffix(command[3], key) })
		switch n := sent[i].Add(1); {
		case i == 1 && n == 1:
			return fmt.Sprintf("-MOVED 1 %s\r\n", c.LocalAddr())
		case i == 2:
			return ""
		}
		return ":1\r\n"
	})
	s := p.store("")
	n, err := refund(t.Context(), s, keys...)
	verdict{"EOF", "", false, true}.check(t, s.link, err)
	if n != 2 || sent[0].Load() != 1 || sent[1].Load() != 2 || sent[2].Load() != 1 {
		t.Errorf("got %d, sent %q", n, p.sent)
	}
	for range 5 { // one at a time, each on a connection of its own
		before := sent[2].Load()
		_, err := refund(t.Context(), s, "c")
		var e *weir.StoreError
		if !errors.As(err, &e) || !e.Unknown || sent[2].Load() > before+1 {
			t.Errorf("sent %d times, got %v", sent[2].Load()-before, err)
		}
	}
}

// TestRedirectsEnd holds that nodes which name each other are left, and that this
// is no mistake in the settings.
func TestRedirectsEnd(t *testing.T) {
	for _, code := range []string{"MOVED", "ASK"} {
		p := play(t, true, func(_ int, c net.Conn, _ []string) string { return fmt.Sprintf("-%s 1 %s\r\n", code, c.LocalAddr()) })
		s := p.store("")
		for _, keys := range [][]string{{"a"}, {"a", "b"}} {
			p.next(p.plays)
			_, err := refund(t.Context(), s, keys...)
			verdict{code, "do not agree", false, false}.check(t, s.link, err)
			if got := p.commands(); len(got) != len(keys)*(1+mostRedirects) {
				t.Errorf("%s: %d keys were sent %d times", code, len(keys), len(got))
			}
		}
	}
}

// TestContextEnds holds that a caller of a hung server waits for his context and
// no longer, that this ends no connection, and that close ends what is left.
func TestContextEnds(t *testing.T) {
	released := make(chan struct{})
	hang := func(int, net.Conn, []string) string {
		<-released
		return ":1\r\n"
	}
	p := play(t, false, hang)
	before := runtime.NumGoroutine()
	s := p.store("?write_timeout=20s")
	p.plays = func(int, net.Conn, []string) string { return ":1\r\n" }
	endless := context.WithoutCancel(t.Context()) // for which rueidis would not begin to pipeline
	for range 64 {                                // until all connections are made
		if _, err := refund(endless, s, "k"); err != nil {
			t.Fatal(err)
		}
	}
	dialled := p.dialled.Load()
	p.next(hang)
	start := time.Now()
	cancelled, cancel := context.WithTimeout(t.Context(), time.Minute)
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := refund(cancelled, s, "k")
	verdict{"canceled", "", false, true}.check(t, s.link, err)
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := refund(ctx, s, "a", "b")
			verdict{"deadline", "", false, true}.check(t, s.link, err)
		})
	}
	callers.Wait()
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("callers waited for %s", d)
	}
	close(released)
	if _, err := refund(t.Context(), s, "k"); err != nil || p.dialled.Load() != dialled {
		t.Errorf("got %v by connection %d, want one of %d", err, p.dialled.Load(), dialled)
	}
	_ = s.Close()
	awaitGoroutines(t, before)
}

// TestFullQueue holds that callers who find the queue to a hung server full, which
// wait for a place without regard to their contexts, return when that counts as
// broken: after two pings' intervals and the write timeout.
func TestFullQueue(t *testing.T) {
	released := make(chan struct{})
	p := play(t, false, func(int, net.Conn, []string) string {
		<-released
		return ""
	})
	before := runtime.NumGoroutine()
	s := p.store("?write_timeout=100ms")
	s.link.endpoint.option.RingScaleEachConn, s.link.endpoint.option.PipelineMultiplex = 1, -1
	if _, err := s.link.client(t.Context()); err != nil {
		t.Fatal(err)
	}
	leave(t, s, 200*time.Millisecond, func(err error) bool {
		var e *weir.StoreError
		return errors.As(err, &e) && e.Unknown
	})
	close(released)
	_ = s.Close()
	awaitGoroutines(t, before)
}

// leave has callers wait for as long, and checks that all return soon after.
func leave(t *testing.T, s *Store, within time.Duration, failed func(error) bool) {
	t.Helper()
	start := time.Now()
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if _, err := refund(ctx, s, "k"); !failed(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	callers.Wait()
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("callers waited for %s", d)
	}
}

// TestHungDial holds that callers who wait for the connection that another one
// is making return when that has taken twice the dial timeout.
func TestHungDial(t *testing.T) {
	p := play(t, false, func(sent int, _ net.Conn, _ []string) string { return map[bool]string{true: ":1\r\n"}[sent == 1] })
	var silent atomic.Bool
	dialling := make(chan struct{}, 64)
	address := listen(t, func(c net.Conn) {
		if silent.Load() {
			dialling <- struct{}{}
			_, _ = io.Copy(io.Discard, c)
			return
		}
		forward(t, c, p.addresses)
	})
	before := runtime.NumGoroutine()
	s := openStore(t, Options{URL: "redis://" + address + "?dial_timeout=300ms"})
	s.link.endpoint.option.PipelineMultiplex = -1
	if _, err := refund(t.Context(), s, "k"); err != nil {
		t.Fatal(err)
	}
	silent.Store(true)
	_, err := refund(t.Context(), s, "k")
	verdict{"EOF", "", false, true}.check(t, s.link, err)
	patient := make(chan error)
	go func() {
		_, err := refund(t.Context(), s, "k")
		patient <- err
	}()
	<-dialling
	leave(t, s, 20*time.Millisecond, func(err error) bool { return err != nil })
	if err := <-patient; err == nil {
		t.Error("a silent server answered")
	}
	_ = s.Close()
	awaitGoroutines(t, before)
}

// forward joins a connection with one to a server, until either ends.
func forward(t *testing.T, c net.Conn, address string) {
	to, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	go func() {
		_, _ = io.Copy(to, c)
		_ = to.Close()
	}()
	_, _ = io.Copy(c, to)
}

// awaitGoroutines waits until there are no more than before.
func awaitGoroutines(t *testing.T, before int) {
	t.Helper()
	redistest.Await(t, "the goroutines to end", func() error {
		if n := runtime.NumGoroutine(); n > before {
			stacks := make([]byte, 1<<20)
			return fmt.Errorf("%d more than %d:\n%s", n-before, before, stacks[:runtime.Stack(stacks, true)])
		}
		return nil
	})
}

// TestReplicaIsLeft holds that a server which has become a replica is left for
// the one to which its name leads by then, and that connecting anew is not done
// for each reply.
func TestReplicaIsLeft(t *testing.T) {
	first, second := startServer(t), startServer(t)
	var named atomic.Pointer[redistest.Server]
	named.Store(first)
	address := listen(t, func(c net.Conn) { forward(t, c, named.Load().Addr()) })
	s := openStore(t, Options{URL: "redis://" + address})
	take := func() error {
		lists := listsOf(weir.Request{Key: "k", Limit: logLimit, Cost: 1})
		s.Take(t.Context(), lists)
		return lists[0].Err
	}
	if err := take(); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(second.Addr(), ":")
	first.Must(t, "REPLICAOF", host, port)
	start, failed := time.Now(), 0
	for time.Since(start) < renewAfter/2 { // the name still leads to the replica
		verdict{"READONLY", "address of its primary", false, false}.check(t, s.link, take())
		failed++
	}
	info, err := first.Info("stats")
	if connections := info["total_connections_received"]; err != nil || failed < 10 || len(connections) != len("9") {
		t.Errorf("%d replies, %s connections, %v", failed, connections, err)
	}
	named.Store(second)
	redistest.Await(t, "the primary to be found", take)
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("found after %s", d)
	}
	if n := second.Must(t, "DBSIZE"); n != int64(1) {
		t.Errorf("the primary has %v keys, want 1", n)
	}
}

// TestSlotMoves holds, on a real Cluster, that decisions go on while a slot
// moves, but for lists of which only some keys have moved; these have taken nothing.
func TestSlotMoves(t *testing.T) {
	c := redistest.StartCluster(t)
	s := openStore(t, Options{URL: "redis://" + strings.Join(c.Addrs(), ",")})
	rows := []weir.Request{{Key: "a", Group: "g", Limit: logLimit, Cost: 1}, {Key: "b", Group: "g", Limit: logLimit, Cost: 1}}
	take := func(want int64, requests ...weir.Request) {
		t.Helper()
		lists := []weir.List{{Requests: requests, Rows: make([]weir.Decision, len(requests))}}
		s.Take(t.Context(), lists)
		if d := lists[0].Rows[0]; lists[0].Err != nil || !d.Allowed || d.Remaining != want {
			t.Errorf("got %+v, %v, want %d remaining", d, lists[0].Err, want)
		}
	}
	take(9, rows...)
	slot := fmt.Sprint(c.Servers[0].Must(t, "CLUSTER", "KEYSLOT", s.keys.state(packedLog, &rows[0])))
	at := slices.IndexFunc(c.Servers[:3], func(server *redistest.Server) bool {
		return server.Must(t, "CLUSTER", "COUNTKEYSINSLOT", slot) == int64(2)
	})
	from, to := c.Servers[at], c.Servers[(at+1)%3]
	toID := fmt.Sprint(to.Must(t, "CLUSTER", "MYID"))
	to.Must(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", fmt.Sprint(from.Must(t, "CLUSTER", "MYID")))
	from.Must(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	host, port, _ := strings.Cut(to.Addr(), ":")
	move := func(i int) {
		from.Must(t, "MIGRATE", host, port, s.keys.state(packedLog, &rows[i]), "0", "5000")
	}
	take(8, rows...)
	move(0)
	take(7, rows[0]) // ASK
	take(7, rows[1])
	lists := []weir.List{{Requests: rows, Rows: make([]weir.Decision, 2)}}
	s.Take(t.Context(), lists)
	verdict{"TRYAGAIN", "", false, false}.check(t, s.link, lists[0].Err)
	take(6, rows[0])
	move(1)
	take(5, rows...) // ASK
	for _, server := range []*redistest.Server{to, from} {
		server.Must(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
	take(4, rows...) // MOVED
	unserved(t, c, s)
}

// unserved holds that a slot without a node fails the lists of that slot alone.
func unserved(t *testing.T, c *redistest.Cluster, s *Store) {
	requests := []weir.Request{{Key: "x", Limit: logLimit, Cost: 1}, {Key: "y", Limit: logLimit, Cost: 1}, {Key: "z", Limit: logLimit, Cost: 1}}
	slot := fmt.Sprint(c.Servers[0].Must(t, "CLUSTER", "KEYSLOT", s.keys.state(packedLog, &requests[1])))
	for _, server := range c.Servers {
		server.Must(t, "CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	redistest.Await(t, "the client to see that there is no node", func() error {
		for _, server := range c.Servers { // again, since a node may still be told who had it
			_, _ = server.Do("CLUSTER", "DELSLOTS", slot) // refused where it has gone already
		}
		lists := listsOf(requests...)
		s.Take(t.Context(), lists)
		if lists[0].Err != nil || lists[2].Err != nil {
			t.Errorf("got %v, %v for slots that are served", lists[0].Err, lists[2].Err)
		}
		verdict{"slot", "CLUSTER INFO", false, false}.check(t, s.link, lists[1].Err)
		if errors.Is(lists[1].Err, rueidis.ErrNoSlot) {
			return nil
		}
		return lists[1].Err
	})
}

// TestTableOfReplies holds that the guide says what is done about each reply.
func TestTableOfReplies(t *testing.T) {
	text, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		for i, word := range strings.Split(cells[0], "`") {
			if _, is := replyCodes[word]; is && i%2 == 1 && strings.HasPrefix(line, "| ") {
				said[word] += cells[1]
			}
		}
	}
	words := map[treatment]string{
		unavailable: "unavailable", settings: "settings", byText: "sent once more, with the script's text",
		later: "sent once more after 1 to 5 ms", redirected: "followed", elsewhere: "unavailable; connects anew",
	}
	for code, c := range replyCodes {
		if said[code] != words[c.treatment] {
			t.Errorf("%s: the guide says %q, want %q", code, said[code], words[c.treatment])
		}
	}
}
