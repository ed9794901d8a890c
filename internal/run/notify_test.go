package run

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

const patience = time.Minute

// manager is the end of the socket that a service manager holds.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t: t, conn: conn}
}

func (m *manager) next() string {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		m.t.Fatal(err)
	}
	buffer := make([]byte, 256)
	n, err := m.conn.Read(buffer)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(buffer[:n])
}

func (m *manager) want(state string) {
	m.t.Helper()
	if got := m.next(); got != state {
		m.t.Fatalf("notification = %q, want %q", got, state)
	}
}

// background runs Run until the returned function is called, which waits for it.
func background(t *testing.T, log *zap.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- NotifyServiceManager(ctx, log) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestReadyAndStoppingAreNotified(t *testing.T) {
	m := newManager(t)
	stop := background(t, zap.NewNop())
	m.want("READY=1")
	stop()
	m.want("STOPPING=1")
}

func TestWatchdogNotifications(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", strconv.Itoa(int((20 * time.Millisecond).Microseconds())))
	stop := background(t, zap.NewNop())
	m.want("READY=1")
	for range 3 {
		m.want("WATCHDOG=1")
	}
	stop()
	for {
		switch got := m.next(); got {
		case "WATCHDOG=1":
		case "STOPPING=1":
			return
		default:
			t.Fatalf("message = %q, want WATCHDOG=1 or STOPPING=1", got)
		}
	}
}

// A service manager that does not read has soon as much as its socket holds. The program ends all the same.
func TestStopDoesNotWaitForBlockedServiceManager(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	newManager(t)
	t.Setenv("WATCHDOG_USEC", "100")
	core, logs := observer.New(zapcore.WarnLevel)
	stop := background(t, zap.New(core))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); logs.Len() == 0; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("no warning about a full socket was logged in time, want one")
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the notifier did not stop in time, want it stopped")
	}
}

// WATCHDOG_PID identifies the watched process: a child inherits both variables.
func TestWatchdogOfOtherProcessIsIgnored(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", "1000")
	t.Setenv("WATCHDOG_PID", "1")
	stop := background(t, zap.NewNop())
	m.want("READY=1")
	stop()
	m.want("STOPPING=1")
}

func TestMissingServiceManagerIsTolerated(t *testing.T) {
	tests := map[string]struct {
		socket, usec string
		warnings     int
	}{
		"no service manager":          {warnings: 0},
		"a socket that is gone":       {socket: filepath.Join(t.TempDir(), "gone"), warnings: 2},
		"an interval that is no time": {usec: "soon", warnings: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NOTIFY_SOCKET", tt.socket)
			t.Setenv("WATCHDOG_USEC", tt.usec)
			core, logs := observer.New(zapcore.WarnLevel)
			background(t, zap.New(core))()
			if logs.Len() != tt.warnings {
				t.Errorf("got %d warnings, want %d: %v", logs.Len(), tt.warnings, logs.All())
			}
		})
	}
}
