package algo

import "testing"

func TestWindowEdges(t *testing.T) {
	for _, tt := range []struct {
		epoch bool
		edges []edge
	}{
		{false, []edge{
			{5, 2, true, 1, 0, 10},
			{14, 1, true, 0, 0, 1},
			{14, 1, false, 0, 1, 1},
			{15, 3, true, 0, 0, 10},
			{24, 1, false, 0, 1, 1},
			{100, 1, true, 2, 0, 10},
			{99, 1, true, 1, 0, 11}, // a step back stays in the window
		}},
		{true, []edge{
			{-11, 3, true, 0, 0, 1},
			{-10, 3, true, 0, 0, 10},
			{-1, 1, false, 0, 1, 1},
			{0, 1, true, 2, 0, 10},
			{9, 2, true, 0, 0, 1},
			{9, 3, false, 0, 1, 1},
			{10, 3, true, 0, 0, 10},
			{25, 1, true, 2, 0, 5},
		}},
	} {
		l := Make(FixedWindow, 3, 0, 10, 0, tt.epoch)
		walk(t, &l, tt.edges)
	}
}

// TestWindowRefundKnowsItsWindow: a mark of one window gives back nothing of
// the next.
func TestWindowRefundKnowsItsWindow(t *testing.T) {
	for _, epoch := range []bool{false, true} {
		l := Make(FixedWindow, 3, 0, 10, 0, epoch)
		var s State
		first := Charge(&l, &s, 5, 2)
		if k := Refund(&l, &s, 9, 1, first); k != 1 {
			t.Errorf("in its window: %d", k)
		}
		next := Charge(&l, &s, 16, 3)
		if k := Refund(&l, &s, 16, 1, first); k != 0 {
			t.Errorf("in the next window: %d", k)
		}
		if k := Refund(&l, &s, 17, 9, next); k != 3 {
			t.Errorf("the next window's own: %d", k)
		}
	}
}

func TestCounterEdges(t *testing.T) {
	l := Make(SlidingCounter, 4, 0, 10, 0, false)
	walk(t, &l, []edge{
		{0, 4, true, 0, 0, 20},
		{0, 1, false, 0, 13, 20}, // 4 of the previous window weigh 3 from 10+2.5 on
		{10, 1, false, 0, 3, 10},
		{12, 1, false, 0, 1, 8},
		{13, 1, true, 0, 0, 17},
		{15, 1, true, 0, 0, 15},
		{15, 3, false, 0, 10, 15}, // 2 + what is left of 4 until 20; then 2 weigh 1 from 25 on
		{25, 3, true, 0, 0, 15},
		{60, 4, true, 0, 0, 20},
	})
}

// TestCounterGivenBackIsUnused: a window of which all was given back is none,
// so the next unit starts one, as on an unused key.
func TestCounterGivenBackIsUnused(t *testing.T) {
	l := Make(SlidingCounter, 4, 0, 10, 0, false)
	var s State
	Charge(&l, &s, 0, 2)
	mark := Charge(&l, &s, 12, 1)
	if k := Refund(&l, &s, 13, 1, mark); k != 1 {
		t.Fatalf("gave back %d", k)
	}
	if o := Decide(&l, &s, 23, 0); o != (Outcome{Remaining: 4}) {
		t.Fatalf("at 23 %+v is left", o)
	}
	Charge(&l, &s, 23, 1)
	if o := Decide(&l, &s, 23, 0); o.Reset != 20 {
		t.Errorf("a unit taken at 23 is over after %d, want two windows as on an unused key", o.Reset)
	}
}
