//go:build unix

package faulty

import (
	"os"
	"syscall"
)

// stopProcess returns when the process has stopped. The signal alone takes effect later.
func stopProcess(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p)
}

func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
