package weir_test

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

var (
	_ encoding.TextMarshaler   = weir.Receipt{}
	_ encoding.TextUnmarshaler = (*weir.Receipt)(nil)
)

// mustRefund gives receipts back and checks how many units that were.
func mustRefund(t testing.TB, lim *weir.Limiter, want int64, rs ...weir.Receipt) {
	t.Helper()
	if n, err := lim.Refund(context.Background(), rs...); err != nil || n != want {
		t.Errorf("a refund gave back %d, want %d (%v)", n, want, err)
	}
}

// reread writes a receipt as text and reads it back.
func reread(t testing.TB, r weir.Receipt) weir.Receipt {
	t.Helper()
	text, err := r.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); strings.ContainsAny(s, "+/= \n\"&?#%") {
		t.Errorf("the text %q is not safe in a URL", s)
	}
	var back weir.Receipt
	if err := back.UnmarshalText(text); err != nil {
		t.Fatalf("%+v is written %q: %v", r, text, err)
	}
	if back != r {
		t.Errorf("%+v reads back as %+v", r, back)
	}
	return back
}

// TestReceiptRoundTrip: a receipt of any limit, key and cost survives as text,
// and gives its units back afterwards.
func TestReceiptRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	lim, _, clock := newFake(t, 0)
	for i := range 2000 {
		limit := randomLimit(r)
		key := []string{"", "k", "a b\n\x00\xff{é}", strings.Repeat("k", 10_000)}[r.IntN(4)] + fmt.Sprint(i)
		d, err := lim.AllowAll(context.Background(), weir.Request{Key: key, Limit: limit, Cost: 1 + r.Int64N(limit.Capacity()), Group: key[:len(key)/2]})
		if err != nil || !d.Allowed {
			t.Fatalf("%s: %+v (%v)", limit, d, err)
		}
		back := reread(t, d.Receipts()[0])
		mustRefund(t, lim, back.Units, back)
		clock.Advance(time.Millisecond)
	}
}

// TestReceiptOfAnyClock: a virtual clock may start before 1970, or at the zero
// time, and its receipts are receipts.
func TestReceiptOfAnyClock(t *testing.T) {
	for _, start := range []time.Time{time.Unix(0, 0), time.Unix(-1, 0), {}, time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)} {
		forEvery(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, clock *fakeClock, limit weir.Limit) {
			clock.Set(start)
			d := mustAllow(t, lim, "k", limit, 3, true)
			mustRefund(t, lim, 3, reread(t, d.Receipt))
		})
	}
}

// TestReceiptOfLongUse: however long a key has been in use, its receipts can
// be written and read.
func TestReceiptOfLongUse(t *testing.T) {
	ctx := context.Background()
	_, store, clock := newFake(t, 0)
	limit := weir.Limit{Max: weir.MaxUnits, Window: time.Microsecond, Burst: weir.MaxUnits, Algorithm: weir.TokenBucket}
	list := []weir.List{{Requests: make([]weir.Request, 512), Rows: make([]weir.Decision, 512)}}
	for i := range list[0].Requests {
		list[0].Requests[i] = weir.Request{Key: "k", Limit: limit, Cost: weir.MaxUnits, Mode: weir.Record}
	}
	// 2^40 units every 512us: 2^53 units, which is 1 GB/s for three months.
	for range (1<<13 + 2) / scale {
		if store.Take(ctx, list); list[0].Err != nil {
			t.Fatal(list[0].Err)
		}
		clock.Advance(512 * time.Microsecond)
	}
	if d := list[0].Rows[0]; !d.Receipt.IsZero() {
		reread(t, d.Receipt)
	}
}

// TestZeroReceipt: nothing was charged, so nothing comes back; and a denied
// decision survives as JSON like any other.
func TestZeroReceipt(t *testing.T) {
	lim, _, _ := newFake(t, 0)
	limit := weir.PerMinute(1)
	first := mustAllow(t, lim, "k", limit, 1, true)
	denied := mustAllow(t, lim, "k", limit, 1, false)
	for _, r := range []weir.Receipt{{}, denied.Receipt, first.Receipt.Part(0), first.Receipt.Part(-1), (weir.Receipt{}).Part(5)} {
		if !r.IsZero() {
			t.Errorf("%+v is not zero", r)
		}
		mustRefund(t, lim, 0, r)
	}
	if first.Receipt.IsZero() {
		t.Error("an admitted decision has no receipt")
	}
	if left := remaining(t, lim, "k", limit); left != 0 {
		t.Errorf("zero receipts gave back %d units", left)
	}
	for _, d := range []weir.Decision{first, denied} {
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back weir.Decision
		if err := json.Unmarshal(text, &back); err != nil || back.Receipt != d.Receipt || back.Allowed != d.Allowed || back.RetryAfter != d.RetryAfter {
			t.Errorf("%s reads back as %+v (%v)", text, back, err)
		}
	}
}

func TestReceiptPart(t *testing.T) {
	forEvery(t, 9, time.Second, func(t *testing.T, lim *weir.Limiter, _ *fakeClock, limit weir.Limit) {
		r := mustAllow(t, lim, "k", limit, 9, true).Receipt
		if p := r.Part(4); p.Units != 4 || p.Request.Cost != 9 || p.ID != r.ID {
			t.Errorf("Part(4) is %+v", p)
		}
		if p := r.Part(100); p != r {
			t.Errorf("Part(100) of 9 is %+v", p)
		}
		if p := r.Part(4).Part(6); p.Units != 4 {
			t.Errorf("Part(6) of Part(4) is %+v", p)
		}
		mustRefund(t, lim, 4, r.Part(4))
		mustRefund(t, lim, 4, reread(t, r.Part(4)))
		mustRefund(t, lim, 1, r.Part(4))
		mustRefund(t, lim, 0, r.Part(4))
		mustRefund(t, lim, 0, r)
		if left := remaining(t, lim, "k", limit); left != 9 {
			t.Errorf("%d of 9 are left", left)
		}
	})
}

// TestRefundTwice: a receipt counts once, in one call or two, whole or as
// text, while other units are recorded at the same stamp.
func TestRefundTwice(t *testing.T) {
	forEvery(t, 9, time.Second, func(t *testing.T, lim *weir.Limiter, _ *fakeClock, limit weir.Limit) {
		mustAllow(t, lim, "k", limit, 4, true)
		r := mustAllow(t, lim, "k", limit, 2, true).Receipt
		mustAllow(t, lim, "k", limit, 3, true)
		mustRefund(t, lim, 2, r, r)
		mustRefund(t, lim, 0, r)
		mustRefund(t, lim, 0, reread(t, r), r.Part(1))
		if left := remaining(t, lim, "k", limit); left != 2 {
			t.Errorf("%d units are left, want 2", left)
		}
	})
}

func TestRefundFromTwoGoroutines(t *testing.T) {
	forEvery(t, 100, time.Minute, func(t *testing.T, lim *weir.Limiter, _ *fakeClock, limit weir.Limit) {
		mustAllow(t, lim, "k", limit, 60, true)
		for range 40 {
			r := mustAllow(t, lim, "k", limit, 3, true).Receipt
			var wg sync.WaitGroup
			got := make([]int64, 2)
			for i := range got {
				wg.Go(func() {
					n, err := lim.Refund(context.Background(), r.Part(2))
					if err != nil {
						t.Error(err)
					}
					got[i] = n
				})
			}
			wg.Wait()
			if got[0]+got[1] != 3 {
				t.Fatalf("two goroutines with 2 of the 3 units each got %v back", got)
			}
		}
		if left := remaining(t, lim, "k", limit); left != 40 {
			t.Errorf("%d units are left, want 40", left)
		}
	})
}

// TestManyReceipts: the memory of what has been returned is bounded, and the
// last 65,536 receipts are in it.
func TestManyReceipts(t *testing.T) {
	lim, _, _ := newFake(t, 0)
	limit := weir.Limit{Max: weir.MaxUnits, Window: time.Hour, Algorithm: weir.FixedWindow}
	mustAllow(t, lim, "k", limit, 1_000_000, true) // so that a second return would find units
	const remembered = 1 << 16
	receipts := make([]weir.Receipt, 3*remembered)
	for i := range receipts {
		receipts[i] = mustAllow(t, lim, "k", limit, 1, true).Receipt
	}
	withReceipts := heapNow()
	for i, r := range receipts {
		mustRefund(t, lim, 1, r)
		if i%997 == 0 {
			mustRefund(t, lim, 0, receipts[max(0, i+1-remembered)])
		}
	}
	for _, r := range receipts[len(receipts)-remembered:] {
		mustRefund(t, lim, 0, r)
	}
	if grown := heapNow() - withReceipts; grown > 16<<20 {
		t.Errorf("returning %d receipts took %d bytes for good", len(receipts), grown)
	}
}

// TestRefundExpires: units that no longer count are not given back, exactly
// from t+Window on, and one microsecond before they are.
func TestRefundExpires(t *testing.T) {
	for _, limit := range everyAlgorithm(5, time.Second) {
		if limit.Algorithm == weir.TokenBucket || limit.Algorithm == weir.SlidingCounter { // they forget gradually
			continue
		}
		for _, tt := range []struct {
			after time.Duration
			want  int64
		}{{time.Second - time.Microsecond, 2}, {time.Second, 0}, {time.Hour, 0}} {
			lim, _, clock := newFake(t, 0)
			r := mustAllow(t, lim, "k", limit, 2, true).Receipt
			clock.Advance(tt.after)
			mustRefund(t, lim, tt.want, r)
		}
	}
}

// TestRefundInAnyOrder: two callers who both give up get both their units
// back, whoever of them comes first.
func TestRefundInAnyOrder(t *testing.T) {
	forEvery(t, 9, time.Second, func(t *testing.T, lim *weir.Limiter, _ *fakeClock, limit weir.Limit) {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}} {
			var rs []weir.Receipt
			for range 3 {
				rs = append(rs, mustAllow(t, lim, "k", limit, 3, true).Receipt)
			}
			for _, i := range order {
				mustRefund(t, lim, 3, rs[i])
			}
			if left := remaining(t, lim, "k", limit); left != 9 {
				t.Errorf("in the order %v: %d of 9 are left", order, left)
			}
		}
	})
}

// TestRefundAfterReset: a reset forgets the units, so their receipt gives back
// nothing of what others have taken since.
func TestRefundAfterReset(t *testing.T) {
	limits := append(everyAlgorithm(5, time.Second), weir.Limit{Max: 5, Window: time.Second, Epoch: true})
	for _, limit := range limits {
		t.Run(limit.String(), func(t *testing.T) {
			lim, _, clock := newFake(t, 0)
			r := mustAllow(t, lim, "k", limit, 5, true).Receipt
			if ok, err := lim.Reset(context.Background(), "k", limit); err != nil || !ok {
				t.Fatalf("reset: %t, %v", ok, err)
			}
			clock.Advance(time.Millisecond)
			mustAllow(t, lim, "k", limit, 5, true)
			mustRefund(t, lim, 0, r)
			mustAllow(t, lim, "k", limit, 1, false)
		})
	}
}

// TestRefundOfACharge: use was recorded beyond the limit, and then taken back.
// The units admitted before are in the same window still.
func TestRefundOfACharge(t *testing.T) {
	for _, how := range []string{"receipt", "oldest"} {
		t.Run(how, func(t *testing.T) {
			forEvery(t, 5, time.Second, func(t *testing.T, lim *weir.Limiter, clock *fakeClock, limit weir.Limit) {
				ctx := context.Background()
				mustAllow(t, lim, "k", limit, 5, true)
				clock.Advance(time.Millisecond)
				d, err := lim.Charge(ctx, "k", limit, 10)
				if err != nil {
					t.Fatal(err)
				}
				var back int64
				if how == "receipt" {
					back, err = lim.Refund(ctx, d.Receipt)
				} else {
					back, err = lim.RefundOldest(ctx, weir.Request{Key: "k", Limit: limit, Cost: 10})
				}
				if err != nil || back > 10 {
					t.Fatalf("10 charged units gave back %d (%v)", back, err)
				}
				mustAllow(t, lim, "k", limit, 1, false)
			})
		})
	}
}

// TestRefundAfterRaise: units taken at a slow rate have drained at the fast
// one that came after it, so their receipt gives back nothing of what was
// taken since, even if the slow one is back.
func TestRefundAfterRaise(t *testing.T) {
	slow := weir.Limit{Max: 1, Window: time.Second, Burst: 10}
	fast := weir.Limit{Max: 10, Window: time.Second, Burst: 10}
	for _, tt := range []struct {
		name string
		then func(t *testing.T, lim *weir.Limiter) // after all has drained
	}{
		{"kept", func(t *testing.T, lim *weir.Limiter) {
			mustAllow(t, lim, "k", fast, 10, true)
		}},
		{"forgotten", func(t *testing.T, lim *weir.Limiter) {
			for i := range 400 { // other keys make the store reclaim the empty bucket
				mustAllow(t, lim, fmt.Sprint("other", i), fast, 1, true)
			}
			mustAllow(t, lim, "k", fast, 10, true)
		}},
		{"lowered again", func(t *testing.T, lim *weir.Limiter) {
			mustAllow(t, lim, "k", fast, 1, true)
			mustAllow(t, lim, "k", slow, 9, true)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lim, _, clock := newFake(t, 500)
			r := mustAllow(t, lim, "k", slow, 10, true).Receipt
			clock.Advance(500 * time.Millisecond)
			mustAllow(t, lim, "k", fast, 1, true)
			clock.Advance(time.Second)
			tt.then(t, lim)
			if _, err := lim.Refund(context.Background(), r); err != nil {
				t.Fatal(err)
			}
			mustAllow(t, lim, "k", slow, 1, false)
		})
	}
}

// TestRefundAfterLower: returning a receipt of a faster limit must not drain
// the bucket at the faster rate.
func TestRefundAfterLower(t *testing.T) {
	fast := weir.Limit{Max: 9, Window: time.Second, Burst: 10}
	slow := weir.Limit{Max: 1, Window: time.Second, Burst: 10}
	lim, _, clock := newFake(t, 0)
	r := mustAllow(t, lim, "k", fast, 9, true).Receipt
	mustAllow(t, lim, "k", slow, 1, true)
	clock.Advance(500 * time.Millisecond)
	n, err := lim.Refund(context.Background(), r.Part(1))
	if err != nil || n > 1 {
		t.Fatalf("1 unit gave back %d (%v)", n, err)
	}
	if left := remaining(t, lim, "k", slow); left > n {
		t.Errorf("1 unit a second drains, none has in half of one, %d came back, yet %d pass", n, left)
	}
}

// TestRefundKeepsTheState: a receipt says what limit it was charged under, and
// may lie. How long the store remembers what is owed does not depend on it.
func TestRefundKeepsTheState(t *testing.T) {
	for _, birth := range []int64{0, 1} { // that of another state, or of this one
		t.Run(fmt.Sprintf("more=%d", birth), func(t *testing.T) {
			limit := weir.Limit{Max: 1, Window: time.Minute, Burst: 10}
			lim, _, clock := newFake(t, 500)
			r := mustAllow(t, lim, "k", limit, 10, true).Receipt
			r.Request.Limit.Max, r.Request.Limit.Burst = weir.MaxUnits, weir.MaxUnits
			r.Birth += 1 - birth
			clock.Advance(time.Second)
			n, err := lim.Refund(context.Background(), r.Part(1))
			if err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Second)
			for i := range 400 { // others look for room
				mustAllow(t, lim, fmt.Sprint("other", i), limit, 1, true)
			}
			if left := remaining(t, lim, "k", limit); left > n {
				t.Errorf("%d of 10 units came back, and %d are left", n, left)
			}
		})
	}
}

// TestReceiptOfAnotherStore: a process that has started anew has forgotten the
// units of its former receipts, so they give back nothing of what it has
// admitted since.
func TestReceiptOfAnotherStore(t *testing.T) {
	forEvery(t, 5, time.Minute, func(t *testing.T, before *weir.Limiter, _ *fakeClock, limit weir.Limit) {
		after, _, _ := newFake(t, 0)
		r := mustAllow(t, before, "k", limit, 5, true).Receipt
		mustAllow(t, after, "k", limit, 5, true)
		mustRefund(t, after, 0, r)
		mustAllow(t, after, "k", limit, 1, false)
	})
}

// TestChargeDoesNotRevive: units that have left the window stay out of it when
// a charge above the limit makes the log merge its stamps.
func TestChargeDoesNotRevive(t *testing.T) {
	ctx := context.Background()
	for _, limit := range everyAlgorithm(3, time.Second)[:2] {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			lim, _, clock := newFake(t, 0)
			mustAllow(t, lim, "k", limit, 2, true)
			clock.Advance(1100 * time.Millisecond) // a window and a part
			mustAllow(t, lim, "k", limit, 1, true)
			clock.Advance(100 * time.Millisecond)
			d, err := lim.Charge(ctx, "k", limit, 10)
			if err != nil {
				t.Fatal(err)
			}
			mustRefund(t, lim, 10, d.Receipt)
			if n, err := lim.Count(ctx, "k", limit, limit.Window); err != nil || n != 1 {
				t.Errorf("%d units in the last window, want 1 (%v)", n, err)
			}
			if left := remaining(t, lim, "k", limit); left != 2 {
				t.Errorf("%d are left, want 2", left)
			}
		})
	}
}

// TestRefundIsValidatedFirst: a list with an invalid receipt gives back
// nothing, and its valid ones keep their worth.
func TestRefundIsValidatedFirst(t *testing.T) {
	lim, _, _ := newFake(t, 0)
	r := mustAllow(t, lim, "k", weir.PerMinute(5), 3, true).Receipt
	bad := r
	bad.Request.Limit.Max = 0
	var invalid *weir.InvalidError
	if n, err := lim.Refund(context.Background(), r, bad); n != 0 || !errors.As(err, &invalid) {
		t.Errorf("gave back %d, %v, want an *InvalidError", n, err)
	}
	mustRefund(t, lim, 3, r)
}

// TestHandMadeReceipt: a receipt is a value that anybody can make; a wrong one
// is an error, never a panic.
func TestHandMadeReceipt(t *testing.T) {
	lim, _, _ := newFake(t, 0)
	ok := weir.PerMinute(5)
	for _, r := range []weir.Receipt{
		{Request: weir.Request{Key: "k", Cost: 1}, Units: 1, ID: 1},
		{Request: weir.Request{Key: "k", Cost: 1, Limit: weir.Limit{Max: 5, Window: time.Second, Algorithm: weir.SlidingBuckets, Buckets: -1}}, Units: 1, ID: 2},
		{Request: weir.Request{Key: "k", Cost: 1, Limit: weir.Limit{Max: 5, Window: -time.Second, Algorithm: weir.FixedWindow, Epoch: true}}, Units: 1, ID: 3},
		{Request: weir.Request{Key: "k", Cost: 1, Limit: weir.Limit{Algorithm: weir.SlidingBuckets}}, Units: 1, ID: 4},
		{Request: weir.Request{Key: "k", Cost: -1, Limit: ok}, Units: 1, ID: 5},
	} {
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%+v: panic: %v", r, p)
				}
			}()
			var invalid *weir.InvalidError
			if n, err := lim.Refund(context.Background(), r); n != 0 || !errors.As(err, &invalid) {
				t.Errorf("%+v gave back %d, %v, want an *InvalidError", r, n, err)
			}
		}()
	}
	// Without an ID and with its defaults left out it stands for the oldest units.
	mustAllow(t, lim, "k", ok, 5, true)
	mustRefund(t, lim, 2, weir.Receipt{Request: weir.Request{Key: "k", Cost: 2, Limit: ok}, Units: 2})
}
