package clients

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"portico.dev/e2e/programs"
)

// program is a running program with its output.
type program struct {
	name    string
	log     string // the file
	process *programs.Process
	said    *lines
}

// start starts a program. It is ended, and must end well, when the whole test does.
func (w *testEnv) start(t *testing.T, name string, env []string, binary string, args ...string) *program {
	t.Helper()
	log := w.path(name + ".log")
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{name: name, log: log, said: &lines{file: file}}
	env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir}, env...)
	if p.process, err = programs.Start(name, w.dir, env, p.said, filepath.Join(binaries, binary), args...); err != nil {
		t.Fatal(err)
	}
	w.t.Cleanup(func() {
		p.process.Finish(w.t)
		if err := file.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return p
}

// awaits waits for a line of output that contains all of the words.
func (p *program) awaits(t *testing.T, words ...string) {
	t.Helper()
	if err := programs.Poll(p.process.Exited(), func() error {
		if p.said.with(words...) == 0 {
			return fmt.Errorf("%s has not said %q", p.name, strings.Join(words, " ... "))
		}
		return nil
	}); err != nil {
		t.Fatalf("output in time: %v, want it; it logs to %s", err, p.log)
	}
}

// once fails unless exactly one line of output contains all of the words.
func (p *program) once(t *testing.T, words ...string) {
	t.Helper()
	p.awaits(t, words...)
	if n := p.said.with(words...); n != 1 {
		t.Errorf("%s printed %q %d times, want 1; it logs to %s", p.name, strings.Join(words, " ... "), n, p.log)
	}
}

// lines is a writer that keeps whole lines, and writes them to a file.
type lines struct {
	file *os.File

	mu   sync.Mutex // guards the rest
	all  []string
	part []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, b...)
	for {
		line, rest, found := bytes.Cut(l.part, []byte("\n"))
		if !found {
			break
		}
		l.all, l.part = append(l.all, string(line)), rest
	}
	return l.file.Write(b)
}

// with counts the lines that have all of the words.
func (l *lines) with(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for _, line := range l.all {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		n++
	}
	return n
}
