package sim_test

import (
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/sim"
)

func TestClock(t *testing.T) {
	var c sim.Clock
	want := func(text string) {
		t.Helper()
		if got := c.Now().Format(time.RFC3339Nano); got != text {
			t.Errorf("the clock shows %s, want %s", got, text)
		}
	}
	want("1970-01-01T00:00:00Z")
	c.Set(time.Date(2015, 5, 17, 10, 5, 3, 1999, time.FixedZone("", 3600)))
	want("2015-05-17T09:05:03.000001Z")
	c.Advance(1500 * time.Millisecond)
	want("2015-05-17T09:05:04.500001Z")
	c.Advance(-time.Hour)
	want("2015-05-17T08:05:04.500001Z")
}

func TestClockIsSafeForConcurrentUse(t *testing.T) {
	var c sim.Clock
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 1000 {
				c.Advance(time.Microsecond)
				c.Now()
			}
		})
	}
	group.Wait()
	if got := c.Now().UnixMicro(); got != 4000 {
		t.Errorf("4,000 steps of 1us make %dus", got)
	}
}
