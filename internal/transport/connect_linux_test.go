package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listenWithBacklog is net.Listen with a given queue length.
func listenWithBacklog(n int) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer func() { _ = file.Close() }()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, n); err != nil {
		return nil, err
	}
	return net.FileListener(file)
}

func TestConnectTimeoutCoversHandshake(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	tests := []struct {
		name   string
		listen func(*testEnv, *testing.T) string
		op     string
	}{
		{"hangs after accept", func(w *testEnv, _ *testing.T) string {
			return w.tcp(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		}, OpTLS},
		{"TLS and then silence", func(w *testEnv, _ *testing.T) string {
			return w.raw("h2", func(c *tls.Conn) { _, _ = io.Copy(io.Discard, c) })
		}, OpTLS},
		{"TLS and then good-bye", func(w *testEnv, _ *testing.T) string {
			return w.raw("h2", func(*tls.Conn) {})
		}, OpTLS},
		{"not TLS", func(w *testEnv, _ *testing.T) string {
			return w.tcp(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
		}, OpTLS},
		{"nobody takes the connection", func(w *testEnv, t *testing.T) string { return fullBacklog(t) }, OpDial},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newTestEnv(t)
			address := test.listen(w, t)
			soon(t, time.Second, func() time.Duration {
				quick := w.set(func(o *Options) {
					limit := map[string]*time.Duration{OpDial: &o.DialTimeout, OpTLS: &o.TLSTimeout}
					*limit[test.op] = 200 * time.Millisecond
				})
				start := time.Now()
				_, err := do(t, w.backend(quick, address), http.MethodPost, strings.NewReader("x"))
				took := time.Since(start)
				var failed *Error
				if !errors.As(err, &failed) || failed.Op != test.op || failed.Sent {
					t.Errorf("POST error = %#v, want an error of %s, not sent", err, test.op)
				}
				return took
			})
			// With a second endpoint no request waits for the first.
			s := w.serve(text("sibling"))
			set := w.set(func(o *Options) { o.DialTimeout, o.TLSTimeout = time.Minute, time.Minute })
			if _, err := get(t, w.backend(set, s.address)); err != nil { // opens its connection, even on a busy machine
				t.Fatal(err)
			}
			patient := w.backend(set, s.address, address)
			start := time.Now()
			for range 6 {
				if body, err := do(t, patient, http.MethodPost, strings.NewReader("x")); err != nil || body != "sibling" {
					t.Fatalf("POST with a second endpoint = %q with the error %v, want sibling", body, err)
				}
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("time of six requests = %s, want at most a minute", took)
			}
		})
	}
}

// fullBacklog is a listener that never accepts and whose queue is full: connection attempts hang.
func fullBacklog(t *testing.T) string {
	t.Helper()
	l, err := listenWithBacklog(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	failed := 0
	for range 12 {
		d := net.Dialer{Timeout: 50 * time.Millisecond}
		c, err := d.DialContext(context.Background(), "tcp", l.Addr().String())
		if err != nil {
			if failed++; failed == 3 { // a single timeout may be caused by a busy machine
				return l.Addr().String()
			}
			continue
		}
		failed = 0
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("12 connections did not fill the queue of the listener, want it full")
	return ""
}
