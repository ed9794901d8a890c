package aggregator

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startDevProcess runs a script in place of the extension server. Its messages arrive line by line in the returned writer.
func startDevProcess(t *testing.T, script string) (d *devProcess, out *lineWriter, stop func() error) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	out = &lineWriter{lines: make(chan string, 10)}
	d = &devProcess{program: program, dataDir: dir, out: out, pause: time.Millisecond, ready: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return d, out, stop
}

type lineWriter struct{ lines chan string }

func (w *lineWriter) Write(p []byte) (int, error) {
	w.lines <- string(bytes.TrimSpace(p))
	return len(p), nil
}

func (w *lineWriter) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-w.lines:
		return line
	case <-time.After(time.Minute):
		t.Fatal("no message within a minute, want one")
		return ""
	}
}

func TestDevStartsKilledExtensionServerAgain(t *testing.T) {
	d, out, stop := startDevProcess(t, "echo "+devReadyLine+"\nexec cat\n")
	select {
	case <-d.ready:
	case <-time.After(time.Minute):
		t.Fatal("the extension server was not ready within a minute, want readiness")
	}
	text, err := os.ReadFile(d.pidFile())
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("content of %s = %q, want a process ID", d.pidFile(), text)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := out.next(t); !strings.Contains(got, "ended (signal: killed)") {
		t.Errorf("message after the kill = %q, want the cause", got)
	}
	if got := out.next(t); !strings.Contains(got, "runs again") || strings.Contains(got, strconv.Itoa(pid)) {
		t.Errorf("message after the restart = %q, want another process than %d", got, pid)
	}
	if err := stop(); err != nil {
		t.Errorf("run = %v after its context ended, want nil", err)
	}
	if _, err := os.Stat(d.pidFile()); !os.IsNotExist(err) {
		t.Errorf("stat of the file of the process ID after the end: error %v, want no file", err)
	}
}

func TestDevFailsIfExtensionServerIsNeverReady(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho no kubeconfig >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := &devProcess{program: program, dataDir: dir, out: &lineWriter{lines: make(chan string, 10)}, pause: time.Minute, ready: make(chan struct{})}
	err := d.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "extserver.log") {
		t.Errorf("run = %v, want an error with the exit status and the log", err)
	}
	if log, err := os.ReadFile(filepath.Join(dir, "extserver.log")); err != nil || !strings.Contains(string(log), "no kubeconfig") {
		t.Errorf("log = %q, %v, want what the process printed", log, err)
	}
}
