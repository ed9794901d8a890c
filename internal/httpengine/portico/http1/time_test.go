package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// inTime runs f in a synctest bubble with a client of a server with one connection. Channels must be made in the bubble.
func inTime(t *testing.T, handle http.HandlerFunc, f func(s *Server, p *peer, ended <-chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Handler: handle, Logf: t.Logf})
		near, far := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.begin(far, far, nil, func() {})()
		}()
		f(s, &peer{Conn: near, t: t, r: bufio.NewReader(near)}, ended)
		_ = near.Close()
		<-ended
	})
}

// endsAfter reads until the connection ends and returns the elapsed time.
func (p *peer) endsAfter() (string, time.Duration) {
	began := time.Now()
	rest, _ := io.ReadAll(p.r)
	return string(rest), time.Since(began)
}

func TestConnectionEndsAfterHeaderOrIdleTimeout(t *testing.T) {
	for _, c := range []struct {
		name, sent string
		answers    int
		then       string
		want       time.Duration
	}{
		{"nothing is ever said", "", 0, "", 10 * time.Second},
		{"a first head that is not whole", "GET / HT", 0, "", 10 * time.Second},
		{"no second request", get, 1, "", 90 * time.Second},
		{"a second head that is not whole", get + "GET / HT", 1, "", 10 * time.Second},
		{"a head that ends in its middle", get + "GET / HTTP/1.1\r\nHost: x\r\n", 1, "", 10 * time.Second},
		{"an empty line, and no more", get, 1, "\r\n", 10 * time.Second},
		{"a head that begins late", get, 1, "GET / HTTP/1.1\r\nHost:", 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTime(t, echo, func(_ *Server, p *peer, _ <-chan struct{}) {
				go func() { _, _ = io.WriteString(p.Conn, c.sent) }()
				for range c.answers {
					p.answer("GET")
				}
				if c.then != "" {
					time.Sleep(time.Minute)
					p.say(c.then)
				}
				if rest, took := p.endsAfter(); rest != "" || took != c.want {
					t.Errorf("read = %q after %v, want the end after %v", rest, took, c.want)
				}
			})
		})
	}
}

// An old idle deadline is renewed. A recent one is kept.
func TestIdleDeadlineIsRenewedOnlyWhenOld(t *testing.T) {
	inTime(t, echo, func(_ *Server, p *peer, _ <-chan struct{}) {
		ask := func() {
			p.say(get)
			p.answer("GET")
		}
		ask()
		time.Sleep(10 * time.Second)
		ask() // 80 s of 90 s are left, which is more than 7/8.
		time.Sleep(79 * time.Second)
		ask() // 1 s was left.
		if _, took := p.endsAfter(); took != 90*time.Second {
			t.Errorf("connection ended after %v, want 1m30s", took)
		}
	})
}

func TestIdleDeadlineDoesNotApplyToBody(t *testing.T) {
	inTime(t, echo, func(_ *Server, p *peer, _ <-chan struct{}) {
		p.say(get)
		p.answer("GET")
		p.say("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
		time.Sleep(time.Hour)
		p.say("a")
		time.Sleep(time.Hour)
		p.say("b")
		if _, got := p.answer("POST"); got != "POST /b ab" {
			t.Errorf("response = %q, want \"POST /b ab\"", got)
		}
		if _, took := p.endsAfter(); took < 70*time.Second || took > 90*time.Second {
			t.Errorf("connection ended after %v, want 1m10s to 1m30s", took)
		}
	})
}

func TestIdleDeadlineDoesNotApplyToHandler(t *testing.T) {
	inTime(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Hour)
		if r.Context().Err() != nil {
			t.Error("request context ended with the idle deadline, want it active")
		}
		echo(w, r)
	}, func(_ *Server, p *peer, _ <-chan struct{}) {
		for range 3 {
			p.say(get)
			if _, got := p.answer("GET"); got != "GET /a " {
				t.Errorf("response = %q, want \"GET /a \"", got)
			}
		}
	})
}

func TestDisconnectCancelsHandler(t *testing.T) {
	for _, c := range []struct{ name, sent string }{
		{"without a body", get},
		{"with a body that is read", "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"},
		{"with a body in chunks", "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var heard chan time.Duration
			inTime(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				began := time.Now()
				<-r.Context().Done()
				heard <- time.Since(began)
			}, func(_ *Server, p *peer, _ <-chan struct{}) {
				heard = make(chan time.Duration, 1)
				p.say(c.sent)
				_ = p.Close()
				if took := <-heard; took < 50*time.Millisecond || took > 100*time.Millisecond {
					t.Errorf("handler noticed the disconnect after %v, want 50ms to 100ms", took)
				}
			})
		})
	}
}

func TestLateDisconnectCancelsHandler(t *testing.T) {
	var heard chan time.Time
	inTime(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/a" {
			<-r.Context().Done()
			heard <- time.Now()
		}
	}, func(_ *Server, p *peer, _ <-chan struct{}) {
		heard = make(chan time.Time, 1)
		p.say(get) // sets the idle deadline
		p.answer("GET")
		p.say("GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(time.Hour)
		left := time.Now()
		_ = p.Close()
		if took := (<-heard).Sub(left); took != 0 {
			t.Errorf("handler noticed the disconnect %v late, want at once", took)
		}
	})
}

func TestDisconnectEndsBodyReadAndCancelsHandler(t *testing.T) {
	var ended chan error
	inTime(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		ended <- err
		<-r.Context().Done()
		ended <- r.Context().Err()
	}, func(_ *Server, p *peer, _ <-chan struct{}) {
		ended = make(chan error, 2)
		p.say("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
		_ = p.Close()
		if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		<-ended
	})
}

// Bytes that arrive while a handler runs belong to the next request. They are not a disconnect.
func TestBytesReceivedDuringHandlerAreKept(t *testing.T) {
	inTime(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second)
		if r.Context().Err() != nil {
			t.Error("request context ended when the next request arrived, want it active")
		}
		echo(w, r)
	}, func(_ *Server, p *peer, _ <-chan struct{}) {
		p.say(get)
		time.Sleep(500 * time.Millisecond)
		p.say("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe")
		go func() { _, _ = io.WriteString(p.Conn, "llo") }() // The second handler is the first to read it.
		for _, want := range []string{"GET /a ", "POST /b hello"} {
			if _, got := p.answer("GET"); got != want {
				t.Errorf("response = %q, want %q", got, want)
			}
		}
	})
}

func TestHandlerDeadlinesApply(t *testing.T) {
	inTime(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		control := http.NewResponseController(w)
		if err := control.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Error(err)
		}
		began := time.Now()
		room := make([]byte, 10)
		n, err := r.Body.Read(room)
		if n != 1 || err != nil {
			t.Errorf("first Read = %d, %v, want 1 byte", n, err)
		}
		if _, err := r.Body.Read(room); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("Read with a deadline: error = %v after %v, want os.ErrDeadlineExceeded after 1s", err, time.Since(began))
		}
		if err := control.SetReadDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		if n, err := r.Body.Read(room); n != 1 || err != io.EOF {
			t.Errorf("Read without a deadline = %d, %v, want 1 byte and io.EOF", n, err)
		}
	}, func(_ *Server, p *peer, _ <-chan struct{}) {
		p.say("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
		time.Sleep(time.Minute)
		p.say("b")
		p.answer("POST")
		p.say(get) // The connection is usable again.
		p.answer("GET")
	})
}

// An unread body may be drained for the next request, but only for a limited time.
func TestUnreadBodyIsDrainedForLimitedTime(t *testing.T) {
	for _, c := range []struct {
		name, head, rest string
		closes           bool // The response has Connection: close.
		took             time.Duration
	}{
		{"little of it", "Content-Length: 5", "hello", false, -1},
		{"chunks that are there", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b", "", false, -1},
		{"it never comes", "Content-Length: 5", "", false, 11 * time.Second},
		{"more than is read", "Content-Length: 300000", "", true, time.Second},
		{"more than is known, in chunks", "Transfer-Encoding: chunked", "61a80\r\n" + strings.Repeat("x", 300_000), true, time.Second},
		{"chunks that come a little later", "Transfer-Encoding: chunked\r\n\r\n9\r\nhello", "", false, 0},
		{"chunks that never come", "Transfer-Encoding: chunked", "", true, time.Second},
		{"far more than is read", "Content-Length: 5000000", strings.Repeat("x", 5_000_000), true, time.Second},
		{"the client waits to be asked", "Content-Length: 5\r\nExpect: 100-continue", "", true, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTime(t, func(http.ResponseWriter, *http.Request) {}, func(_ *Server, p *peer, _ <-chan struct{}) {
				p.say("POST /b HTTP/1.1\r\nHost: x\r\n" + c.head + "\r\n\r\n")
				if c.took == 0 {
					time.Sleep(chunkDrainTimeout / 2)
					p.say("\r\n0\r\n\r\n")
				}
				res, _ := p.answer("POST")
				if res.Close != c.closes {
					t.Errorf("response: close = %v, want %v", res.Close, c.closes)
				}
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					if _, err := io.WriteString(p.Conn, c.rest); err != nil {
						t.Error(err)
					}
				}()
				if c.took <= 0 {
					<-sent
					p.say(get)
					p.answer("GET")
				} else if rest, took := p.endsAfter(); rest != "" || took > c.took || took < c.took/2 {
					t.Errorf("read = %q after %v, want the end after %v", rest, took, c.took)
				}
				_ = p.Close()
				<-sent
			})
		})
	}
}

// A deadline between two chunks or in trailers does not end the body. Later bytes keep their meaning.
func TestDeadlineBetweenChunksDoesNotEndBody(t *testing.T) {
	inTime(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		var got []byte
		room := make([]byte, 100)
		for {
			_ = control.SetReadDeadline(time.Now().Add(time.Second))
			n, err := r.Body.Read(room)
			got = append(got, room[:n]...)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				if err != io.EOF {
					t.Error(err)
				}
				break
			}
		}
		_, _ = io.WriteString(w, string(got)+r.Trailer.Get("A")+r.Trailer.Get("C"))
	}, func(_ *Server, p *peer, _ <-chan struct{}) {
		p.say("POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
		for _, c := range "2;x=y\r\nab\r\n1\r\nc\r\n0\r\nA: d\r\nC: e\r\n\r\n" {
			time.Sleep(1500 * time.Millisecond)
			p.say(string(c))
		}
		if _, got := p.answer("POST"); got != "abcde" {
			t.Errorf("response = %q, want \"abcde\"", got)
		}
	})
}

// A goroutine may still read the body after the handler has returned, for example a transport after an early response.
func TestBodyReadAfterHandlerFailsWithDeadline(t *testing.T) {
	var over chan error
	inTime(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			go func() {
				_, err := r.Body.Read(make([]byte, 10))
				over <- err
			}()
			time.Sleep(time.Second)
		}
		echoPath(w, r)
	}, func(_ *Server, p *peer, _ <-chan struct{}) {
		over = make(chan error, 1)
		p.say("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
		p.answer("POST")
		if err := <-over; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		p.say("hello" + get)
		if _, got := p.answer("GET"); got != "/a" {
			t.Errorf("response = %q, want \"/a\"", got)
		}
	})
}

func echoPath(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }
