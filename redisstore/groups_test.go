package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// A list of several Groups on a Cluster, between whose trips another list comes.
var races = []struct {
	name    string
	list    string // KEY*COST:MODE..., each key a Group of its own, of 5/1m
	between string // what another store takes meanwhile
	verdict string // of the list, then of each row; "charged" where there is a receipt
	left    string // what remains of the keys a, b and c
}{
	{"nobody", "a*1:enforce b*1:enforce", "", "ok: ok charged, ok charged", "4 4 5"},
	{"not in the way", "a*1:enforce b*1:enforce", "b*4", "ok: ok charged, ok charged", "4 0 5"},
	{"one group is full", "a*1:enforce b*1:enforce", "b*5", "over_limit: ok, over_limit", "5 0 5"},
	{"the first is full", "a*2:enforce b*1:enforce c*3:enforce", "a*4", "over_limit: over_limit, ok, ok", "1 5 5"},
	{"two of three are full", "a*1:enforce b*1:enforce c*1:enforce", "a*5 c*5", "over_limit: over_limit, ok, over_limit", "0 5 0"},
	{"a shadow row is full", "a*1:enforce b*1:shadow", "b*5", "ok: ok charged, over_limit", "4 0 5"},
	{"a shadow row is given back", "a*1:enforce b*2:shadow", "a*5", "over_limit: over_limit, ok", "0 5 5"},
	{"what has happened stays", "a*1:enforce b*2:record", "a*5", "over_limit: over_limit, ok charged", "0 3 5"},
	{"peeks take nothing", "a*1:enforce b*1:peek", "b*5", "ok: ok charged, over_limit", "4 0 5"},
}

func TestAcrossSlots(t *testing.T) {
	c := redistest.StartCluster(t)
	u := "redis://" + strings.Join(c.Addrs(), ",")
	limit := weir.PerMinute(5)
	for i, race := range races {
		t.Run(race.name, func(t *testing.T) {
			prefix := fmt.Sprintf("weir:race%d", i)
			rival := open(t, redisstore.Options{URL: u, Prefix: prefix})
			var asked atomic.Int64
			requests := parseRows(t, race.list, limit)
			// The time is asked for once a Group and trip.
			l := open(t, redisstore.Options{URL: u, Prefix: prefix, Now: func() time.Time {
				if asked.Add(1) == int64(len(requests))+1 {
					for _, r := range parseRows(t, race.between, limit) {
						if d, err := rival.AllowN(t.Context(), r.Key, limit, r.Cost); err != nil || !d.Allowed {
							t.Errorf("the rival's %s got %+v (%v)", r.Key, d, err)
						}
					}
				}
				return time.Now()
			}})
			d, err := l.AllowAll(t.Context(), requests...)
			if err != nil {
				t.Fatal(err)
			}
			if got := showRows(d); got != race.verdict {
				t.Errorf("got %s, want %s", got, race.verdict)
			}
			if got := remaining(t, rival, limit); got != race.left {
				t.Errorf("left %s, want %s", got, race.left)
			}
		})
	}
}

// parseRows reads KEY*COST:MODE; the mode may be left out.
func parseRows(t *testing.T, text string, limit weir.Limit) (rs []weir.Request) {
	for word := range strings.FieldsSeq(text) {
		r := weir.Request{Key: word[:1], Limit: limit}
		mode := ""
		if _, err := fmt.Sscanf(strings.Replace(word[2:], ":", " ", 1), "%d %s", &r.Cost, &mode); err != nil && mode != "" {
			t.Fatal(err)
		}
		for mode != "" && r.Mode.String() != mode {
			r.Mode++
		}
		rs = append(rs, r)
	}
	return rs
}

func showRows(d weir.Decision) string {
	rows := make([]string, len(d.Rows))
	for i, row := range d.Rows {
		if rows[i] = row.Reason.String(); !row.Receipt.IsZero() {
			rows[i] += " charged"
		}
	}
	return d.Reason.String() + ": " + strings.Join(rows, ", ")
}

func remaining(t *testing.T, l *weir.Limiter, limit weir.Limit) string {
	var left []string
	for _, key := range []string{"a", "b", "c"} {
		d, err := l.Peek(t.Context(), key, limit)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, fmt.Sprint(d.Remaining))
	}
	return strings.Join(left, " ")
}

// A caller that leaves between the trips leaves nothing behind.
func TestAcrossSlotsCancelled(t *testing.T) {
	c := redistest.StartCluster(t)
	u := "redis://" + strings.Join(c.Addrs(), ",")
	limit := weir.PerMinute(5)
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	l := open(t, redisstore.Options{URL: u, Now: func() time.Time {
		if asked.Add(1) == 3 {
			cancel()
		}
		return time.Now()
	}})
	d, err := l.AllowAll(ctx, weir.Request{Key: "a", Limit: limit}, weir.Request{Key: "b", Limit: limit})
	if err == nil {
		t.Errorf("a cancelled list got %+v", d)
	}
	if got := remaining(t, open(t, redisstore.Options{URL: u}), limit); got != "5 5 5" {
		t.Errorf("left %s", got)
	}
}

// A node that dies between the trips fails the list, and what another node has
// charged goes back.
func TestAcrossSlotsNodeDies(t *testing.T) {
	c := redistest.StartCluster(t)
	u := "redis://" + strings.Join(c.Addrs(), ",")
	limit := weir.PerMinute(5)
	plain := open(t, redisstore.Options{URL: u})
	on := func(server *redistest.Server) string {
		for i := range 100 {
			key := fmt.Sprint("key", i)
			if _, err := plain.Allow(t.Context(), key, limit); err != nil {
				t.Fatal(err)
			}
			if names := fmt.Sprint(server.Must(t, "KEYS", "*}"+key)); strings.Contains(names, key) {
				return key
			}
		}
		t.Fatal("no key lives on the server")
		return ""
	}
	alive, dead := on(c.Servers[0]), on(c.Servers[1])
	before, err := plain.Peek(t.Context(), alive, limit)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	l := open(t, redisstore.Options{URL: u, Now: func() time.Time {
		if asked.Add(1) == 3 {
			c.Servers[1].Kill()
		}
		return time.Now()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	d, err := l.AllowAll(ctx, weir.Request{Key: alive, Limit: limit}, weir.Request{Key: dead, Limit: limit})
	var failed *weir.StoreError
	if !errors.As(err, &failed) {
		t.Fatalf("got %+v (%v), want a StoreError", d, err)
	}
	if d, err := plain.Peek(t.Context(), alive, limit); err != nil || d.Remaining != before.Remaining {
		t.Errorf("%s has %d left, want %d: its unit did not go back (%v)", alive, d.Remaining, before.Remaining, err)
	}
}
