package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/run"
)

// commandGrace is how long a command may take to end after it was interrupted.
const commandGrace = 10 * time.Second

// Stdio contains the input and output of a command.
type Stdio struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Ephemeral runs a front door with storage in memory, in a temporary directory that is removed at the end, and runs
// command with KUBECONFIG and the given input and output. It ends with the command and returns its exit status.
// Without a command it runs until ctx ends. ready, if not nil, is called with the URL and the kubeconfig when the
// front door is ready. The kubeconfig is empty if --client-ca-file does not accept the administrator's certificate.
func Ephemeral(ctx context.Context, c Config, command []string, stdio Stdio, ready func(url, kubeconfig string), log *zap.Logger) (status int, err error) {
	dir, err := os.MkdirTemp("", "portico-")
	if err != nil {
		return 0, fmt.Errorf("data directory: %w", err)
	}
	defer func() {
		if removed := os.RemoveAll(dir); err == nil && removed != nil {
			err = fmt.Errorf("remove the data directory: %w", removed)
		}
	}()
	c.DataDir = filepath.Join(dir, "data")
	c.Embedded.Volatile, c.Embedded.NoServiceManager = true, true
	front, err := New(c, log)
	if err != nil {
		return 0, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	g := &run.Group{}
	g.Add(run.Member{Name: "front door", Run: front.Run, Ready: front.Ready()})
	g.Add(run.Member{Name: "command", Run: func(ctx context.Context) error {
		noAdmin := requireAdminKubeconfig(c)
		if noAdmin != nil && len(command) > 0 {
			return noAdmin
		}
		if ready != nil && noAdmin != nil {
			ready(front.URL(), "")
		} else if ready != nil {
			ready(front.URL(), c.AdminKubeconfig())
		}
		if len(command) == 0 {
			<-ctx.Done()
			return nil
		}
		defer end()
		var err error
		status, err = runCommand(ctx, command, stdio, c.AdminKubeconfig())
		return err
	}})
	return status, g.Run(ctx)
}

// runCommand returns the exit status of a command, or 128 plus the number of the signal that ended it.
func runCommand(ctx context.Context, command []string, stdio Stdio, kubeconfig string) (int, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.Stdin, stdio.Stdout, stdio.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = commandGrace
	err := cmd.Run()
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
