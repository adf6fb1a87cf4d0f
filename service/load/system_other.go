//go:build !linux

package load

import "time"

// sleep is time.Sleep. Tests that have a clock of their own replace it.
var sleep = time.Sleep

// CPU returns the processor time that this process has used so far, its own and
// the system's for it, and false if the system does not tell.
func CPU() (time.Duration, bool) { return 0, false }
