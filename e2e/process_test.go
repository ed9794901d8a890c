package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds every wait for something to come true.
	patience = 3 * time.Minute
	// pollEvery is how often it is looked at.
	pollEvery = 100 * time.Millisecond
	// stopWithin bounds the wait for a process that was asked to end.
	stopWithin = time.Minute
	// keepOutput is how much of a process's output is kept: the end of it is what failures need.
	keepOutput = 64 << 10
)

// process is a program in the background.
type process struct {
	name, program string
	cmd           *exec.Cmd
	output        tail
	exited        chan struct{}
	err           error // valid once exited is closed
	ended         bool  // by the test itself
}

// startProcess starts one of our programs. Whoever starts it finishes it.
func startProcess(name, dir string, env []string, program string, args ...string) (*process, error) {
	return startLogging(io.Discard, name, dir, env, program, args...)
}

// startLogging is startProcess for those who want all of what it logs, and not only the end.
func startLogging(log io.Writer, name, dir string, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, program: program, exited: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(binaries, program), args...)
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.Stdout, p.cmd.Stderr = &p.output, io.MultiWriter(&p.output, log)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// finish makes sure that the process is gone. A server that the test itself did not end must be alive, and must end well.
func (p *process) finish(t testing.TB) {
	code, err := p.stop(os.Interrupt)
	switch {
	case err != nil:
		t.Error(err)
	case !p.ended && p.program != "kubectl" && code != 0:
		t.Errorf("%s ended with exit code %d", p.name, code)
	}
}

// show logs the output of the process when the test failed.
func (p *process) show(t testing.TB) {
	if t.Failed() {
		t.Logf("--- the end of the output of %s (pid %d):\n%s", p.name, p.cmd.Process.Pid, p.output.String())
	}
}

// stop sends sig, waits, and returns the exit code. A process that does not end in time is killed.
func (p *process) stop(sig os.Signal) (int, error) {
	select {
	case <-p.exited:
		return p.code(), nil
	default:
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, fmt.Errorf("signal %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
		return p.code(), nil
	case <-time.After(stopWithin):
	}
	// The dump of its goroutines goes to its output, which a failed test shows.
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	return 0, fmt.Errorf("%s did not end within %s of %v", p.name, stopWithin, sig)
}

func (p *process) code() int {
	if p.err == nil {
		return 0
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode() // -1: by a signal
	}
	return -1
}

// poll calls try until it returns nil, at most for patience. stop, when closed, ends it early.
func poll(stop <-chan struct{}, try func() error) error {
	deadline := time.After(patience)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-stop:
			if err := try(); err == nil {
				return nil
			}
			return fmt.Errorf("the process has ended, and %w", err)
		case <-deadline:
			return fmt.Errorf("after %s still: %w", patience, err)
		}
	}
}

// tail is a writer that keeps the end of what was written.
type tail struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.kept.Write(p)
	if over := t.kept.Len() - keepOutput; over > 0 {
		t.kept.Next(over)
	}
	return n, err
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept.String()
}
