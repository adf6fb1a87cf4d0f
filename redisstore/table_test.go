package redisstore

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/redistest"
)

// holds checks what a table holds.
func holds(t *testing.T, table *Table, want map[string]string) {
	t.Helper()
	if got, err := table.All(t.Context()); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
}

func put(t *testing.T, table *Table, id, text string, until time.Time) {
	t.Helper()
	if err := table.Put(t.Context(), id, text, until); err != nil {
		t.Fatal(err)
	}
}

// removes checks whether there was something to remove.
func removes(t *testing.T, table *Table, id string, want bool) {
	t.Helper()
	if got, err := table.Remove(t.Context(), id); err != nil || got != want {
		t.Errorf("removing %q: got %t (%v), want %t", id, got, err, want)
	}
}

// tableURLs are servers of each kind, with the rights of examples/weir.acl where
// a kind needs no more.
func tableURLs(t *testing.T) map[string]string {
	sentinel, cluster := redistest.StartSentinel(t), redistest.StartCluster(t)
	return map[string]string{
		"single":   loginURL(startServer(t, users(t)["weir"]), "weir:hunter2"),
		"Sentinel": "redis://" + strings.Join(sentinel.Addrs(), ",") + "?master_set=" + sentinel.Name,
		"Cluster":  "redis://" + strings.Join(cluster.Addrs(), ","),
	}
}

// What one store puts all see, and no other table or prefix does; a name keeps
// any text apart from others.
func TestTable(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour)
	for name, url := range tableURLs(t) {
		t.Run(name, func(t *testing.T) {
			one, two := openStore(t, Options{URL: url}), openStore(t, Options{URL: url})
			odd := "a{b}:\n\x00\xff%"
			a, seen := one.Table("a"), two.Table("a")
			holds(t, a, map[string]string{})
			put(t, a, "1", "one", until)
			put(t, a, odd, odd, until)
			put(t, a, "3", "", until)
			put(t, one.Table(odd), "1", "odd", until)
			holds(t, seen, map[string]string{"1": "one", odd: odd, "3": ""})
			put(t, seen, "1", "uno", until)
			removes(t, seen, odd, true)
			removes(t, a, odd, false)
			holds(t, a, map[string]string{"1": "uno", "3": ""})
			holds(t, two.Table(odd), map[string]string{"1": "odd"})
			holds(t, openStore(t, Options{URL: url, Prefix: "weir:x"}).Table("a"), map[string]string{})
			holds(t, openStore(t, Options{URL: url, KeySecret: "s"}).Table("a"), map[string]string{})
		})
	}
}

// The server's clock ends an entry, here one that the test moves; the hash lives
// as long as the entry that ends last.
func TestTableExpires(t *testing.T) {
	server, now := startServer(t), time.Now()
	s := openStore(t, Options{URL: server.URL(), Now: func() time.Time { return now }})
	table, start := s.Table("a"), now
	put(t, table, "long", "2h", start.Add(2*time.Hour))
	put(t, table, "short", "1ms", start.Add(time.Microsecond))
	put(t, table, "hour", "1h", start.Add(time.Hour))
	if ms := server.Must(t, "PTTL", table.key).(int64); ms > (3*time.Hour).Milliseconds()+1000 || ms < (3*time.Hour).Milliseconds()-60_000 {
		t.Errorf("the hash lives for %d ms, want 2h and the hour of a test", ms)
	}
	holds(t, table, map[string]string{"long": "2h", "short": "1ms", "hour": "1h"})
	now = start.Add(2 * time.Millisecond)
	removes(t, table, "short", false)
	holds(t, table, map[string]string{"long": "2h", "hour": "1h"})
	now = start.Add(2*time.Hour - 2*time.Millisecond)
	holds(t, table, map[string]string{"long": "2h"})
	if n := server.Must(t, "HLEN", table.key); n != int64(1) {
		t.Errorf("%v entries are stored, want 1", n)
	}
	now = start.Add(2*time.Hour + time.Millisecond)
	holds(t, table, map[string]string{})
	if n := server.Must(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

// By the server's own clock, and none of ours.
func TestTableExpiresByItself(t *testing.T) {
	server := startServer(t)
	table := openStore(t, Options{URL: server.URL()}).Table("a")
	put(t, table, "k", "text", time.Now().Add(time.Minute))
	if ms := server.Must(t, "PTTL", table.key).(int64); ms < 50_000 || ms > 60_002 {
		t.Errorf("the hash lives for %d ms, want a minute", ms)
	}
	put(t, table, "k", "text", time.Now().Add(20*time.Millisecond))
	redistest.Await(t, "the entry to expire", func() error {
		all, err := table.All(t.Context())
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%q", all)
		}
		return err
	})
}

func TestTableIsBounded(t *testing.T) {
	server, now := startServer(t), time.Now()
	table := openStore(t, Options{URL: server.URL(), Now: func() time.Time { return now }}).Table("a")
	hour := now.Add(time.Hour)
	fill := []string{"HSET", table.key}
	for i := range maxEntries - 1 {
		fill = append(fill, strconv.Itoa(i), strconv.FormatInt(hour.UnixMilli(), 10)+":text")
	}
	server.Must(t, fill...)
	put(t, table, "last", "text", hour.Add(time.Hour))
	var invalid *weir.InvalidError
	if err := table.Put(t.Context(), "more", "text", hour); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "at most 10000 at a time") {
		t.Errorf("a full table: got %v", err)
	}
	put(t, table, "7", "another", hour)
	removes(t, table, "8", true)
	put(t, table, "more", "text", hour)
	now = hour.Add(time.Second)
	put(t, table, "again", "text", now.Add(time.Hour))
	holds(t, table, map[string]string{"last": "text", "again": "text"})
}

func TestTableRefuses(t *testing.T) {
	table := openStore(t, Options{URL: "redis://127.0.0.1:1"}).Table("a")
	plain := openStore(t, Options{URL: "redis://127.0.0.1:1", Plain: true}).Table("a")
	now := time.Now()
	for name, test := range map[string]struct {
		table    *Table
		id, text string
		until    time.Time
		want     string
	}{
		"no id":       {table, "", "", now.Add(time.Hour), `weir: id "": want 1 to 256 bytes`},
		"a long id":   {table, strings.Repeat("i", 257), "", now.Add(time.Hour), "1 to 256 bytes"},
		"a long text": {table, "k", strings.Repeat("i", 65537), now.Add(time.Hour), `weir: text "65537 bytes": want at most 65536 bytes`},
		"past":        {table, "k", "", now.Add(-time.Hour), "at most 366 days from now"},
		"far":         {table, "k", "", now.Add(367 * 24 * time.Hour), "at most 366 days from now"},
		"plain mode":  {plain, "k", "", now.Add(time.Hour), "plain mode"},
	} {
		t.Run(name, func(t *testing.T) {
			var invalid *weir.InvalidError
			if err := test.table.Put(t.Context(), test.id, test.text, test.until); !errors.As(err, &invalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// What fails is a StoreError, as of the Store.
func TestTableFails(t *testing.T) {
	server := startServer(t)
	s := openStore(t, Options{URL: server.URL()})
	table := s.Table("a")
	server.Must(t, "SET", table.key, "text")
	_, err := table.All(t.Context())
	verdict{"WRONGTYPE", "another prefix or db", true, false}.check(t, s.link, err)
	server.Kill()
	redistest.Await(t, "the store to notice", func() error {
		_, err = table.Remove(t.Context(), "k")
		if err == nil || strings.Contains(err.Error(), "WRONGTYPE") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	var failed *weir.StoreError
	if !errors.As(err, &failed) {
		t.Errorf("got %v, want a StoreError", err)
	}
}
