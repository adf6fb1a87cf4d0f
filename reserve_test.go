package weir_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func closing(t *testing.T, lim *weir.Limiter) {
	t.Helper()
	if err := lim.Close(); err != nil {
		t.Error(err)
	}
}

func TestReservationsSettleOnce(t *testing.T) {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	defer closing(t, lim)
	limit := weir.PerHour(1000)
	r, err := lim.Reserve(ctx, weir.Request{Key: "k", Limit: limit, Cost: 100})
	if err != nil || !r.Allowed || r.Remaining != 900 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, wrong := range [][]int64{{-1}, {weir.MaxUnits + 1}, {1, 1}} {
		var invalid *weir.InvalidError
		if err := r.Commit(ctx, wrong...); !errors.As(err, &invalid) || invalid.Field != "used" {
			t.Errorf("%d: got %v", wrong, err)
		}
	}
	var all sync.WaitGroup
	settled := make(chan error, 64)
	for range cap(settled) {
		all.Go(func() { settled <- r.Commit(ctx, 40) })
	}
	all.Wait()
	close(settled)
	first := 0
	for err := range settled {
		switch {
		case err == nil:
			first++
		case !errors.Is(err, weir.ErrSettled):
			t.Error(err)
		}
	}
	if n, err := r.Cancel(ctx); n != 0 || err != nil || first != 1 {
		t.Errorf("%d commits acted, cancel gave %d, %v", first, n, err)
	}
	if d, _ := lim.Peek(ctx, "k", limit); d.Remaining != 960 {
		t.Errorf("%d are left, want 960", d.Remaining)
	}
}

// The caller of a handler has often left when the work is over.
func TestReservationsAreSettledForCallersWhoLeft(t *testing.T) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	lim := weir.New(weir.Options{})
	defer closing(t, lim)
	limit := weir.PerHour(10)
	for i, settle := range []func(*weir.Reservation) error{
		func(r *weir.Reservation) error { return r.Commit(ctx, 3) },
		func(r *weir.Reservation) error { return r.Commit(ctx, 13) },
		func(r *weir.Reservation) error { _, err := r.Cancel(ctx); return err },
	} {
		r, err := lim.Reserve(context.Background(), weir.Request{Key: strconv.Itoa(i), Limit: limit, Cost: 8})
		if err != nil {
			t.Fatal(err)
		}
		leave()
		if err := settle(r); err != nil {
			t.Error(err)
		}
	}
	for i, want := range []int64{7, 0, 10} {
		if d, _ := lim.Peek(context.Background(), strconv.Itoa(i), limit); d.Remaining != want {
			t.Errorf("%d: %d are left, want %d", i, d.Remaining, want)
		}
	}
}

func TestReserveRefusesAsAllowAllDoes(t *testing.T) {
	lim := weir.New(weir.Options{})
	var invalid *weir.InvalidError
	if _, err := lim.Reserve(context.Background(), weir.Request{Key: "k"}); !errors.As(err, &invalid) {
		t.Errorf("got %v", err)
	}
	closing(t, lim)
	if _, err := lim.Reserve(context.Background(), weir.Request{Key: "k", Limit: weir.PerHour(1)}); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestSettlingTellsOfTheStore(t *testing.T) {
	ctx := context.Background()
	lim := weir.New(weir.Options{})
	var held [3]*weir.Reservation
	for i := range held {
		held[i], _ = lim.Reserve(ctx, weir.Request{Key: "k", Limit: weir.Per(100, time.Minute), Cost: 5})
	}
	closing(t, lim)
	_, cancelled := held[2].Cancel(ctx)
	for _, err := range []error{held[0].Commit(ctx, 1), held[1].Commit(ctx, 9), cancelled} {
		if !errors.Is(err, weir.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
}
