package redisstore

import (
	"context"
	_ "embed" // the script
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
)

// Table is a small table of texts that all stores of one URL and Prefix share,
// such as what operators have ordered for a time. Each text expires by itself.
// All is in one hash, in one slot of a Cluster, so a Table is for what is read
// whole and seldom. Texts are stored as they are, also with a KeySecret.
//
// Its errors are those of the Store. A Store in plain mode has no tables.
type Table struct {
	store *Store
	key   string
}

// What a Table can hold.
const (
	maxEntries = 10_000
	maxText    = 64 << 10 // bytes
	maxID      = 256      // bytes
)

//go:embed table.lua
var tableText string

// Table returns the table of a name, which is any text.
func (s *Store) Table(name string) *Table {
	return &Table{s, s.keys.table(name)}
}

// Put stores a text of at most 64 KiB under an id of 1 to 256 bytes until a
// time at most 366 days from now, in place of what was there. A table of 10,000
// entries takes no other. The error may be a *weir.InvalidError.
//
// How long that is is told by the clock of this process, and when it is over by
// the server's, so that all who read the table agree on it.
func (t *Table) Put(ctx context.Context, id, text string, until time.Time) error {
	life := until.Sub(t.store.clock())
	if err := validEntry(id, text, life); err != nil {
		return err
	}
	ms := strconv.FormatInt((life + time.Millisecond - 1).Milliseconds(), 10)
	n, err := t.number(ctx, "put", id, ms, strconv.Itoa(maxEntries), text)
	if err == nil && n == 0 {
		return &weir.InvalidError{Field: "table", Value: strconv.Itoa(maxEntries+1) + " entries", Want: "at most 10000 at a time: remove one first"}
	}
	return err
}

func validEntry(id, text string, life time.Duration) error {
	switch {
	case id == "" || len(id) > maxID:
		return &weir.InvalidError{Field: "id", Value: id, Want: "1 to 256 bytes"}
	case len(text) > maxText:
		return &weir.InvalidError{Field: "text", Value: strconv.Itoa(len(text)) + " bytes", Want: "at most 65536 bytes"}
	case life <= 0 || life > weir.MaxWindow:
		return &weir.InvalidError{Field: "until", Value: life.String() + " from now", Want: "more than nothing and at most 366 days from now"}
	}
	return nil
}

// Remove removes the text of an id and reports whether there was one.
func (t *Table) Remove(ctx context.Context, id string) (bool, error) {
	n, err := t.number(ctx, "remove", id)
	return n > 0, err
}

// All returns the texts by their ids.
func (t *Table) All(ctx context.Context) (map[string]string, error) {
	var all map[string]string
	err := t.run(ctx, func(result rueidis.RedisResult) (err error) {
		all, err = result.AsStrMap()
		return err
	}, "all")
	return all, err
}

// number runs the script where it returns a number.
func (t *Table) number(ctx context.Context, args ...string) (n int64, err error) {
	err = t.run(ctx, func(result rueidis.RedisResult) (err error) {
		n, err = result.AsInt64()
		return err
	}, args...)
	return n, err
}

func (t *Table) run(ctx context.Context, read func(rueidis.RedisResult) error, args ...string) error {
	s := t.store
	if s.options.Plain {
		return &weir.InvalidError{Field: "table", Value: args[0], Want: plainWant}
	}
	calls := []call{{s.scripts.table, []string{t.key}, append([]string{s.now()}, args...)}}
	_, err := s.each(ctx, calls, func(_ int, result rueidis.RedisResult) (int64, error) { return 0, read(result) })
	return err
}
