package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"portico.dev/internal/transport"
)

// patience is the timeout of every wait.
const patience = time.Minute

// running runs s until the end of the test.
func running(t *testing.T, s *Selector) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, zap.NewNop()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// echo starts a server that returns all bytes and closes after the other side has closed.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		conns.Wait()
	})
	return listener.Addr().String()
}

// counts fails the test unless the metrics reach the wanted values.
func (f *fake) counts(t *testing.T, wanted string, names ...string) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = testutil.GatherAndCompare(f.registry, strings.NewReader(wanted), names...); err == nil {
			return
		}
	}
	t.Error(err)
}

func TestTunnelRelaysConnection(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			at := echo(t)
			f := newFake(t, k, dialling)
			conn, err := f.tunnel(within(t, patience), at)
			if err != nil {
				t.Fatal(err)
			}
			if got := conn.RemoteAddr().String(); got != at {
				t.Errorf("remote address = %s, want %s", got, at)
			}
			sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // many messages
			var writing sync.WaitGroup
			writing.Go(func() {
				if _, err := conn.Write(sent); err != nil {
					t.Error(err)
				}
			})
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("echoed bytes differ from the %d bytes sent: %v, want equal bytes", len(sent), err)
			}
			writing.Wait()
			// A deadline ends a wait and not the connection.
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read with a deadline: error = %v, want os.ErrDeadlineExceeded", err)
			}
			if err := conn.SetReadDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("!")); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(conn, got[:1]); err != nil || got[0] != '!' {
				t.Errorf("Read after the deadline = %q, error %v, want \"!\"", got[:1], err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			protocol, carrier := "http_connect", "uds"
			switch k {
			case connectTLS:
				carrier = "tcp"
			case grpcUDS:
				protocol = "grpc"
			}
			f.counts(t, fmt.Sprintf(`
# HELP apiserver_egress_dialer_dial_start_total Dials through tunnels of --egress-selector-config-file, by protocol (http_connect or grpc) and transport (tcp or uds).
# TYPE apiserver_egress_dialer_dial_start_total counter
apiserver_egress_dialer_dial_start_total{protocol=%q,transport=%q} 1
# HELP portico_egress_connections Connections through the tunnel to a network that are open.
# TYPE portico_egress_connections gauge
portico_egress_connections{network="cluster"} 0
# HELP portico_egress_pending_dials Dials through the tunnel to a network that are under way.
# TYPE portico_egress_pending_dials gauge
portico_egress_pending_dials{network="cluster"} 0
`, protocol, carrier), "apiserver_egress_dialer_dial_start_total", "portico_egress_connections", "portico_egress_pending_dials")
		})
	}
}

func TestCloseOfRemoteServerEndsConnection(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			f := newFake(t, k, func(string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					_, _ = far.Read(make([]byte, 1)) // like servers of TLS and HTTP
					_, _ = far.Write([]byte("bye"))
					_ = far.Close()
				}()
				return near, nil
			})
			conn, err := f.tunnel(within(t, patience), "10.0.0.1:443")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("?")); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(conn); err != nil || string(got) != "bye" {
				t.Errorf("read = %q, error %v, want \"bye\"", got, err)
			}
		})
	}
}

// The cause and the text of failed dials.
func TestFailedDialReturnsCause(t *testing.T) {
	t.Parallel()
	refusedOf := map[kind]string{
		connectUDS: "it answered 500 Internal Server Error: currently no tunnels available: No agent available",
		connectTLS: "it answered 500 Internal Server Error: currently no tunnels available: No agent available",
		grpcUDS:    "No agent available",
	}
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			t.Run("the server is gone", func(t *testing.T) {
				f := newFake(t, k, dialling)
				_ = f.listener.Close()
				_, err := f.tunnel(within(t, patience), "10.0.0.1:443")
				is(t, err, transport.TunnelUnreachable, "the tunnel to the cluster network cannot be reached: ")
			})
			t.Run("no agent", func(t *testing.T) {
				_, err := newFake(t, k, func(string) (net.Conn, error) { return nil, errNoAgent }).tunnel(within(t, patience), "10.0.0.1:443")
				is(t, err, transport.TunnelRefused, "the tunnel to the cluster network refused to connect: "+refusedOf[k])
			})
			t.Run("the server hangs up", func(t *testing.T) {
				f := newFake(t, k, func(string) (net.Conn, error) { return nil, errHangUp })
				_, err := f.tunnel(within(t, patience), "10.0.0.1:443")
				is(t, err, transport.TunnelUnreachable, "the tunnel to the cluster network cannot be reached: ")
			})
			t.Run("an answer that is slow, and comes in time", func(t *testing.T) {
				at := echo(t)
				f := newFake(t, k, func(string) (net.Conn, error) {
					<-time.After(100 * time.Millisecond)
					return dialling(at)
				})
				conn, err := f.tunnel(within(t, patience), at)
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
			})
			t.Run("an answer that is too slow", func(t *testing.T) {
				t.Parallel()
				at, late := echo(t), make(chan struct{})
				f := newFake(t, k, func(string) (net.Conn, error) {
					<-late
					return dialling(at)
				})
				_, err := f.tunnel(within(t, time.Second), at) // enough time to reach its server
				is(t, err, transport.TunnelSilent, "the tunnel to the cluster network did not connect in time: ")
				close(late) // The new connection is closed. Otherwise the end of the test waits for it.
			})
			t.Run("nothing answers", func(t *testing.T) {
				t.Parallel()
				f := newFake(t, k, hanging)
				_, err := f.tunnel(within(t, time.Second), "10.0.0.1:443") // as above
				is(t, err, transport.TunnelSilent, "the tunnel to the cluster network did not connect in time: ")
				f.counts(t, "", "portico_egress_connections")
			})
			t.Run("nothing answers, but others get through", func(t *testing.T) {
				t.Parallel()
				at := echo(t)
				f := newFake(t, k, func(address string) (net.Conn, error) {
					if address == at {
						return dialling(at)
					}
					return nil, nil
				})
				failed := make(chan error)
				ctx := within(t, time.Second)
				go func() {
					_, err := f.tunnel(ctx, "10.0.0.1:443")
					failed <- err
				}()
				for ctx.Err() == nil { // so that at least one dial begins after the failing one
					conn, err := f.tunnel(within(t, patience), at)
					if err != nil {
						t.Fatal(err)
					}
					_ = conn.Close()
				}
				err := <-failed
				var timeout net.Error
				if transport.IsTunnelError(err) || !errors.As(err, &timeout) || !timeout.Timeout() {
					t.Errorf("dial error = %v, want a timeout of the address", err)
				}
			})
			t.Run("nothing listens at the address", func(t *testing.T) {
				f := newFake(t, k, failing("dial tcp 10.0.0.1:443: connect: connection refused"))
				_, err := f.tunnel(within(t, patience), "10.0.0.1:443")
				if transport.IsTunnelError(err) || !errors.Is(err, syscall.ECONNREFUSED) || err.Error() != "dial tcp: connect: connection refused" {
					t.Errorf("dial error = %v, want ECONNREFUSED of the address", err)
				}
			})
			t.Run("the name is not known there", func(t *testing.T) {
				f := newFake(t, k, failing("dial tcp: lookup a.example on 10.96.0.10:53: no such host"))
				_, err := f.tunnel(within(t, patience), "a.example:443")
				var dns *net.DNSError
				if transport.IsTunnelError(err) || !errors.As(err, &dns) || !dns.IsNotFound {
					t.Errorf("dial error = %v, want a DNS error with IsNotFound", err)
				}
			})
			t.Run("the caller leaves", func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				f := newFake(t, k, func(string) (net.Conn, error) {
					cancel()
					return nil, nil
				})
				if _, err := f.tunnel(ctx, "10.0.0.1:443"); !errors.Is(err, context.Canceled) || transport.IsTunnelError(err) {
					t.Errorf("dial error = %v, want context.Canceled", err)
				}
			})
		})
	}
}

// The client sends no request to a server with another identity.
func TestTunnelServerWithWrongIdentityGetsNoRequest(t *testing.T) {
	f := newFake(t, connectTLS, dialling)
	dir := t.TempDir()
	_, connection := mutual(t, dir) // of another authority
	s := load(t, dir, "cluster", strings.ReplaceAll(connection, "ADDRESS", f.listener.Addr().String()), nil)
	_, err := s.Cluster().Dial(within(t, patience), "10.0.0.1:443")
	is(t, err, transport.TunnelUnreachable, "the tunnel to the cluster network cannot be reached: tls: failed to verify certificate")
}

// is fails the test unless err is a *transport.TunnelError with this problem and text.
func is(t *testing.T, err error, problem transport.TunnelProblem, text string) {
	t.Helper()
	var tunnel *transport.TunnelError
	if !errors.As(err, &tunnel) || tunnel.Problem != problem || !strings.HasPrefix(err.Error(), text) {
		t.Errorf("error = %v, want problem %d: %q", err, problem, text)
	}
}

// A server that hangs during a connection does not block Close and leaves no goroutines.
func TestHangingServerDoesNotBlockClose(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			far := make(chan net.Conn, 1)
			f := newFake(t, k, func(string) (net.Conn, error) {
				a, b := net.Pipe() // No side of it is read.
				far <- b
				return a, nil
			})
			conn, err := f.tunnel(within(t, patience), "10.0.0.1:443")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = (<-far).Close() }()
			if err := conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			chunk := make([]byte, 1<<20)
			for err == nil {
				_, err = conn.Write(chunk)
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Write to a server that does not read: error = %v, want os.ErrDeadlineExceeded", err)
			}
			closed := make(chan struct{})
			go func() {
				_ = conn.Close() // Errors for the unsent rest are irrelevant.
				close(closed)
			}()
			select {
			case <-closed:
			case <-within(t, patience).Done():
				t.Fatalf("Close did not return within %s, want it to return", patience)
			}
			gone := make(chan struct{})
			go func() {
				f.selector.running.Wait()
				close(gone)
			}()
			select {
			case <-gone:
			case <-within(t, patience).Done():
				t.Fatalf("goroutines of the connection did not end within %s, want them ended", patience)
			}
		})
	}
}

// A server that forwards nothing has at most the allowed number of pending dials, and all of them end.
func TestPendingDialsAreBounded(t *testing.T) {
	f := newFake(t, connectUDS, hanging)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var dials sync.WaitGroup
	for range maxPending {
		dials.Go(func() { _, _ = f.tunnel(ctx, "10.0.0.1:443") })
	}
	f.counts(t, fmt.Sprintf(`
# HELP portico_egress_pending_dials Dials through the tunnel to a network that are under way.
# TYPE portico_egress_pending_dials gauge
portico_egress_pending_dials{network="cluster"} %d
`, maxPending), "portico_egress_pending_dials")
	for len(f.selector.tunnels["cluster"].slots) < maxPending && ctx.Err() == nil {
		runtime.Gosched() // A dial is counted before it has its slot.
	}
	_, err := f.tunnel(ctx, "10.0.0.1:443")
	is(t, err, transport.TunnelBusy, "the tunnel to the cluster network has too many dials under way: 256 are waiting already")
	cancel()
	dials.Wait()
}

// Responses to CONNECT are bounded. Early bytes of the server are not treated as bytes of the address.
func TestA49ConnectResponsesAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ answer, wanted string }{
		"endless headers": {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 100) + "\r\n",
			"refused to connect: the headers of its response to CONNECT are larger than 16384 bytes"},
		"one endless header": {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 100<<10), "are larger than 16384 bytes"},
		"bytes behind":       {"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "it sent 19 bytes behind its response to CONNECT"},
		"not HTTP":           {"SSH-2.0-OpenSSH_9.6\r\n\r\n", "its response to CONNECT is not HTTP"},
		"an interim answer":  {"HTTP/1.1 100 Continue\r\n\r\n", "refused to connect: it answered 100 Continue"},
		"a redirect":         {"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", "refused to connect: it answered 302 Found"},
		"asks for a password": {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
			"refused to connect: it answered 407 Proxy Authentication Required"},
		"a long text with control characters": {"HTTP/1.1 500 X\r\n\r\n\x1b[2J" + strings.Repeat("a", 10<<10),
			"it answered 500 Internal Server Error: [2J" + strings.Repeat("a", maxErrorText-4)},
		"nothing": {"", "cannot be reached: no response to CONNECT"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			listener, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			var serving sync.WaitGroup
			serving.Go(func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if _, err := conn.Read(make([]byte, 1<<10)); err == nil {
					_, _ = io.WriteString(conn, c.answer)
				}
			})
			defer serving.Wait()
			defer listener.Close()
			s := load(t, dir, "cluster", fmt.Sprintf("proxyProtocol: HTTPConnect\n    transport: {uds: {udsName: %q}}", listener.Addr()), nil)
			conn, err := s.Cluster().Dial(within(t, patience), "10.0.0.1:443")
			if err == nil {
				_ = conn.Close()
			}
			if !transport.IsTunnelError(err) || !strings.Contains(err.Error(), c.wanted) || len(err.Error()) > 2*maxErrorText {
				t.Errorf("dial error = %v, want %q", err, c.wanted)
			}
		})
	}
}

// By RFC 9110 these codes describe the address. konnectivity also uses them for its agents.
func TestConnectErrorsDistinguishAddressFromAgent(t *testing.T) {
	for text, about := range map[string]bool{
		"<html>": true, "": true, "dial tcp 10.0.0.1:1: i/o timeout": true,
		"Backend context error: context canceled": false, "Failed to tunnel dial request: EOF": false, "Backend dial timeout: x": false,
	} {
		var address *addressError
		if err := refusal(504, text); errors.As(err, &address) != about {
			t.Errorf("refusal(504, %q) = %v, want an error of the address: %t", text, err, about)
		}
	}
}
