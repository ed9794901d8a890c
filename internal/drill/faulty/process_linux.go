package faulty

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent has the process killed when this one ends in any way: a stopped process would stay for ever.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// awaitStopped waits until every thread of a process that was sent SIGSTOP has stopped, or the process has ended. It leaves the
// process to be waited for by whoever started it.
func awaitStopped(p *os.Process) error {
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			return nil // it has ended and was waited for
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
