package logging

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
)

func TestAccessLogFlagSelectsDestination(t *testing.T) {
	for _, c := range []struct {
		args    string
		enabled bool
		path    string
		text    string
	}{
		{"", true, "", "true"},
		{"--access-log", true, "", "true"},
		{"--access-log=true", true, "", "true"},
		{"--access-log=false", false, "", "false"},
		{"--access-log=off", false, "", "false"},
		{"--access-log=-", true, "-", "-"},
		{"--access-log=a.log", true, "a.log", "a.log"},
		{"--access-log=a.log --access-log=off", false, "", "false"},
		{"--access-log=a.log --access-log", true, "", "true"},
	} {
		enabled, path := true, ""
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		AccessDestination{&enabled, &path}.AddTo(fs)
		if err := fs.Parse(strings.Fields(c.args)); err != nil {
			t.Errorf("Parse(%q) = %v, want no error", c.args, err)
		}
		if text := fs.Lookup("access-log").Value.String(); enabled != c.enabled || path != c.path || text != c.text {
			t.Errorf("Parse(%q): enabled %v, path %q, text %q; want %v, %q, %q", c.args, enabled, path, text, c.enabled, c.path, c.text)
		}
	}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	AccessDestination{new(bool), new(string)}.AddTo(fs)
	if err := fs.Parse([]string{"--access-log="}); err == nil {
		t.Error("Parse(--access-log=) = nil, want an error")
	}
}

// runAccessLog runs a until the test calls stop, which returns after Run.
func runAccessLog(t *testing.T, a *AccessLog) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	}
}

func TestAccessLogIsAppendedToItsFile(t *testing.T) {
	for format, want := range map[string]string{"console": "\tINFO\taccess\trequest\t", "json": `"logger":"access","msg":"request",`} {
		file := filepath.Join(t.TempDir(), "access.log")
		if err := os.WriteFile(file, []byte("before\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var program bytes.Buffer
		log, err := Options{Level: "error", Format: format}.To(zapSyncer{&program})
		if err != nil {
			t.Fatal(err)
		}
		a, err := OpenAccessLog(File{Path: file}, log)
		if err != nil {
			t.Fatal(err)
		}
		const lines = 3000 // several writes
		stop := runAccessLog(t, a)
		access := a.Logger()
		for n := range lines {
			access.Info("request", zap.String("path", strings.Repeat("x", 100)+strconv.Itoa(n)+"."))
		}
		stop()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(got) != lines+1 || got[0] != "before" {
			t.Fatalf("format %s: %d lines, the first %q; want %d, the first \"before\"", format, len(got), got[0], lines+1)
		}
		for n, line := range got[1:] {
			if !strings.Contains(line, want) || !strings.Contains(line, "x"+strconv.Itoa(n)+".") {
				t.Fatalf("format %s: line %d = %q, want %q and the number", format, n, line, want)
			}
		}
		if program.Len() > 0 {
			t.Errorf("format %s: the log of the program = %q, want nothing", format, program.String())
		}
	}
}

func TestAccessLogFileIsRotatedBetweenLines(t *testing.T) {
	dir := t.TempDir()
	a, err := OpenAccessLog(File{Path: filepath.Join(dir, "access.log"), MaxSize: 1}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	stop := runAccessLog(t, a)
	access, size := a.Logger(), 0
	for n := range 30 {
		access.Info("request", zap.Int("n", n), zap.ByteString("path", bytes.Repeat([]byte("x"), 50<<10)))
		size += 50 << 10
	}
	stop()
	files, err := filepath.Glob(filepath.Join(dir, "access*.log"))
	if err != nil || len(files) != 2 {
		t.Fatalf("files = %v, %v; want two after %d bytes", files, err, size)
	}
	total := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(text, []byte("{")) || !bytes.HasSuffix(text, []byte("}\n")) {
			t.Errorf("%s begins with %q and ends with %q, want whole lines", file, text[:1], text[len(text)-2:])
		}
		total += bytes.Count(text, []byte("\n"))
	}
	if total != 30 {
		t.Errorf("%d lines in all files, want 30", total)
	}
}

func TestAccessLogThatCannotBeOpenedIsAnError(t *testing.T) {
	if _, err := OpenAccessLog(File{Path: t.TempDir()}, zap.NewNop()); err == nil || !strings.HasPrefix(err.Error(), "--access-log: ") {
		t.Errorf("OpenAccessLog(directory) = %v, want an error that names the flag", err)
	}
}

// slowDestination blocks each write until it may continue, and fails while err is set.
type slowDestination struct {
	may   chan struct{}
	err   error
	lines int
}

func (d *slowDestination) Write(p []byte) (int, error) {
	<-d.may
	if d.err != nil {
		return 0, d.err
	}
	d.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

func (d *slowDestination) Close() error { return nil }

func TestBlockedAccessLogDropsLinesAndDoesNotDelayRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program, log := newScreen(t)
		out := &slowDestination{may: make(chan struct{})}
		a := &AccessLog{log: log, out: out, wake: make(chan struct{}, 1)}
		stop := runAccessLog(t, a)
		access := a.Logger()
		access.Info("request")
		synctest.Wait() // the first line is being written
		const size, lines = 4000, 3000
		for range lines {
			access.Info("request", zap.String("path", strings.Repeat("x", size)))
		}
		if n := len(a.pending); n > maxQueuedAccess || n < maxQueuedAccess-2*size {
			t.Errorf("%d pending bytes, want almost %d", n, maxQueuedAccess)
		}
		dropped := a.dropped
		if dropped == 0 || dropped > lines/2 {
			t.Errorf("%d lines were dropped, want some of %d", dropped, lines)
		}
		close(out.may)
		stop()
		if want := 1 + lines - dropped; out.lines != want {
			t.Errorf("%d lines were written, want %d", out.lines, want)
		}
		if want := `{"dropped": ` + strconv.Itoa(dropped) + `}`; program.said() != want {
			t.Errorf("log of the program = %q, want %q", program.said(), want)
		}
	})
}

func TestAccessLogReportsFailedWritesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program, log := newScreen(t)
		out := &slowDestination{may: make(chan struct{}), err: errors.New("no space left")}
		close(out.may)
		a := &AccessLog{log: log, out: out, wake: make(chan struct{}, 1)}
		stop := runAccessLog(t, a)
		for range 5 {
			a.Logger().Info("request")
			time.Sleep(2 * flushInterval)
		}
		stop()
		if n := strings.Count(program.said(), "no space left"); n != 1 {
			t.Errorf("log of the program = %q, want the error once, have it %d times", program.said(), n)
		}
	})
}

func TestAccessLogThatHangsAtShutdownDelaysItForFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program, log := newScreen(t)
		out := &slowDestination{may: make(chan struct{})}
		a := &AccessLog{log: log, out: out, wake: make(chan struct{}, 1)}
		stop := runAccessLog(t, a)
		a.Logger().Info("request")
		synctest.Wait()
		began := time.Now()
		stop()
		if took := time.Since(began); took != accessCloseTimeout {
			t.Errorf("shutdown took %s, want %s", took, accessCloseTimeout)
		}
		if !strings.Contains(program.said(), "after") {
			t.Errorf("log of the program = %q, want the error", program.said())
		}
		close(out.may)
		synctest.Wait()
	})
}

type zapSyncer struct{ *bytes.Buffer }

func (zapSyncer) Sync() error { return nil }
