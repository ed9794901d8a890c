package thirdparty

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"portico.dev/e2e/programs"
)

// session is kubectl on a terminal.
type session struct {
	t        *testing.T
	terminal terminal
	cmd      *exec.Cmd
	end      context.CancelFunc // kills kubectl
	unread   []byte             // of the output
}

// mostShown limits the stored output of kubectl in a session.
const mostShown = 64 << 10

// onTerminal starts kubectl on a terminal of 31 rows and 97 columns. It is killed at the end of the test.
func (d *frontDoor) onTerminal(t *testing.T, websockets string, args ...string) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "kubectl"), args...)
	cmd.Dir, cmd.Env = d.dir, append(d.env(), "TERM=xterm", "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets)
	terminal, err := startOnTerminal(cmd, 31, 97)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	s := &session{t: t, terminal: terminal, cmd: cmd, end: cancel}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed, or has been waited for
		_ = terminal.Close()
	})
	if err := terminal.SetReadDeadline(time.Now().Add(programs.Patience)); err != nil {
		t.Fatal(err)
	}
	return s
}

// await reads until the terminal shows a text.
func (s *session) await(text string) error {
	for b := make([]byte, 1024); ; {
		if _, after, found := bytes.Cut(s.unread, []byte(text)); found {
			s.unread = after
			return nil
		}
		if len(s.unread) > mostShown {
			return fmt.Errorf("%q shows too much, and no %q: %q", s.cmd.Args[1:], text, s.unread[:1024])
		}
		n, err := s.terminal.Read(b)
		s.unread = append(s.unread, b[:n]...)
		if err != nil && n == 0 {
			return fmt.Errorf("%q shows %q, and no %q: %w", s.cmd.Args[1:], s.unread, text, err)
		}
	}
}

// shows fails the test unless the terminal shows these texts in order.
func (s *session) shows(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if err := s.await(text); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *session) types(text string) {
	s.t.Helper()
	if _, err := s.terminal.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits until kubectl has exited.
func (s *session) ends() error {
	for b := make([]byte, 1024); ; { // its output must be read until then
		_, err := s.terminal.Read(b)
		if errors.Is(err, syscall.EIO) { // the other side is closed
			return s.cmd.Wait()
		}
		if err != nil {
			return err
		}
	}
}
