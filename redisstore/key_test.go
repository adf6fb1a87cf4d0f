package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// named is the name that a request's state has.
func named(t testing.TB, k keys, r weir.Request, sorted bool) string {
	t.Helper()
	limit, err := r.Limit.Normal()
	if err != nil {
		t.Fatalf("%+v: %v", r.Limit, err)
	}
	r.Limit = limit
	s := Store{options: Options{SortedSet: sorted}}
	return k.state(s.layout(limit), &r)
}

func limit(t testing.TB, text string) weir.Limit {
	t.Helper()
	l, err := weir.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestNames holds the names of states to what is documented: whoever changes
// them loses what is recorded, and changes keyVersion.
func TestNames(t *testing.T) {
	for _, test := range []struct{ limit, key, group, want string }{
		{"5/minute", "search:alice", "", "weir:1l1m:{S4L}search:alice"},
		{"5/90s", "search:alice", "", "weir:1l90s:{S4L}search:alice"},
		{"5/hour sliding-log", "", "", "weir:1l1h:{AAA}"},
		{"5/week buckets=7", "k", "", "weir:1b7d/7:{CGJ}k"},
		{"20000/1500ms", "k", "", "weir:1b1500ms/100:{CGJ}k"},
		{"5/1us sliding-counter", "k", "", "weir:1c1us:{CGJ}k"},
		{"5/1001us fixed-window", "k", "", "weir:1w1001us:{CGJ}k"},
		{"5/day epoch", "k", "", "weir:1w1de:{CGJ}k"},
		{"5/day burst=7", "k", "", "weir:1t1d:{CGJ}k"},
		{"5/minute", "k", "search:alice", "weir:1l1m:{S4L}k"},
		{"5/minute", "{k}%#\n \x00é", "k", "weir:1l1m:{CGJ}%7Bk%7D%25%23%0A%20%00%C3%A9"},
		{"5/minute", strings.Repeat("k", 96), "k", "weir:1l1m:{CGJ}" + strings.Repeat("k", 96)},
		{"5/minute", strings.Repeat("k", 97), "k", "weir:1l1m:{CGJ}#3vCdK-YCzF4x2CXJsbpBxBPY"},
		{"5/minute", strings.Repeat("\n", 32), "k", "weir:1l1m:{CGJ}" + strings.Repeat("%0A", 32)},
		{"5/minute", strings.Repeat("\n", 33), "k", "weir:1l1m:{CGJ}#RpFYmRO6vfvT-3NolRBajoJt"},
	} {
		r := weir.Request{Key: test.key, Limit: limit(t, test.limit), Group: test.group}
		if got := named(t, keys{prefix: "weir"}, r, false); got != test.want {
			t.Errorf("%s, key %q: got %s, want %s", test.limit, test.key, got, test.want)
		}
	}
	r := weir.Request{Key: "k", Limit: limit(t, "5/minute")}
	if got, want := named(t, keys{prefix: "weir"}, r, true), "weir:1z1m:{CGJ}k"; got != want {
		t.Errorf("as a sorted set: got %s, want %s", got, want)
	}
	k := keys{prefix: "weir"}
	if got, want := k.table("k}\n"), "weir:1h:{wYc}k%7D%0A"; got != want {
		t.Errorf("of a table: got %s, want %s", got, want)
	}
}

// identities are limits of pairwise different states.
func identities(t testing.TB) (all []weir.Limit) {
	for _, text := range []string{
		"5/1us", "5/10us", "5/1ms", "5/1001us", "5/1s", "5/10s", "5/1m", "5/1h", "5/11m", "5/1d", "5/2d", "5/48h1us",
	} {
		for _, kind := range []string{
			"sliding-log", "sliding-counter", "fixed-window", "epoch", "token-bucket",
			"buckets=1", "buckets=2", "buckets=10", "buckets=100",
		} {
			all = append(all, limit(t, text+" "+kind))
		}
	}
	return all
}

// trickyKeys are pairwise different and easily taken for each other, also as
// parts of a name.
func trickyKeys() []string {
	long := strings.Repeat("k", 10_000)
	all := []string{
		"", ":", "::", "a", "a:", "a:b", "a%3Ab", "a%3ab", "a:b:c", "%", "%25", "%2525", "#", "%23", "{", "}", "{}", "{a}", "}a{", "{CGJ}a",
		" ", "\n", "\x00", "\xff", "é", "e\u0301", "1m", "1m:", "e:{CGJ}a", "/7:a", "#3vCdK-YCzF4x2CXJsbpBxBPY", long, long + "k", long + "\x00",
	}
	for _, n := range []int{31, 32, 33, 95, 96, 97} { // around the length from which keys are hashed
		all = append(all, strings.Repeat("x", n), strings.Repeat("x", n-1)+"{", strings.Repeat("\x01", n))
	}
	return all
}

// TestNamesDiffer holds that no two states share a name, and no part of a user
// is in the hash tag of one.
func TestNamesDiffer(t *testing.T) {
	for _, secret := range []string{"", "s3cret"} {
		k := keys{prefix: "weir"}
		if secret != "" {
			k.secret = []byte(secret)
		}
		type state struct {
			weir.Limit

			key    string
			sorted bool
		}
		of := make(map[string]state)
		for _, l := range identities(t) {
			for _, key := range trickyKeys() {
				for _, sorted := range []bool{false, l.Algorithm == weir.SlidingLog} {
					name := named(t, k, weir.Request{Key: key, Limit: l}, sorted)
					s := state{l, key, sorted}
					if other, taken := of[name]; taken && other != s {
						t.Fatalf("%+v and %+v are both %s", s, other, name)
					}
					of[name] = s
					checkName(t, name)
				}
			}
		}
	}
}

// checkName checks what holds for the name of any state.
func checkName(t *testing.T, name string) {
	t.Helper()
	_, rest, _ := strings.Cut(name, "{")
	tag, after, _ := strings.Cut(rest, "}")
	if len(tag) != 3 || strings.Trim(tag, tagChars) != "" || strings.ContainsAny(after, "{}") || len(name) > 160 {
		t.Fatalf("%q: want one tag of 3 letters, and at most 160 bytes", name)
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' {
			t.Fatalf("%q: want what a terminal shows", name)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a", "", int64(60), uint8(1), uint8(10), "a", "", int64(1), uint8(2), uint8(7))
	f.Add("{a}", "a", int64(1000), uint8(4), uint8(0), "{b}", "a", int64(1001), uint8(4), uint8(1))
	f.Add("%7B", "", int64(1), uint8(5), uint8(0), "{", "%7B", int64(1), uint8(5), uint8(0))
	f.Add("#AAAA", "\x00", int64(86400e6), uint8(2), uint8(100), strings.Repeat("k", 97), "", int64(3600e6), uint8(3), uint8(0))
	f.Fuzz(func(t *testing.T, key1, group1 string, window1 int64, kind1, extra1 uint8, key2, group2 string, window2 int64, kind2, extra2 uint8) {
		state := func(key string, window int64, kind, extra uint8) weir.Request {
			const most = int64(weir.MaxWindow / time.Microsecond)
			l := weir.Limit{Max: 5, Window: time.Duration((window%most+most)%most+1) * time.Microsecond, Algorithm: weir.Algorithm(kind%5 + 1)}
			switch l.Algorithm {
			case weir.SlidingBuckets:
				l.Buckets = int(extra) + 1
			case weir.FixedWindow:
				l.Epoch = extra%2 == 1
			}
			return weir.Request{Key: key, Limit: l}
		}
		a, b := state(key1, window1, kind1, extra1), state(key2, window2, kind2, extra2)
		a.Group, b.Group = group1, group2
		k := keys{prefix: "weir"}
		first, second := named(t, k, a, false), named(t, k, b, false)
		checkName(t, first)
		checkName(t, second)
		if same := a.Key == b.Key && a.Limit == b.Limit; !same && first == second {
			t.Fatalf("%+v and %+v are both %s", a, b, first)
		}
	})
}

// tagOf returns what picks the slot of a name.
func tagOf(name string) string {
	_, rest, _ := strings.Cut(name, "{")
	tag, _, _ := strings.Cut(rest, "}")
	return tag
}

func TestGroupPicksTheSlot(t *testing.T) {
	k := keys{prefix: "weir"}
	tags := make(map[string]bool)
	for _, r := range []weir.Request{
		{Key: "k", Limit: limit(t, "5/1s")},
		{Key: "k", Limit: limit(t, "5/1h burst=3")},
		{Key: "k", Limit: limit(t, "20000/1d")},
		{Key: "another", Limit: limit(t, "5/1s"), Group: "k"},
		{Key: "{braces}", Limit: limit(t, "5/1s"), Group: "k"},
		{Key: strings.Repeat("long", 1000), Limit: limit(t, "5/1s"), Group: "k"},
	} {
		tags[tagOf(named(t, k, r, false))] = true
	}
	if len(tags) != 1 {
		t.Errorf("one group has the tags %v", tags)
	}
	if other := tagOf(named(t, k, weir.Request{Key: "k", Limit: limit(t, "5/1s"), Group: "another"}, false)); tags[other] {
		t.Errorf("another group has the same tag, %s", other)
	}
}

// crc16 is how a Cluster hashes a tag (XMODEM).
func crc16(b []byte) (crc uint16) {
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
	}
	return crc
}

// TestSlotsAreEven holds that a million keys fill every slot of a Cluster, and
// none twice as much as the mean.
func TestSlotsAreEven(t *testing.T) {
	if got := crc16([]byte("123456789")); got != 0x31C3 {
		t.Fatalf("CRC16 of 123456789 is %#x, want what the specification of the Cluster says", got)
	}
	slots := make([]int, 16384)
	const n = 1_000_000
	for i := range n {
		slots[crc16((&keys{}).appendTag(nil, "search:user"+strconv.Itoa(i)))%16384]++
	}
	for slot, got := range slots {
		if mean := n / len(slots); got == 0 || got >= 2*mean {
			t.Errorf("slot %d has %d keys, where %d is the mean", slot, got, mean)
		}
	}
}

// TestKeySecret holds that with a secret nothing of a name depends on the key
// alone, so that who does not know the secret cannot even tell whether a key is
// there.
func TestKeySecret(t *testing.T) {
	l := limit(t, "5/1m")
	one, other, none := keys{prefix: "weir", secret: []byte("one")}, keys{prefix: "weir", secret: []byte("other")}, keys{prefix: "weir"}
	sameTags := 0
	const n = 100
	for i := range n {
		r := weir.Request{Key: fmt.Sprintf("alice%d@example.org", i), Limit: l}
		a, b, c := named(t, one, r, false), named(t, other, r, false), named(t, none, r, false)
		if a != named(t, one, r, false) || a == b || a == c || strings.Contains(a, "alice") || len(a) != len(b) {
			t.Fatalf("%s is named %s, by another secret %s, by none %s", r.Key, a, b, c)
		}
		if tagOf(a) == tagOf(b) {
			sameTags++
		}
	}
	if sameTags > 2 {
		t.Errorf("%d of %d keys have the same tag whatever the secret: it tells 18 bits of them", sameTags, n)
	}
}

func TestPrefix(t *testing.T) {
	for _, good := range []string{"", "weir", "Team-7/weir_2.prod:", strings.Repeat("p", 100)} {
		s := openStore(t, Options{URL: "redis://127.0.0.1:1", Prefix: good})
		r := weir.Request{Key: "k", Limit: limit(t, "5/1m")}
		if name := named(t, s.keys, r, false); good != "" && !strings.HasPrefix(name, good+":1l") {
			t.Errorf("%q: a state is named %s", good, name)
		}
	}
	for _, bad := range []string{"{a}", "a{", "}", "a b", "a\n", "a\x00", "é", "*", "a?", "[a]", "\\", "'"} {
		_, err := Open(Options{URL: "redis://127.0.0.1:1", Prefix: bad})
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Value != bad {
			t.Errorf("%q: got %v, want an *InvalidError", bad, err)
		}
	}
}
