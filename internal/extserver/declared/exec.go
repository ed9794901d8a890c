package declared

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// waitDelay is how long the pipes of a killed command may stay open.
	waitDelay = 2 * time.Second
	// maxStderr limits the captured standard error of a command.
	maxStderr = 1 << 10
)

// Exec runs a command and reads JSON or YAML from its standard output. It uses no shell: Argv[0] is a file, and the other
// arguments are passed unchanged. The environment of the command consists of PATH and Env; the environment of this server may
// contain secrets and is not passed. The command runs in a separate process group, and the entire group is killed when the
// timeout expires.
type Exec struct {
	Argv []string
	Env  map[string]string
	// Format is json or yaml.
	Format   string
	Timeout  time.Duration
	MaxBytes int64
}

// Fetch runs the command once.
func (e *Exec) Fetch(ctx context.Context) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	command := exec.CommandContext(ctx, e.Argv[0], e.Argv[1:]...)
	command.Dir = "/"
	command.Env = e.environment()
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.Cancel = kill
	command.WaitDelay = waitDelay
	out := &bounded{limit: e.MaxBytes, overflow: cancel}
	stderr := &bounded{limit: maxStderr}
	command.Stdout, command.Stderr = out, stderr
	err := command.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		_ = kill() // a descendant of the command holds the pipes; ignore the error if it has exited
	}
	switch {
	case out.full:
		return nil, fmt.Errorf("%s: %w: more than %d bytes; raise maxBytes if that is right", e.Argv[0], ErrTooLarge, e.MaxBytes)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: killed after %s: %w", e.Argv[0], e.Timeout, ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("%s: %w%s", e.Argv[0], err, stderr.quoted())
	}
	v, err := decoder(e.Format)(out.data.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Argv[0], err)
	}
	return v, nil
}

func (e *Exec) environment() []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for name, value := range e.Env {
		env = append(env, name+"="+value)
	}
	slices.Sort(env[1:])
	return env
}

// bounded stores data up to limit and discards the rest.
type bounded struct {
	data     bytes.Buffer
	limit    int64
	full     bool
	overflow func() // called when data exceeds limit
}

// Write never fails, because a command with a broken pipe would fail with a less specific error.
func (b *bounded) Write(p []byte) (int, error) {
	room := b.limit - int64(b.data.Len())
	if int64(len(p)) > room {
		b.data.Write(p[:room])
		b.full = true
		if b.overflow != nil {
			b.overflow()
		}
		return len(p), nil
	}
	return b.data.Write(p)
}

func (b *bounded) quoted() string {
	text := strings.TrimSpace(b.data.String())
	if text == "" {
		return ""
	}
	return fmt.Sprintf(": %q", text)
}
