package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"portico.dev/e2e/programs"
)

// Session is kubectl on a terminal.
type Session struct {
	t        *testing.T
	terminal terminal
	cmd      *exec.Cmd
	end      context.CancelFunc // kills kubectl
	unread   []byte             // of the output
}

// mostShown limits the stored output of kubectl in a session.
const mostShown = 64 << 10

// OnTerminal starts kubectl on a terminal of 31 rows and 97 columns. It is killed at the end of the test.
func (c *Client) OnTerminal(t *testing.T, websockets string, args ...string) *Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	cmd := c.Command(ctx, websockets, args...)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	terminal, err := startOnTerminal(cmd, 31, 97)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	s := &Session{t: t, terminal: terminal, cmd: cmd, end: cancel}
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
func (s *Session) await(text string) error {
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

// Shows fails the test unless the terminal shows these texts in order.
func (s *Session) Shows(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if err := s.await(text); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Types types a text.
func (s *Session) Types(text string) {
	s.t.Helper()
	if _, err := s.terminal.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// Resize changes the size of the terminal.
func (s *Session) Resize(rows, columns uint16) {
	s.t.Helper()
	if err := s.terminal.resize(rows, columns); err != nil {
		s.t.Fatal(err)
	}
}

// End kills kubectl.
func (s *Session) End() { s.end() }

// Ends waits until kubectl has exited.
func (s *Session) Ends() error {
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
