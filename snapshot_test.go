package weir_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// snapshot returns what a store writes.
func snapshot(t testing.TB, store *weir.Memory) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := store.Snapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// restore returns a limiter over the store that a snapshot becomes.
func restore(t testing.TB, text []byte, clock *fakeClock, maxKeys int) (*weir.Limiter, *weir.Memory) {
	t.Helper()
	store, err := weir.RestoreMemory(weir.MemoryOptions{Now: clock.Now, MaxKeys: maxKeys}, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return weir.New(weir.Options{Store: store}), store
}

// life is a store that random calls are made to, and what it gave receipts for.
type life struct {
	lim      *weir.Limiter
	store    *weir.Memory
	receipts []weir.Receipt
}

// call makes a random call, the same for the same r, and returns the answer.
func (l *life) call(t *testing.T, r *rand.Rand, limits []weir.Limit) string {
	ctx := context.Background()
	key := func() (string, weir.Limit) {
		i := r.IntN(2 * len(limits))
		return fmt.Sprint("k", i), limits[i%len(limits)]
	}
	k, limit := key()
	answer := func(d weir.Decision, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		l.receipts = append(l.receipts, d.Receipts()...)
		rows := ""
		for _, row := range d.Rows {
			rows += fmt.Sprint(row.Allowed, row.Remaining, row.RetryAfter, row.ResetAfter, row.Reason, " ")
		}
		return fmt.Sprint(d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Reason, len(l.receipts), rows)
	}
	count := func(n int64, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(n)
	}
	switch r.IntN(9) {
	case 0, 1, 2:
		return answer(l.lim.AllowN(ctx, k, limit, 1+r.Int64N(3)))
	case 3:
		k2, limit2 := key()
		return answer(l.lim.AllowAll(ctx, weir.Request{Key: k, Limit: limit}, weir.Request{Key: k2, Limit: limit2, Cost: 2, Mode: weir.Shadow}))
	case 4:
		return answer(l.lim.Charge(ctx, k, limit, 1+r.Int64N(4)))
	case 5:
		if limit.Algorithm == weir.SlidingLog || limit.Algorithm == weir.SlidingBuckets {
			return count(l.lim.Count(ctx, k, limit, limit.Window/2))
		}
		return answer(l.lim.Peek(ctx, k, limit))
	case 6:
		return count(l.lim.ResetAll(ctx, weir.Request{Key: k, Limit: limit}))
	default:
		if len(l.receipts) == 0 {
			return ""
		}
		i := r.IntN(len(l.receipts))
		back := l.receipts[i]
		l.receipts = append(l.receipts[:i:i], l.receipts[i+1:]...)
		return count(l.lim.Refund(ctx, back))
	}
}

// TestRestoredGoesOn: a store that is written down and read back at any point
// of a history answers like one that was not.
func TestRestoredGoesOn(t *testing.T) {
	histories := 300
	if testing.Short() {
		histories = 60
	}
	for seed := range histories {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		clock := newFakeClock()
		var limits []weir.Limit
		for a := weir.SlidingLog; a <= weir.TokenBucket; a++ {
			limit, err := weir.Limit{Max: 1 + r.Int64N(12), Window: []time.Duration{time.Millisecond, time.Second, time.Hour}[r.IntN(3)], Algorithm: a}.Normal()
			if err != nil {
				t.Fatal(err)
			}
			limits = append(limits, limit)
		}
		var lives [2]life
		for i := range lives {
			lives[i].store = weir.NewMemory(weir.MemoryOptions{Now: clock.Now})
			lives[i].lim = weir.New(weir.Options{Store: lives[i].store})
		}
		const steps = 200
		at := r.IntN(steps)
		for step := range steps {
			if step == at {
				lives[1].lim, lives[1].store = restore(t, snapshot(t, lives[1].store), clock, 0)
			}
			window := limits[r.IntN(len(limits))].Window
			move := []time.Duration{0, 1000, window / 7, window / 2, window, 3 * window}[r.IntN(6)].Truncate(time.Microsecond)
			clock.Advance(move) // never back, which shows whose states have been reclaimed
			a, b := r.Uint64(), r.Uint64()
			want := lives[0].call(t, rand.New(rand.NewPCG(a, b)), limits)
			if got := lives[1].call(t, rand.New(rand.NewPCG(a, b)), limits); got != want {
				t.Fatalf("seed %d, restored before step %d: at step %d the answer is %s, want %s", seed, at, step, got, want)
			}
		}
	}
}

// TestRestoredKeys: all states are there, of many keys in many shards, and a
// snapshot of what was restored is the same states again.
func TestRestoredKeys(t *testing.T) {
	for _, most := range []int{0, 5000} {
		lim, store, clock := newFake(t, 0)
		limits := everyAlgorithm(50, time.Hour)
		const keys = 4000
		for i := range keys {
			for range 1 + i%7 {
				mustAllow(t, lim, fmt.Sprint("k", i), limits[i%len(limits)], 1, true)
				clock.Advance(time.Millisecond)
			}
		}
		text := snapshot(t, store)
		again, restored := restore(t, text, clock, most)
		if got := snapshot(t, restored); len(got) != len(text) {
			t.Errorf("a snapshot of what was restored has %d bytes, want %d", len(got), len(text))
		}
		if got, want := restored.Stats().Keys, store.Stats().Keys; got != want {
			t.Errorf("%d keys, want %d", got, want)
		}
		if !store.Restored().IsZero() || restored.Restored().UnixMicro() != clock.Now().UnixMicro() {
			t.Errorf("restored from a snapshot of %v and, a new one, of %v", restored.Restored(), store.Restored())
		}
		for i := range keys {
			if left := remaining(t, again, fmt.Sprint("k", i), limits[i%len(limits)]); left != 50-int64(1+i%7) {
				t.Fatalf("k%d has %d left", i, left)
			}
		}
	}
}

// TestRestoreWithinBounds: MaxKeys holds for what is restored too, and the least
// used go.
func TestRestoreWithinBounds(t *testing.T) {
	for _, limit := range everyAlgorithm(10, time.Hour) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			lim, store, clock := newFake(t, 0)
			for i, key := range keyNames("k", 3000) {
				mustAllow(t, lim, key, limit, int64(1+i%10), true)
				clock.Advance(time.Microsecond)
			}
			const most = 100
			_, restored := restore(t, snapshot(t, store), clock, most)
			if s := restored.Stats(); s.Keys != most || s.Evicted != 3000-most {
				t.Errorf("%+v of 3000 keys, want %d and the others counted", s, most)
			}
		})
	}
	t.Run("stamps", func(t *testing.T) {
		clock := newFakeClock()
		const cells = 66_000
		var logs [][]byte
		for i := range uint64(16) {
			log := state(weir.SlidingLog, 1, i<<32, cells)
			for n := range uint64(cells) {
				log = binary.LittleEndian.AppendUint64(log, n)
				log = binary.LittleEndian.AppendUint64(log, n+1)
			}
			logs = append(logs, log)
		}
		_, restored := restore(t, []byte(forged(t, logs...)), clock, 10)
		if s := restored.Stats(); s.Stamps > 1<<20+16*10 || s.Keys > 8 || s.Keys == 0 {
			t.Errorf("%+v, want room for about a million stamps", s)
		}
	})
}

// TestRestoreLater: what the clock does between two lives is a step of the
// clock. Forward, what has expired is left out; back, what was used delays by a
// window at most.
func TestRestoreLater(t *testing.T) {
	const window = time.Minute
	for _, limit := range everyAlgorithm(5, window) {
		for _, test := range []struct {
			later      time.Duration
			keys, left int64 // left is -1 for what depends on the algorithm
		}{
			{0, 1, 0}, {10 * time.Second, 1, -1}, {2*window + time.Second, 0, 5}, {1000 * window, 0, 5},
			{-10 * time.Second, 1, 0}, {-window, 1, 0}, {-1000 * window, 1, 0},
		} {
			t.Run(fmt.Sprint(limit, test.later), func(t *testing.T) {
				lim, store, clock := newFake(t, 0)
				mustAllow(t, lim, "k", limit, 5, true)
				text := snapshot(t, store)
				clock.Advance(test.later)
				again, restored := restore(t, text, clock, 0)
				if got := restored.Stats().Keys; got != test.keys {
					t.Errorf("%d keys, want %d", got, test.keys)
				}
				if left := remaining(t, again, "k", limit); test.left >= 0 && left != test.left || left != remaining(t, lim, "k", limit) {
					t.Errorf("%d left, want %d, as a store that went on has %d", left, test.left, remaining(t, lim, "k", limit))
				}
				if test.later < 0 {
					clock.Advance(3 * window) // the step's delay, and for counters another to fade
					if left := remaining(t, again, "k", limit); left != 5 {
						t.Errorf("three windows after a step back %d are left", left)
					}
				}
			})
		}
	}
}

// TestRestoredReceipts: a receipt gives back in the next life, but not what has
// been taken in a life of the key that began after it.
func TestRestoredReceipts(t *testing.T) {
	for _, limit := range everyAlgorithm(5, time.Hour) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			lim, store, clock := newFake(t, 0)
			ctx := context.Background()
			kept := mustAllow(t, lim, "kept", limit, 3, true).Receipt
			reset := mustAllow(t, lim, "reset", limit, 3, true).Receipt
			text := snapshot(t, store)
			late := mustAllow(t, lim, "late", limit, 3, true).Receipt
			again, _ := restore(t, text, clock, 0)
			mustRefund(t, again, 3, reread(t, kept))
			if _, err := again.Reset(ctx, "reset", limit); err != nil {
				t.Fatal(err)
			}
			mustAllow(t, again, "reset", limit, 5, true)
			mustRefund(t, again, 0, reset)
			mustRefund(t, again, 0, late)
		})
	}
}

// someSnapshot is one of states of every algorithm, one of them with cells.
func someSnapshot(t testing.TB, clock *fakeClock) []byte {
	store := weir.NewMemory(weir.MemoryOptions{Now: clock.Now})
	lim := weir.New(weir.Options{Store: store})
	for _, limit := range everyAlgorithm(5, time.Hour) {
		for range 3 {
			mustAllow(t, lim, "k", limit, 1, true)
			clock.Advance(time.Minute)
		}
	}
	return snapshot(t, store)
}

// TestRestoreRefuses: whatever is not as it was written is refused, for its reason.
func TestRestoreRefuses(t *testing.T) {
	clock := newFakeClock()
	good := string(someSnapshot(t, clock))
	head, body, _ := strings.Cut(good, "\n")
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"empty":                 {"", weir.SnapshotTruncated},
		"half a word":           {"weir snap", weir.SnapshotTruncated},
		"no version":            {"weir snapshot ", weir.SnapshotTruncated},
		"half a version":        {"weir snapshot 1", weir.SnapshotTruncated},
		"a head alone":          {head + "\n", weir.SnapshotTruncated},
		"no states":             {good[:len(head)+1+3*8], weir.SnapshotTruncated},
		"no checksum":           {good[:len(good)-8], weir.SnapshotTruncated},
		"all but a byte":        {good[:len(good)-1], weir.SnapshotTruncated},
		"a byte too many":       {good + "\x00", weir.SnapshotCorrupt},
		"twice":                 {good + good, weir.SnapshotCorrupt},
		"the next version":      {"weir snapshot 2\n" + body, weir.SnapshotNewer},
		"a version far off":     {"weir snapshot 4294967296\n", weir.SnapshotNewer},
		"version 0":             {"weir snapshot 0\n" + body, weir.SnapshotForeign},
		"a version of words":    {"weir snapshot one\n" + body, weir.SnapshotForeign},
		"an endless version":    {"weir snapshot " + strings.Repeat("1", 1000), weir.SnapshotForeign},
		"a text":                {"domain: web\n", weir.SnapshotForeign},
		"zeros":                 {strings.Repeat("\x00", 100), weir.SnapshotForeign},
		"other line breaks":     {head + "\r\n" + body, weir.SnapshotForeign},
		"a secret changed":      {flip(good, len(head)+1), weir.SnapshotCorrupt},
		"a checksum changed":    {flip(good, len(good)-1), weir.SnapshotCorrupt},
		"a state less":          {good[:len(head)+25] + good[len(head)+25+64:], weir.SnapshotCorrupt},
		"a kind that is unlike": {seal(t, set(good, len(head)+25, 1<<63|7)), weir.SnapshotCorrupt},
	} {
		store, err := weir.RestoreMemory(weir.MemoryOptions{Now: clock.Now}, strings.NewReader(test.text))
		if !errors.Is(err, test.want) || store != nil {
			t.Errorf("%s: %v, %v, want %v", name, store, err, test.want)
		}
	}
	for e, want := range map[weir.SnapshotError]string{
		weir.SnapshotTruncated: "truncated", weir.SnapshotCorrupt: "corrupt", weir.SnapshotForeign: "no snapshot", weir.SnapshotNewer: "newer", 0: "refused", 99: "refused",
	} {
		if got := e.Error(); !strings.HasPrefix(got, "weir: ") || !strings.Contains(got, want) {
			t.Errorf("error %d reads %q", e, got)
		}
	}
}

// flip changes a bit of a byte.
func flip(text string, i int) string {
	b := []byte(text)
	b[i] ^= 1
	return string(b)
}

// set replaces a number.
func set(text string, i int, n uint64) string {
	b := []byte(text)
	binary.LittleEndian.PutUint64(b[i:], n)
	return string(b)
}

// seal gives a text of at least 8 bytes the checksum that a snapshot of it has.
func seal(t testing.TB, text string) string {
	t.Helper()
	b := []byte(text)[:len(text)-8]
	return string(binary.LittleEndian.AppendUint64(b, crc64.Checksum(b, crc64.MakeTable(crc64.ECMA))))
}

// TestRestoreRefusesEachByte: no byte of a snapshot can be changed or left out.
func TestRestoreRefusesEachByte(t *testing.T) {
	clock := newFakeClock()
	good := string(someSnapshot(t, clock))
	for i := range good {
		for name, text := range map[string]string{"changed": flip(good, i), "cut": good[:i], "left out": good[:i] + good[i+1:]} {
			var refused weir.SnapshotError
			store, err := weir.RestoreMemory(weir.MemoryOptions{Now: clock.Now}, strings.NewReader(text))
			if !errors.As(err, &refused) || store != nil || name == "cut" && refused != weir.SnapshotTruncated {
				t.Errorf("byte %d of %d %s: %v", i, len(good), name, err)
			}
		}
	}
}

// state is one that never expires and owes a unit, as a snapshot has it.
func state(algorithm weir.Algorithm, window, hash, v uint64) (b []byte) {
	for _, n := range []uint64{window<<18 | uint64(algorithm)<<1, hash, 0, 1<<64 - 1, 1 << 40, 1 << 31, 0, v} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// forged is a snapshot of states, its checksum right.
func forged(t testing.TB, states ...[]byte) string {
	b := append([]byte("weir snapshot 1\n"), make([]byte, 3*8)...)
	b = append(b, bytes.Join(states, nil)...)
	b = binary.LittleEndian.AppendUint64(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(states)))
	return seal(t, string(b)+"checksum")
}

// TestRestoreForged: a forged file with a right checksum that claims what no
// store writes is refused, and costs no more memory than it has bytes.
func TestRestoreForged(t *testing.T) {
	clock := newFakeClock()
	var alike [][]byte
	for i := range uint64(200) {
		alike = append(alike, state(weir.TokenBucket, 1+i, 7, 0))
	}
	var inOrder [][]byte
	const many = 50_000
	for i := range uint64(many) {
		inOrder = append(inOrder, state(weir.TokenBucket, 1, i*(1<<64/many), 0))
	}
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"hashes in order":  {forged(t, inOrder...), nil},
		"one":              {forged(t, state(weir.TokenBucket, 1, 1, 0)), nil},
		"two":              {forged(t, state(weir.TokenBucket, 1, 1, 0), state(weir.TokenBucket, 1, 2, 0)), nil},
		"one twice":        {forged(t, state(weir.TokenBucket, 1, 1, 0), state(weir.TokenBucket, 1, 1, 0)), weir.SnapshotCorrupt},
		"a place too far":  {forged(t, state(weir.TokenBucket, 1, 1, 1<<52)), weir.SnapshotCorrupt},
		"hashes all alike": {forged(t, alike...), weir.SnapshotCorrupt},
	} {
		if _, err := weir.RestoreMemory(weir.MemoryOptions{Now: clock.Now, MaxKeys: 2000}, strings.NewReader(test.text)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	grown := heapOf(func() any {
		_, err := weir.RestoreMemory(weir.MemoryOptions{Now: clock.Now}, strings.NewReader(forged(t, state(weir.SlidingLog, 1, 1, 1<<20-1))))
		return err
	})
	if grown > 1<<20 {
		t.Errorf("a claim of a million stamps took %d bytes", grown)
	}
}

// failAt is a reader that fails after some bytes of the second reading, if not
// of the first.
type failAt struct {
	*bytes.Reader
	readings, bytes int
}

var errUnreadable = errors.New("broken")

func (f *failAt) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekStart {
		f.readings--
	}
	return f.Reader.Seek(offset, whence)
}

func (f *failAt) Read(b []byte) (int, error) {
	if f.readings > 0 {
		return f.Reader.Read(b)
	}
	room := f.bytes - int(f.Size()) + f.Len()
	if room == 0 {
		return 0, errUnreadable
	}
	return f.Reader.Read(b[:min(len(b), room)])
}

// TestRestoreReadErrors: what cannot be read is not said to be corrupt.
func TestRestoreReadErrors(t *testing.T) {
	clock := newFakeClock()
	good := someSnapshot(t, clock)
	for n := range len(good) + 1 {
		for readings := range 2 {
			_, err := weir.RestoreMemory(weir.MemoryOptions{Now: clock.Now}, &failAt{bytes.NewReader(good), readings, n})
			if !errors.Is(err, errUnreadable) {
				t.Fatalf("broken after %d bytes of reading %d: %v", n, readings, err)
			}
		}
	}
	r := bytes.NewReader(append([]byte("something else\n"), good...))
	if _, err := r.Seek(15, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if _, err := weir.RestoreMemory(weir.MemoryOptions{Now: clock.Now}, r); err != nil {
		t.Errorf("behind something else: %v", err)
	}
}

// failAfter is a writer that fails after some bytes.
type failAfter int

func (f *failAfter) Write(b []byte) (int, error) {
	if *f -= failAfter(len(b)); *f < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestSnapshotErrors(t *testing.T) {
	lim, store, _ := newFake(t, 0)
	for _, key := range keyNames("k", 3000) {
		mustAllow(t, lim, key, weir.PerHour(5), 1, true)
	}
	size := len(snapshot(t, store))
	for _, n := range []int{0, 100_000, size - 1} {
		f := failAfter(n)
		if err := store.Snapshot(&f); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("with room for %d bytes of %d: %v", n, size, err)
		}
	}
	if err := lim.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Snapshot(io.Discard); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestSnapshotUnderLoad: each snapshot that is taken while keys come, go and
// split the tables has every key that was there before and is after it, once.
func TestSnapshotUnderLoad(t *testing.T) {
	lim, store, clock := newFake(t, 0)
	limit := weir.Limit{Max: 10, Window: time.Hour, Algorithm: weir.SlidingLog}
	const lasting, coming = 500, 20_000
	for _, key := range keyNames("lasting", lasting) {
		mustAllow(t, lim, key, limit, 3, true)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for c := range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				key := fmt.Sprint(c, "/", i%coming)
				if _, err := lim.Allow(context.Background(), key, limit); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					if _, err := lim.Reset(context.Background(), key, limit); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for range 5 {
		again, _ := restore(t, snapshot(t, store), clock, 0)
		for _, key := range keyNames("lasting", lasting) {
			if left := remaining(t, again, key, limit); left != 7 {
				t.Errorf("%s has %d left, want 7", key, left)
			}
		}
	}
	close(done)
	wg.Wait()
}
