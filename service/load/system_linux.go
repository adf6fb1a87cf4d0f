package load

import (
	"syscall"
	"time"
)

// sleep is time.Sleep to some 50 us, where Go's timers are to a millisecond.
// Tests that have a clock of their own replace it.
var sleep = func(d time.Duration) {
	wait := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&wait, nil) // a signal makes it end early
}

// CPU returns the processor time that this process has used so far, its own and
// the system's for it, and false if the system does not tell.
func CPU() (time.Duration, bool) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, false
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), true
}
