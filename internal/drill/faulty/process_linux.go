package faulty

import (
	"os/exec"
	"syscall"
)

// endWithParent has the process killed when this one ends in any way: a stopped process would stay for ever.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
