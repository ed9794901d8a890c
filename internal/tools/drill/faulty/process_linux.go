package faulty

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent makes the kernel kill the process when its parent dies. A stopped process would otherwise stay
// forever.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// awaitStopped waits until every thread of a process that was sent SIGSTOP has stopped, or the process has exited. It
// leaves an exited process for its parent to reap.
func awaitStopped(p *os.Process) error {
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			return nil // it has exited and was reaped
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
