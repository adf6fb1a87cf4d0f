package sim

import (
	"sync/atomic"
	"time"
)

// Clock is a virtual clock in whole microseconds: it stands still until it is
// told otherwise. The zero Clock shows the start of 1970. It is safe for
// concurrent use; its Now fits weir.MemoryOptions.
type Clock struct{ micros atomic.Int64 }

// Now returns the time that the clock shows, in UTC.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()).UTC() }

// Set makes the clock show t, which may be earlier than what it shows.
func (c *Clock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }

// Advance moves the clock by d, back if d is negative.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }
