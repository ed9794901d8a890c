package network

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
	"pgregory.net/rapid"
)

func TestDataIsDeliveredAfterTheLatency(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		began := time.Now()
		write(t, p.near, "hello")
		wantAfter(t, began, 0)
		wantRead(t, p.far, "hello")
		wantAfter(t, began, testLatency)
	})
}

func TestWritesAreReadTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		write(t, p.near, "one")
		write(t, p.near, "two")
		time.Sleep(2 * testLatency)
		got := make([]byte, 100)
		if n, err := p.far.Read(got); err != nil || string(got[:n]) != "onetwo" {
			t.Errorf("Read = %q, %v, want onetwo", got[:n], err)
		}
	})
}

func TestWriteWaitsForASlowReader(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		want := bytes.Repeat([]byte("0123456789abcdef"), buffer/8)
		written := make(chan error)
		go func() { _, err := p.near.Write(want); written <- err }()
		time.Sleep(time.Minute)
		select {
		case err := <-written:
			t.Fatalf("Write of %d bytes returned without a reader (%v)", len(want), err)
		default:
		}
		go func() { _, _ = p.near.Write([]byte("end")); _ = p.near.Close() }() // does not mix with the first
		got, err := io.ReadAll(p.far)
		if err != nil || string(got) != string(want)+"end" {
			t.Errorf("read %d bytes (%v), want the %d that were written", len(got), err, len(want)+3)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

func TestWriteDeadlineEndsAWriteToAFullBuffer(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		began := time.Now()
		_ = p.near.SetWriteDeadline(began.Add(time.Second))
		if n, err := p.near.Write(make([]byte, buffer+1)); n != buffer || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write = %d, %v, want %d and a timeout", n, err, buffer)
		}
		wantAfter(t, began, time.Second)
	})
}

func TestReadDeadlineEndsRead(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		began := time.Now()
		_ = p.near.SetReadDeadline(began.Add(time.Second))
		wantEnd(t, p.near, os.ErrDeadlineExceeded)
		wantAfter(t, began, time.Second)
		_ = p.near.SetReadDeadline(began) // in the past
		wantEnd(t, p.near, os.ErrDeadlineExceeded)
		_ = p.near.SetReadDeadline(time.Time{})
		write(t, p.far, "hello")
		wantRead(t, p.near, "hello")
	})
}

func TestEarlierDeadlineEndsAWaitingRead(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		began := time.Now()
		_ = p.near.SetDeadline(began.Add(time.Hour))
		time.AfterFunc(time.Second, func() { _ = p.near.SetDeadline(time.Now()) })
		wantEnd(t, p.near, os.ErrDeadlineExceeded)
		wantAfter(t, began, time.Second)
	})
}

func TestEmptyReadsAndWritesDoNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		began := time.Now()
		for name, call := range map[string]func([]byte) (int, error){"Read": p.near.Read, "Write": p.near.Write} {
			if n, err := call(nil); n != 0 || err != nil {
				t.Errorf("%s(nil) = %d, %v, want 0, nil", name, n, err)
			}
		}
		wantAfter(t, began, 0)
	})
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		results := make(chan error)
		go func() { _, err := p.near.Read(make([]byte, 1)); results <- err }()
		for range 2 {
			go func() { _, err := p.near.Write(make([]byte, buffer+1)); results <- err }()
		}
		synctest.Wait()
		_ = p.near.Close()
		for range 3 {
			if err := <-results; !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		}
		for name, err := range map[string]error{"Close": p.near.Close(), "SetDeadline": p.near.SetDeadline(time.Now())} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s after Close: got %v, want ErrClosed", name, err)
			}
		}
	})
}

func TestDataBeforeCloseIsDelivered(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		write(t, p.near, "hello")
		_ = p.near.Close()
		wantRead(t, p.far, "hello")
		wantEnd(t, p.far, io.EOF)
		_ = p.far.Close()
		wantOpen(t, p, 0)
	})
}

func TestCloseWithUnreadDataResets(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		write(t, p.near, "hello")
		write(t, p.far, "data")
		time.Sleep(2 * testLatency)
		_ = p.far.Close()
		wantRead(t, p.near, "data")
		wantEnd(t, p.near, syscall.ECONNRESET)
		wantEnd(t, p.near, io.EOF) // a kernel reports an error once
		if _, err := p.near.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write: got %v, want EPIPE", err)
		}
		wantOpen(t, p, 0)
	})
}

func TestDataAfterCloseOfTheReaderResets(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		_ = p.far.Close()
		wantEnd(t, p.near, io.EOF)
		began := time.Now()
		write(t, p.near, "nobody reads this")
		write(t, p.near, "nor this")
		time.Sleep(2*testLatency - 1)
		wantOpen(t, p, 1)
		time.Sleep(2 * time.Nanosecond)
		if _, err := p.near.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write: got %v, want EPIPE", err)
		}
		wantAfter(t, began, 2*testLatency+1)
		wantEnd(t, p.near, io.EOF)
		wantOpen(t, p, 0)
	})
}

func TestCloseWriteLeavesTheOtherDirectionOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		write(t, p.near, "request")
		if err := p.near.(*conn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.near.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after CloseWrite: got %v, want EPIPE", err)
		}
		if got, err := io.ReadAll(p.far); err != nil || string(got) != "request" {
			t.Errorf("read %q (%v), want request", got, err)
		}
		write(t, p.far, "response")
		_ = p.far.Close()
		wantRead(t, p.near, "response")
		wantEnd(t, p.near, io.EOF)
	})
}

func TestLingerZeroResets(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		_ = p.near.(*conn).SetLinger(0)
		_ = p.near.Close()
		wantEnd(t, p.far, syscall.ECONNRESET)
		wantOpen(t, p, 0)
	})
}

func TestConnSatisfiesNettest(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		n := New(1, Link{})
		l, err := n.Host("10.0.0.2").Listen(80)
		if err != nil {
			return nil, nil, nil, err
		}
		c1, err = n.Host("10.0.0.1").Dial(context.Background(), "10.0.0.2:80")
		if err != nil {
			return nil, nil, nil, err
		}
		c2, err = l.Accept()
		return c1, c2, func() { _, _, _ = c1.Close(), c2.Close(), l.Close() }, err
	})
}

// class returns the kind of an error, as far as programs distinguish it.
func class(err error) string {
	for _, want := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE, syscall.ENOTCONN} {
		if errors.Is(err, want) {
			return want.Error()
		}
	}
	return fmt.Sprint(err)
}

// script is a sequence of calls on the two sides of a connection.
type script []struct {
	side, size int
	call       string
}

func drawScript(t *rapid.T) script {
	calls := []string{"write", "write", "write", "read", "read", "read", "close", "closewrite", "abort", "past", "never", "empty-read", "empty-write"}
	s := make(script, rapid.IntRange(1, 14).Draw(t, "calls"))
	for i := range s {
		s[i].side = rapid.IntRange(0, 1).Draw(t, "side")
		s[i].size = rapid.IntRange(1, 20).Draw(t, "size")
		s[i].call = rapid.SampledFrom(calls).Draw(t, "call")
	}
	return s
}

// socket is what *net.TCPConn and conn have in common.
type socket interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
}

// run returns the result of each call. What a call sends arrives in less than settle. A read without data ends after that time.
func (s script) run(near, far net.Conn, settle time.Duration) []string {
	results := make([]string, len(s))
	var past [2]bool // deadlines
	for i, step := range s {
		c := []net.Conn{near, far}[step.side].(socket)
		var n int
		var err error
		data := bytes.Repeat([]byte{byte('a' + i)}, step.size)
		switch step.call {
		case "write":
			n, err = c.Write(data)
		case "read":
			if !past[step.side] {
				_ = c.SetReadDeadline(time.Now().Add(settle))
			}
			n, err = c.Read(data)
			data = data[:n]
		case "empty-read":
			n, err = c.Read(nil)
		case "empty-write":
			n, err = c.Write(nil)
		case "close":
			err = c.Close()
		case "closewrite":
			err = c.CloseWrite()
		case "abort":
			_ = c.SetLinger(0)
			err = c.Close()
		case "past":
			past[step.side] = true
			err = c.SetDeadline(time.Unix(1, 0))
		case "never":
			past[step.side] = false
			err = c.SetDeadline(time.Time{})
		}
		results[i] = fmt.Sprintf("side %d: %s %q = %d, %s", step.side, step.call, data, n, class(err))
		time.Sleep(settle)
	}
	return results
}

// runSimulated runs a script on a connection of the network.
func (s script) runSimulated(t *testing.T) (results []string) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, Link{Latency: testLatency})
		results = s.run(p.near, p.far, 3*testLatency)
	})
	return results
}

// runReal runs a script on a TCP connection.
func (s script) runReal(t *testing.T, settle time.Duration) []string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	return s.run(near, far, settle)
}

func TestConnectionsBehaveLikeTCP(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the network has the errors of Linux")
	}
	rapid.Check(t, func(r *rapid.T) {
		s := drawScript(r)
		got := s.runSimulated(t)
		want := s.runReal(t, 2*time.Millisecond)
		if !slices.Equal(got, want) {
			want = s.runReal(t, 100*time.Millisecond) // the machine may be busy
		}
		for i := range want {
			if got[i] != want[i] {
				r.Fatalf("simulated:\n%s\nTCP:\n%s", strings.Join(got[:i+1], "\n"), strings.Join(want[:i+1], "\n"))
			}
		}
	})
}

// testHTTP sends requests through a bad network to a real server.
func testHTTP(t *testing.T, http2 bool) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1, Link{Latency: testLatency, Jitter: testLatency, Loss: 0.05})
		l, err := n.Host("10.0.0.2").Listen(443)
		if err != nil {
			t.Fatal(err)
		}
		server := &httptest.Server{Listener: l, EnableHTTP2: http2, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Protocol", r.Proto)
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		})}}
		server.StartTLS()
		defer server.Close()
		transport := &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "example.com"},
			ForceAttemptHTTP2: http2,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				return n.Host("10.0.0.1").Dial(ctx, address)
			},
		}
		transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
		defer transport.CloseIdleConnections()
		protocol := "HTTP/1.1"
		if http2 {
			protocol = "HTTP/2.0"
		}
		began := time.Now()
		var work sync.WaitGroup
		for i := range 10 {
			work.Go(func() {
				body := strings.Repeat(fmt.Sprint(i), 100_000)
				response, err := (&http.Client{Transport: transport}).Post("https://10.0.0.2:443/", "text/plain", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || string(got) != body {
					t.Errorf("request %d: got %d bytes (%v), want the %d of the request", i, len(got), err, len(body))
				}
				if got := response.Header.Get("X-Protocol"); got != protocol {
					t.Errorf("request %d: got %s, want %s", i, got, protocol)
				}
			})
		}
		work.Wait()
		// A connection takes a round trip, TLS another, and a request a third.
		if took := time.Since(began); took < 6*testLatency || took > time.Minute {
			t.Errorf("10 requests took %s, want more than three round trips, and less than a minute", took)
		}
	})
}

func TestHTTP1OverALossyNetwork(t *testing.T) { testHTTP(t, false) }

func TestHTTP2OverALossyNetwork(t *testing.T) { testHTTP(t, true) }
