package kubelet

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the side of a pseudo-terminal that a person looks at and types into.
type terminal struct{ *os.File }

// startOnTerminal starts a program on a new controlling terminal of this size.
func startOnTerminal(cmd *exec.Cmd, rows, columns uint16) (terminal, error) {
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return terminal{}, err
	}
	t := terminal{file}
	number := 0
	err = t.control(func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	if err == nil {
		err = t.resize(rows, columns)
	}
	if err == nil {
		err = t.give(cmd, "/dev/pts/"+strconv.Itoa(number))
	}
	if err != nil {
		_ = file.Close()
		return terminal{}, fmt.Errorf("a terminal: %w", err)
	}
	return t, nil
}

// give starts a program on the second side, which only the program has open then.
func (t terminal) give(cmd *exec.Cmd, side string) error {
	theirs, err := os.OpenFile(side, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer theirs.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return cmd.Start()
}

// resize notifies the programs on the terminal too, by a signal.
func (t terminal) resize(rows, columns uint16) error {
	return t.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

func (t terminal) control(do func(fd int) error) error {
	conn, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := conn.Control(func(fd uintptr) { result = do(int(fd)) }); err != nil {
		return err
	}
	return result
}
