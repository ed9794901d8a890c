package programs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"portico.dev/internal/httpengine/enginetest"
)

const (
	// Patience bounds every wait for a condition.
	Patience = 3 * time.Minute
	// pollEvery is the minimum polling interval.
	pollEvery = 100 * time.Millisecond
	// stopWithin bounds the wait for a process that was signaled to stop.
	stopWithin = time.Minute
	// keepOutput bounds the stored output of a process. The end of the output explains failures.
	keepOutput = 64 << 10
)

// Process is a program in the background.
type Process struct {
	// Ended is set by a test that ends the process itself.
	Ended bool

	name, program string
	cmd           *exec.Cmd
	output        tail
	exited        chan struct{}
	err           error // valid once exited is closed
}

// Start starts the program at a path, with only env as its environment. The caller must finish it. name is used in
// messages. log receives all of its standard error and may be nil; Output returns only the end of its output.
func Start(name, dir string, env []string, log io.Writer, program string, args ...string) (*Process, error) {
	if log == nil {
		log = io.Discard
	}
	p := &Process{name: name, program: filepath.Base(program), exited: make(chan struct{})}
	p.cmd = exec.Command(program, WithEngines(p.program, args)...)
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

// WithEngines returns the arguments of a program. For a front door, it adds the HTTP implementations selected in the
// environment of the tests.
func WithEngines(program string, args []string) []string {
	serves := len(args) > 0 && (args[0] == "serve" || args[0] == "dev") || len(args) > 1 && args[0] == "drill" && args[1] == "run"
	if filepath.Base(program) != "aggregator" || !serves {
		return args
	}
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--http-engine=") }) {
		return args // the test has selected one
	}
	return append(slices.Clone(args), enginetest.Flags()...)
}

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Output returns the end of the output of the process.
func (p *Process) Output() string { return p.output.String() }

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// reporter is the part of testing.TB that is used here.
type reporter interface {
	Error(args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
}

// Finish stops the process. It reports an exit code other than 0 as a test error, unless Ended is set or the program
// is kubectl.
func (p *Process) Finish(t reporter) {
	code, err := p.Stop(os.Interrupt)
	switch {
	case err != nil:
		t.Error(err)
	case !p.Ended && p.program != "kubectl" && code != 0:
		t.Errorf("%s ended with exit code %d", p.name, code)
	}
}

// Show logs the output of the process if the test failed.
func (p *Process) Show(t reporter) {
	if t.Failed() {
		t.Logf("--- the end of the output of %s (pid %d):\n%s", p.name, p.cmd.Process.Pid, p.output.String())
	}
}

// Stop sends sig, waits, and returns the exit code. It kills a process that does not end in time.
func (p *Process) Stop(sig os.Signal) (int, error) {
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
	// SIGQUIT dumps the goroutines to the output, which a failed test shows.
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	return 0, fmt.Errorf("%s did not end within %s of %v", p.name, stopWithin, sig)
}

func (p *Process) code() int {
	if p.err == nil {
		return 0
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode() // -1 for a signal
	}
	return -1
}

// Poll calls try until it returns nil, for at most Patience. Closing stop ends it after a last call. Between two
// calls it waits for pollEvery or three times the duration of the last call, whichever is longer, to leave the
// processors to the program under test.
func Poll(stop <-chan struct{}, try func() error) error {
	deadline := time.After(Patience)
	for {
		start := time.Now()
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(max(pollEvery, 3*time.Since(start))):
		case <-stop:
			if err = try(); err == nil {
				return nil
			}
			return fmt.Errorf("the process has ended, and %w", err)
		case <-deadline:
			return fmt.Errorf("after %s still: %w", Patience, err)
		}
	}
}

// tail is a writer that keeps the end of the written data.
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

// Kill kills the process, waits until it has ended, and sets Ended.
func (p *Process) Kill() error {
	p.Ended = true
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.exited
	return nil
}

// MachineAddress returns an IPv4 address of this machine that is not a loopback address, or an empty string. API
// servers refuse loopback addresses in endpoints and in proxy requests.
func MachineAddress() string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, one := range all {
		if network, ok := one.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	return ""
}
