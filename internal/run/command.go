package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// CommandGrace is how long a command may take to end after it was interrupted.
const CommandGrace = 10 * time.Second

// Stdio contains the input and output of a command.
type Stdio struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Command runs a command and its arguments, with additional environment variables, until it ends or ctx does. It returns the exit
// status, or 128 plus the number of the signal that ended the command.
func Command(ctx context.Context, command []string, stdio Stdio, environment ...string) (status int, err error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.Stdin, stdio.Stdout, stdio.Stderr
	cmd.Env = append(os.Environ(), environment...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = CommandGrace
	err = cmd.Run()
	var exited *exec.ExitError
	switch {
	case errors.As(err, &exited):
		return exitStatus(exited), nil
	case err != nil && ctx.Err() == nil:
		return 0, fmt.Errorf("run %s: %w", command[0], err)
	}
	return 0, nil
}

// exitStatus returns the status as a shell reports it.
func exitStatus(e *exec.ExitError) int {
	if w, ok := e.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return e.ExitCode()
}
