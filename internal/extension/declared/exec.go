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
	// maxStderr bounds what is kept of a command's standard error.
	maxStderr = 1 << 10
)

// Exec runs a command and reads JSON or YAML from its standard output. There is no shell: Argv[0] is a file, and the
// rest reaches it as it stands. The command sees PATH and Env, not the environment of this server, which may hold
// secrets. It runs in a process group of its own, and the whole group is killed when its time is over.
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
		_ = kill() // what the command has left behind holds the pipes; that it has gone meanwhile is well
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

// bounded keeps what is written up to limit and forgets the rest.
type bounded struct {
	data     bytes.Buffer
	limit    int64
	full     bool
	overflow func() // called when there is more
}

// Write never fails: a command whose pipe breaks would fail in its own way, and say less.
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
