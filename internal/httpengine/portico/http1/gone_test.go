package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A handler may return while another goroutine uses the hijacked connection.
func TestHijackedConnectionIsNotTouchedAfterHandler(t *testing.T) {
	var heard chan string
	inTime(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second) // so that the disconnect check runs
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			defer close(heard)
			room := make([]byte, 5)
			n, err := io.ReadFull(conn, room)
			if err != nil {
				t.Error(err)
			}
			heard <- string(room[:n])
		}()
		if r.URL.Path == "/panics" {
			panic(http.ErrAbortHandler)
		}
	}, func(_ *Server, p *peer, ended <-chan struct{}) {
		heard = make(chan string, 1)
		p.say(get)
		<-ended
		p.say("hello")
		if got := <-heard; got != "hello" {
			t.Errorf("read of the hijacked connection = %q, want \"hello\"", got)
		}
	})
}

// dying is a connection whose second read reports a dead client.
type dying struct {
	net.Conn
	reads int
}

func (d *dying) Read(p []byte) (int, error) {
	if d.reads++; d.reads > 1 {
		time.Sleep(time.Minute)
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
	}
	return d.Conn.Read(p)
}

// The error of a dead client is a timeout too, but not a deadline of the server.
func TestTimeoutErrorOfDeadClientCancelsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })})
		near, far := net.Pipe()
		go func() {
			_, _ = io.WriteString(near, get)
			_, _ = io.Copy(io.Discard, near)
		}()
		began := time.Now()
		conn := &dying{Conn: far}
		s.begin(conn, conn, nil, nil)()
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("connection ended after %v, want a minute", took)
		}
		_ = near.Close()
	})
}

// lingering is a connection that closes slowly, like a TLS connection whose client does not read.
type lingering struct {
	net.Conn
	release chan struct{}
}

func (l *lingering) Close() error {
	<-l.release
	return l.Conn.Close()
}

func TestShutdownReturnsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Handler: http.HandlerFunc(echo), Logf: t.Logf})
		near, far := net.Pipe()
		conn := &lingering{far, make(chan struct{})}
		go s.begin(conn, far, nil, nil)()
		p := &peer{Conn: near, t: t, r: bufio.NewReader(near)}
		p.say(get)
		p.answer("GET")
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != context.DeadlineExceeded || time.Since(began) != time.Second {
			t.Errorf("Shutdown = %v after %v, want context.DeadlineExceeded after 1s", err, time.Since(began))
		}
		close(conn.release)
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An incomplete header has one second, because it needs no credentials.
func TestShutdownWaitsOneSecondForIncompleteHeader(t *testing.T) {
	inTime(t, echo, func(s *Server, p *peer, ended <-chan struct{}) {
		p.say(get + "GET / HT")
		p.answer("GET")
		synctest.Wait()
		began := time.Now()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-ended
		if took := time.Since(began); took != lingerIdle {
			t.Errorf("Shutdown took %v, want %v", took, lingerIdle)
		}
	})
	inTime(t, echo, func(s *Server, p *peer, ended <-chan struct{}) {
		p.say("GET /whole HT")
		synctest.Wait()
		go func() { _ = s.Shutdown(context.Background()) }()
		synctest.Wait()
		p.say("TP/1.1\r\nHost: x\r\n\r\n")
		if res, text := p.answer("GET"); text != "GET /whole " || !res.Close {
			t.Errorf("response to a request completed in time = %q, close %v, want \"GET /whole \" and close", text, res.Close)
		}
		<-ended
	})
}

// The first request of a new client is in flight.
func TestShutdownWaitsOneSecondForFirstRequest(t *testing.T) {
	inTime(t, echo, func(s *Server, p *peer, ended <-chan struct{}) {
		synctest.Wait()
		over := make(chan error, 1)
		go func() { over <- s.Shutdown(context.Background()) }()
		time.Sleep(lingerIdle / 2)
		p.say("GET /first HTTP/1.1\r\nHost: x\r\n\r\n")
		if res, text := p.answer("GET"); text != "GET /first " || !res.Close {
			t.Errorf("response to a first request = %q, close %v, want \"GET /first \" and close", text, res.Close)
		}
		<-ended
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	inTime(t, echo, func(s *Server, p *peer, ended <-chan struct{}) {
		synctest.Wait()
		began := time.Now()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-ended
		if took := time.Since(began); took != lingerIdle {
			t.Errorf("Shutdown waited %v for a first request, want %v", took, lingerIdle)
		}
	})
}

// A connection that was accepted before Shutdown counts, even if it is served later.
func TestShutdownWaitsForAcceptedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Handler: http.HandlerFunc(echo), Logf: t.Logf})
		near, far := net.Pipe()
		serve := s.begin(far, far, nil, func() {})
		over := make(chan error, 1)
		go func() { over <- s.Shutdown(context.Background()) }()
		synctest.Wait()
		go serve()
		p := &peer{Conn: near, t: t, r: bufio.NewReader(near)}
		p.say("GET /first HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, text := p.answer("GET"); text != "GET /first " {
			t.Errorf("response to a first request = %q, want \"GET /first \"", text)
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// Close does not wait for clients that still read the last response.
func TestCloseDoesNotWaitForLingeringClients(t *testing.T) {
	inTime(t, echo, func(s *Server, p *peer, ended <-chan struct{}) {
		p.say("GET\r\n\r\n")
		p.answer("GET")
		synctest.Wait()
		began := time.Now()
		s.Close()
		<-ended
		if took := time.Since(began); took != 0 {
			t.Errorf("Close took %v, want 0", took)
		}
	})
}

func TestLingeringCloseIsBounded(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		size  int
		want  time.Duration
	}{
		{"a client that goes on slowly", 300 * time.Millisecond, 1, lingerTimeout},
		{"a client that goes on for ever", 0, 1 << 20, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTime(t, echo, func(s *Server, p *peer, ended <-chan struct{}) {
				p.say("GET\r\n\r\n")
				p.answer("GET")
				began, some, sent := time.Now(), make([]byte, c.size), 0
				for {
					n, err := p.Write(some)
					if sent += n; err != nil {
						break
					}
					time.Sleep(c.every)
				}
				if took := time.Since(began); took < c.want || took > c.want+c.every {
					t.Errorf("connection ended after %v, want %v", took, c.want)
				}
				if sent > lingerBytes+c.size {
					t.Errorf("server read %d bytes, want at most %d", sent, lingerBytes+c.size)
				}
			})
		})
	}
}

func TestShutdownShortensLingeringClose(t *testing.T) {
	inTime(t, echo, func(s *Server, p *peer, ended <-chan struct{}) {
		p.say("GET\r\n\r\n")
		p.answer("GET")
		time.Sleep(time.Second / 4)
		over := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			_ = s.Shutdown(context.Background())
			over <- time.Since(began)
		}()
		for {
			if _, err := io.WriteString(p.Conn, "x"); err != nil {
				break
			}
			time.Sleep(time.Second / 3)
		}
		if took := <-over; took > 2*lingerIdle {
			t.Errorf("Shutdown took %v, want at most %v", took, 2*lingerIdle)
		}
	})
}

// Without 100 (Continue), the client may send its body or another request. The server cannot know which.
func TestUnreadBodyWithoutContinueEndsConnection(t *testing.T) {
	inTime(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		go func() { _, _ = r.Body.Read(make([]byte, 10)) }()
		time.Sleep(time.Second)
	}, func(_ *Server, p *peer, _ <-chan struct{}) {
		p.say("POST /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n")
		if res, _ := p.answer("POST"); !res.Close || res.StatusCode != http.StatusAccepted {
			t.Errorf("response = %s, close %v, want 202 and close", res.Status, res.Close)
		}
	})
}

// Most clients send the complete request before they read. They must receive the refusal.
func TestClientSendingWholeRequestReceivesRefusal(t *testing.T) {
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })})
	for _, head := range []string{"Content-Length: 5000000\r\n", "Transfer-Encoding: chunked\r\n\r\n4c4b40"} {
		for range 5 {
			p := s.dial(t)
			p.say("POST / HTTP/1.1\r\nHost: x\r\n" + head + "\r\n" + strings.Repeat("x", 5_000_000))
			if res, _ := p.answer("POST"); res.StatusCode != http.StatusForbidden {
				t.Errorf("response to a large body = %s, want 403", res.Status)
			}
			_ = p.Close()
		}
	}
	p := s.dial(t)
	p.say("GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("x", 5_000_000))
	if res, _ := p.answer("GET"); res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("response to a large header = %s, want 431", res.Status)
	}
}
