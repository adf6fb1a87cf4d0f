package redisstore

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// composed returns every script that a store runs, by its name.
func composed() map[string]string {
	all, s := make(map[string]string), newScripts()
	for name, of := range map[string]map[layout]*script{"one": s.one, "refund": s.refund, "count": s.count, "reset": s.reset} {
		for l, script := range of {
			all[fmt.Sprintf("%s of %c", name, letters[l])] = script.text
		}
	}
	set := uint(0)
	for _, l := range scripted {
		all[fmt.Sprintf("list of %c", letters[l])] = s.list(1 << l).text
		all[fmt.Sprintf("nested of %c", letters[l])] = s.nested([]layout{l, l}).text
		set |= 1 << l
	}
	all["list of all"] = s.list(set).text
	return all
}

// muldivCases are products around the edges of what a double holds, within the
// bounds that muldiv.lua states.
func muldivCases() (all [][4]int64) {
	r := rand.New(rand.NewPCG(1, 2))
	near := func(bits int, most int64) int64 { // within 3 of a power of two
		return min(max(0, 1<<bits+r.Int64N(7)-3), most)
	}
	const maxA, maxB, maxC, maxD = 1<<53 - 1, 1<<35 - 1, 1<<45 - 1, 1<<45 - 1
	for range 30_000 {
		a := min(r.Int64N(1<<(1+r.IntN(53))), maxA)
		b := r.Int64N(1 << (1 + r.IntN(35)))
		switch bits := r.IntN(54); r.IntN(5) {
		case 0: // a product of about 2^52, where one product ends and limbs begin
			a, b = near(bits, maxA), near(max(0, 52-bits), maxB)
		case 1: // of about 2^53
			a, b = near(bits, maxA), near(max(0, 53-bits), maxB)
		case 2: // of about 2^77
			a, b = near(42+r.IntN(4), maxA), near(31+r.IntN(4), maxB)
		}
		c, d := r.Int64N(1<<(1+r.IntN(45))), 1+r.Int64N(1<<(1+r.IntN(44)))
		switch r.IntN(6) {
		case 0:
			d = 1
		case 1:
			d = min(max(1, a*b>>52+r.Int64N(5)-2), maxD) // a quotient of about 2^52
		case 2:
			c = min(d-1, maxC)
		case 3:
			c = min(d-1+r.Int64N(1<<31), maxC)
		case 4:
			c, d = 0, near(44, maxD)
		}
		all = append(all, [4]int64{a, min(b, maxB), c, d})
	}
	return all
}

func TestMuldiv(t *testing.T) {
	if err := checkMuldiv(redistest.Start(t, redistest.Options{}), luaFile("muldiv.lua")); err != nil {
		t.Error(err)
	}
}

// checkMuldiv compares the function of muldiv.lua with math/big.
func checkMuldiv(server *redistest.Server, source string) error {
	const loop = `
		local out = {}
		for i = 1, #ARGV[1], 28 do
			local a, b, c, d = struct.unpack('>I7I7I7I7', ARGV[1], i)
			local q, r = muldiv(a, b, c, d)
			out[#out + 1] = struct.pack('>I7I7', q, r)
		end
		return table.concat(out)`
	for cases := range slices.Chunk(muldivCases(), 1000) {
		var args []byte
		for _, c := range cases {
			for _, n := range c {
				args = appendInt(args, n, 7)
			}
		}
		reply, err := server.Do("EVAL", source+loop, "0", string(args))
		if err != nil {
			return err
		}
		read := reader{b: reply.(string)}
		for _, c := range cases {
			q, r := read.int(7), read.int(7)
			n := new(big.Int).Mul(big.NewInt(c[0]), big.NewInt(c[1]))
			wantQ, wantR := n.Add(n, big.NewInt(c[2])).DivMod(n, big.NewInt(c[3]), new(big.Int))
			// From 2^52 on it is enough that it stays there, and an integer.
			switch huge := wantQ.BitLen() > 52; {
			case huge && (q < 1<<52 || q > 1<<53), !huge && (q != wantQ.Int64() || r != wantR.Int64()):
				return fmt.Errorf("(%d*%d+%d)/%d is %d rest %d, want %s rest %s", c[0], c[1], c[2], c[3], q, r, wantQ, wantR)
			}
		}
		if read.bad || read.b != "" {
			return fmt.Errorf("%d bytes of results for %d cases", len(reply.(string)), len(cases))
		}
	}
	return nil
}

// proto is what a compiled Lua function does with globals.
type proto struct {
	reads, writes map[string]bool
}

// chunk reads a function as Lua 5.1 dumps it: see luac's ldump.c.
type chunk struct{ b []byte }

func (c *chunk) take(n int) []byte {
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *chunk) int() int { return int(binary.LittleEndian.Uint32(c.take(4))) }

func (c *chunk) string() string {
	n := int(binary.LittleEndian.Uint64(c.take(8)))
	return strings.TrimSuffix(string(c.take(n)), "\x00")
}

// function reads a function and those within it.
func (c *chunk) function(p proto) {
	const getGlobal, setGlobal = 5, 7
	c.string()        // where it is from
	c.take(4 + 4 + 4) // lines, parameters
	code := c.take(4 * c.int())
	constants := make([]string, c.int())
	for i := range constants {
		switch c.take(1)[0] {
		case 1:
			c.take(1)
		case 3:
			c.take(8)
		case 4:
			constants[i] = c.string()
		}
	}
	for range c.int() {
		c.function(p)
	}
	c.take(4 * c.int()) // lines
	for range c.int() { // locals
		c.string()
		c.take(8)
	}
	for range c.int() { // upvalues
		c.string()
	}
	for ; len(code) > 0; code = code[4:] {
		switch word := binary.LittleEndian.Uint32(code); word & 63 {
		case getGlobal:
			p.reads[constants[word>>14]] = true
		case setGlobal:
			p.writes[constants[word>>14]] = true
		}
	}
}

// globals returns the globals that a script reads and writes, wherever in it.
func globals(t *testing.T, server *redistest.Server, text string) proto {
	t.Helper()
	dump, _ := server.Must(t, "EVAL", "return string.dump(assert(loadstring(ARGV[1])))", "0", text).(string)
	const header = "\x1bLuaQ\x00\x01\x04\x08\x04\x08\x00" // 64 bits, little-endian
	if !strings.HasPrefix(dump, header) {
		t.Fatalf("the server dumps functions in another way: %.20q", dump)
	}
	p := proto{make(map[string]bool), make(map[string]bool)}
	(&chunk{[]byte(dump[len(header):])}).function(p)
	return p
}

// TestScriptsAreClean holds that every script compiles, leaves no global behind
// and reads none but Redis' own, that all its places are filled, and that it
// touches declared keys only.
func TestScriptsAreClean(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	commands := regexp.MustCompile(`\bcall\(([^,)]*)(?:, ([^,)]*))?`)
	comments := regexp.MustCompile(`--.*`)
	keys := regexp.MustCompile(`\bkey\b *=`)
	known := []string{"ARGV", "KEYS", "math", "redis", "string", "struct", "table", "tonumber"}
	for name, text := range composed() {
		p := globals(t, server, text)
		if len(p.writes) > 0 {
			t.Errorf("%s: writes the globals %v", name, slices.Collect(maps.Keys(p.writes)))
		}
		for read := range p.reads {
			if !slices.Contains(known, read) {
				t.Errorf("%s: reads the global %s", name, read)
			}
		}
		text = comments.ReplaceAllString(text, "")
		if strings.Contains(text, "@") {
			t.Errorf("%s: a place is left: %s", name, lineWith(text, "@"))
		}
		// key is KEYS[1] or the parameter of a function that is given one of KEYS.
		if keys.MatchString(text) {
			t.Errorf("%s: assigns key: %s", name, keys.FindString(text))
		}
		for _, found := range commands.FindAllStringSubmatch(text, -1) {
			if found[1] != "'TIME'" && found[2] != "key" && found[2] != "KEYS[1]" {
				t.Errorf("%s: %s...): the key is not one of KEYS", name, found[0])
			}
		}
	}
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

// calls returns how often each command was run since the last RESETSTAT.
func calls(t *testing.T, server *redistest.Server) map[string]int {
	t.Helper()
	stats, err := server.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]int)
	for name, text := range stats {
		count, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		if n[strings.TrimPrefix(name, "cmdstat_")], err = strconv.Atoi(count); err != nil {
			t.Fatalf("%s: %s", name, text)
		}
	}
	return n
}

// deeds are one call of each method of a store that runs a script.
func deeds(t *testing.T, store *Store, l weir.Limit) map[string]func() error {
	t.Helper()
	ctx, lim := t.Context(), weir.New(weir.Options{Store: store})
	d, err := lim.AllowN(ctx, "k", l, 5)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]func() error{
		"take": func() error { _, err := lim.Allow(ctx, "k", l); return err },
		"list": func() error {
			_, err := lim.AllowAll(ctx, weir.Request{Key: "k", Limit: l}, weir.Request{Key: "k", Limit: l, Mode: weir.Shadow})
			return err
		},
		"refund": func() error { _, err := store.Refund(ctx, d.Receipts()); return err },
		"oldest": func() error { _, err := lim.RefundOldest(ctx, weir.Request{Key: "k", Limit: l}); return err },
		"reset":  func() error { _, err := lim.Reset(ctx, "k", l); return err },
	}
	if l.Algorithm == weir.SlidingLog || l.Algorithm == weir.SlidingBuckets {
		all["count"] = func() error { _, err := lim.Count(ctx, "k", l, time.Minute); return err }
	}
	return all
}

// TestScriptsAreSentOnce holds that every call is one EVALSHA that reads TIME
// once, and that a server which has lost the script gets it once, by EVAL.
func TestScriptsAreSentOnce(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	for _, sorted := range []bool{false, true} {
		store := openStore(t, Options{URL: server.URL(), SortedSet: sorted})
		for _, text := range []string{"9/1h", "20000/1h", "9/1h sliding-counter", "9/1h fixed-window", "9/1h burst=9"} {
			l := limit(t, text)
			server.Must(t, "FLUSHALL")
			for name, deed := range deeds(t, store, l) {
				for _, lost := range []bool{true, false} {
					if lost {
						server.Must(t, "SCRIPT", "FLUSH")
					}
					server.Must(t, "CONFIG", "RESETSTAT")
					if err := deed(); err != nil {
						t.Errorf("%s, %s: %v", text, name, err)
					}
					want := map[bool]int{true: 1}[lost]
					if n := calls(t, server); n["evalsha"] != 1 || n["eval"] != want || n["time"] != 1 {
						t.Errorf("%s, %s, lost=%t: %d EVALSHA, %d EVAL, %d TIME", text, name, lost, n["evalsha"], n["eval"], n["time"])
					}
				}
			}
		}
	}
}

// TestScriptFlushUnderLoad holds that a server which keeps losing its scripts
// loses nothing else: 16 callers are admitted exactly Max, without an error.
func TestScriptFlushUnderLoad(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	lim := weir.New(weir.Options{Store: openStore(t, Options{URL: server.URL()})})
	l := limit(t, "500/366d")
	var admitted, left atomic.Int64
	var callers sync.WaitGroup
	left.Store(16)
	for range 16 {
		callers.Go(func() {
			defer left.Add(-1)
			for range 50 {
				d, err := lim.Allow(t.Context(), "k", l)
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	flushed := 0
	for ; left.Load() > 0; flushed++ {
		server.Must(t, "SCRIPT", "FLUSH")
	}
	callers.Wait()
	if admitted.Load() != 500 || flushed < 2 {
		t.Errorf("%d of 500 were admitted while the scripts were lost %d times", admitted.Load(), flushed)
	}
}
