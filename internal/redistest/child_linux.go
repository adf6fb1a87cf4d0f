package redistest

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter runs functions on one thread that lasts as long as the process.
var starter = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

// begin starts a program that the kernel kills when this process ends. The
// kernel does so when the thread that started it ends, so that must be one that
// stays.
func begin(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}
