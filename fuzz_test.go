package weir_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{
		"100/30m", "5/minute", "10/s burst 20", "10/s burst=20", "50000/h buckets=60", "5/m epoch", "1/500µs", "1/1h30m", "5/1.5s",
		"5/m sliding-counter", "2147483648/366d", "5/9223372036854775807s", "10/s burst", "5/1d1d1d", "/", "5/\xff",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := weir.ParseLimit(text)
		if err != nil {
			var invalid *weir.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "limit" || invalid.Value != text || invalid.Want == "" {
				t.Errorf("ParseLimit(%q): %v, want an *InvalidError with field, value and advice", text, err)
			}
			if l != (weir.Limit{}) {
				t.Errorf("ParseLimit(%q) = %+v beside an error", text, l)
			}
			return
		}
		roundTrip(t, l)
	})
}

// FuzzReceipt reads hostile text as a receipt and returns it to a store in
// use: nothing panics, what is read is written back the same, and no more
// comes back than is owed.
func FuzzReceipt(f *testing.F) {
	clock := newFakeClock()
	for _, limit := range everyAlgorithm(5, time.Second) {
		lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: clock.Now})})
		text, err := mustAllow(f, lim, "k", limit, 3, true).Receipt.MarshalText()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
		raw, err := base64.RawURLEncoding.DecodeString(string(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(""))
	f.Add([]byte("AQ"))
	f.Add([]byte("AQ\n////"))
	f.Fuzz(func(t *testing.T, text []byte) {
		hostileText(t, text)
		// The text is base64: bytes as they are reach further.
		hostileText(t, base64.RawURLEncoding.AppendEncode(nil, text))
	})
}

func hostileText(t *testing.T, text []byte) {
	var r weir.Receipt
	if err := r.UnmarshalText(text); err != nil {
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "receipt" {
			t.Errorf("%q: %v, want an *InvalidError", text, err)
		}
		if !r.IsZero() {
			t.Errorf("%q is refused, but left %+v", text, r)
		}
		return
	}
	again, err := r.MarshalText()
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	var back weir.Receipt
	if err := back.UnmarshalText(again); err != nil || back != r {
		t.Errorf("%q reads as %+v, which is written as %q and reads as %+v (%v)", text, r, again, back, err)
	}
	if r.IsZero() {
		return
	}
	limit := r.Request.Limit
	limit.Max = 5
	limit.Burst = min(limit.Burst, 5)
	forge(t, limit, r)
}

// TestHostileReceipts forges receipts for units that others have taken: what
// they give back is counted, and nothing passes beyond it, whatever limit,
// stamp or place they name.
func TestHostileReceipts(t *testing.T) {
	for _, limit := range everyAlgorithm(5, time.Second) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			for _, limits := range []weir.Limit{limit, {Max: weir.MaxUnits}, {Max: 9}, {Max: 1}} {
				for _, stamp := range []int64{0, 1, epoch.UnixMicro(), epoch.UnixMicro() + 500_000, 1<<53 - 1} {
					for _, place := range []int64{0, 1, 5, 1<<53 - 1} {
						forged := limit
						forged.Max = limits.Max
						if forged.Burst > 0 {
							forged.Burst = limits.Max
						}
						if forged.Algorithm == weir.SlidingLog {
							forged.Max = min(forged.Max, 100_000)
						}
						forge(t, limit, weir.Receipt{
							Request: weir.Request{Key: "k", Limit: forged, Cost: weir.MaxUnits}, Units: 1, Stamp: stamp, Place: place, Birth: 1, ID: 7,
						})
					}
				}
			}
		})
	}
}

// forge takes the whole limit, returns a forged receipt half a window later,
// and compares with a store that got none.
func forge(t *testing.T, limit weir.Limit, r weir.Receipt) {
	t.Helper()
	text, err := r.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var back weir.Receipt
	if err := back.UnmarshalText(text); err != nil || back != r {
		t.Fatalf("%+v reads back as %+v (%v)", r, back, err)
	}
	ctx := context.Background()
	left := func(refund bool) (remaining, refunded int64) {
		clock := newFakeClock()
		lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: clock.Now})})
		key := back.Request.Key
		// A forger may know which life of the state it is.
		back.Birth = mustAllow(t, lim, key, limit, limit.Capacity(), true).Receipt.Birth
		clock.Advance((limit.Window / 2).Truncate(time.Microsecond))
		if refund {
			if refunded, err = lim.Refund(ctx, back); err != nil {
				t.Fatal(err)
			}
		}
		d, err := lim.Peek(ctx, key, limit)
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining, refunded
	}
	honest, _ := left(false)
	forged, refunded := left(true)
	if refunded > r.Units || forged > honest+refunded {
		t.Errorf("a forged receipt under %s at %d, place %d gave back %d of %d and left %d, where %d were left without it",
			r.Request.Limit, r.Stamp, r.Place, refunded, r.Units, forged, honest)
	}
}

// TestReceiptTextRefuses lists what no receipt says.
func TestReceiptTextRefuses(t *testing.T) {
	fields := func(version byte, key string, nums ...uint64) string {
		b := []byte{version}
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(b, key...)
		b = binary.AppendUvarint(b, 0)
		for _, n := range nums {
			b = binary.AppendUvarint(b, n)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	clock := newFakeClock()
	lim := weir.New(weir.Options{Store: weir.NewMemory(weir.MemoryOptions{Now: clock.Now})})
	d := mustAllow(t, lim, "k", weir.PerMinute(5), 1, true)
	good, err := d.Receipt.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var r weir.Receipt
	if err := r.UnmarshalText(good); err != nil || r != d.Receipt {
		t.Fatalf("a receipt reads back as %+v, want %+v (%v)", r, d.Receipt, err)
	}
	second := uint64(time.Second / time.Microsecond)
	for name, text := range map[string]string{
		"not base64":           "!!!!",
		"padded":               string(good) + "=",
		"cut":                  string(good[:len(good)-2]),
		"longer":               string(good) + "AAAA",
		"another version":      fields(99, "k", 5, second, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"a key of 2^63 bytes":  base64.RawURLEncoding.EncodeToString(binary.AppendUvarint([]byte{1}, 1<<63)),
		"a key beyond itself":  base64.RawURLEncoding.EncodeToString(binary.AppendUvarint([]byte{1}, 3)),
		"an endless number":    base64.RawURLEncoding.EncodeToString(append([]byte{1}, bytes.Repeat([]byte{0xff}, 20)...)),
		"max 0":                fields(1, "k", 0, second, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"max 2^31+1":           fields(1, "k", 1<<31+1, second, 4, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"window 0":             fields(1, "k", 5, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"window 2^52":          fields(1, "k", 5, 1<<52, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"no algorithm":         fields(1, "k", 5, second, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"algorithm 6":          fields(1, "k", 5, second, 6, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"algorithm 257":        fields(1, "k", 5, second, 257, 0, 0, 0, 1, 1, 1, 1, 1, 1),
		"a log with burst":     fields(1, "k", 5, second, 1, 5, 0, 0, 1, 1, 1, 1, 1, 1),
		"buckets 2^32":         fields(1, "k", 5, second, 2, 0, 1<<32, 0, 1, 1, 1, 1, 1, 1),
		"epoch 2":              fields(1, "k", 5, second, 4, 0, 0, 2, 1, 1, 1, 1, 1, 1),
		"cost 0":               fields(1, "k", 5, second, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1),
		"cost 2^31+1":          fields(1, "k", 5, second, 1, 0, 0, 0, 1<<31+1, 1, 1, 1, 1, 1),
		"more units than cost": fields(1, "k", 5, second, 1, 0, 0, 0, 1, 2, 1, 1, 1, 1),
		"a number left out":    fields(1, "k", 5, second, 1, 0, 0, 0, 1, 1, 1, 1, 1),
		"a number too many":    fields(1, "k", 5, second, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1),
	} {
		r := weir.Receipt{}
		var invalid *weir.InvalidError
		if err := r.UnmarshalText([]byte(text)); !errors.As(err, &invalid) || invalid.Field != "receipt" || !r.IsZero() {
			t.Errorf("%s: read as %+v, %v, want an *InvalidError", name, r, err)
		}
	}
}

// FuzzSnapshot restores hostile bytes, as they are and with the checksum that
// they should have: they are refused as a whole, or become a store that holds
// to its limits, and that writes and reads itself.
func FuzzSnapshot(f *testing.F) {
	clock := newFakeClock()
	good := someSnapshot(f, clock)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(forged(f, state(weir.SlidingBuckets, 1_000_000, 1, 0))))
	f.Add([]byte("weir snapshot 2\n"))
	f.Add([]byte("domain: web\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		hostileSnapshot(t, text)
		if len(text) >= 8 {
			hostileSnapshot(t, []byte(seal(t, string(text))))
		}
	})
}

func hostileSnapshot(t *testing.T, text []byte) {
	clock := newFakeClock()
	store, err := weir.RestoreMemory(weir.MemoryOptions{Now: clock.Now, MaxKeys: 100}, bytes.NewReader(text))
	if err != nil {
		var refused weir.SnapshotError
		if !errors.As(err, &refused) || store != nil {
			t.Errorf("%q: %v, want a SnapshotError", text, err)
		}
		return
	}
	again, restored := restore(t, snapshot(t, store), clock, 100)
	if a, b := store.Stats().Keys, restored.Stats().Keys; a < b {
		t.Errorf("%d keys are written as %d", a, b)
	}
	ctx := context.Background()
	for _, limit := range everyAlgorithm(5, time.Hour) {
		for range 3 {
			d, err := again.AllowN(ctx, "k", limit, 2)
			if err != nil || d.Remaining < 0 || d.Remaining > 5 || d.RetryAfter < 0 || d.ResetAfter < 0 {
				t.Errorf("under %s: %+v, %v", limit, d, err)
			}
			if n, err := again.Refund(ctx, d.Receipts()...); err != nil || n < 0 || n > 2 {
				t.Errorf("%d given back under %s, %v", n, limit, err)
			}
			clock.Advance(time.Minute)
		}
	}
}
