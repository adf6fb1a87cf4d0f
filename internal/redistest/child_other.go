//go:build !linux

package redistest

import "os/exec"

// begin starts a program. It outlives a test that is killed, since only Linux
// can prevent that.
func begin(cmd *exec.Cmd) error { return cmd.Start() }
