package http1

import (
	"bufio"
	"crypto/tls"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"
)

// counted is a connection that counts its calls.
type counted struct {
	net.Conn
	reads, writes, deadlines atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads.Add(1)
	return c.Conn.Read(p)
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func (c *counted) SetReadDeadline(at time.Time) error {
	c.deadlines.Add(1)
	return c.Conn.SetReadDeadline(at)
}

// A request costs one read, one write, no deadline and no goroutine.
func TestRequestCostsOneReadAndOneWrite(t *testing.T) {
	goroutines := 1 << 30 // The minimum over all handlers, because the runtime starts goroutines occasionally.
	s := New(Config{Logf: t.Logf, DisconnectCheckDelay: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		goroutines = min(goroutines, runtime.NumGoroutine())
		benchHandler(1<<10).ServeHTTP(w, r)
	})})
	near, far := net.Pipe()
	conn := &counted{Conn: far}
	ended := make(chan struct{})
	before := runtime.NumGoroutine() + 1
	go func() {
		defer close(ended)
		s.begin(conn, conn, nil, nil)()
	}()
	p := &peer{Conn: near, t: t, r: bufio.NewReader(near)}
	const n = 100
	for i := range n {
		p.say(loads[i%2].request)
		p.answer("GET")
	}
	if goroutines > before {
		t.Errorf("%d goroutines in the handlers, want at most %d", goroutines, before)
	}
	_ = near.Close()
	<-ended
	if r, w, d := conn.reads.Load(), conn.writes.Load(), conn.deadlines.Load(); r > n+1 || w > n || d > 2 {
		t.Errorf("%d reads, %d writes, %d deadlines for %d requests, want at most one read and write for each", r, w, d, n)
	}
}

func TestIdleConnectionReleasesLastRequest(t *testing.T) {
	var request weak.Pointer[http.Request]
	conns := make(chan *conn, 1)
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			request = weak.Make(r)
			conns <- w.(*response).x.conn
		}
	})})
	p := s.dial(t)
	head := "GET /large HTTP/1.1\r\nHost: x\r\n"
	for len(head) < 60_000 {
		head += "A: " + strings.Repeat("b", 200) + "\r\n"
	}
	p.say(head + "\r\n")
	p.answer("GET")
	p.say("G") // When this byte is read, the earlier request has ended.
	c := <-conns
	for deadline := time.Now().Add(30 * time.Second); request.Value() != nil || c.stage.Load() != readingHead; {
		if time.Now().After(deadline) {
			t.Fatal("last request is still in memory, want it collected")
		}
		runtime.GC()
	}
	_ = p.Close()
	at30(t, s.ended)
	if cap(c.in.buf) > readBufferSize || cap(c.lineEnds) > keptLineEnds {
		t.Errorf("idle connection keeps %d bytes and %d lines, want at most %d and %d", cap(c.in.buf), cap(c.lineEnds), readBufferSize, keptLineEnds)
	}
}

// TestAllocationsOfGETAreBounded bounds the allocations of a GET with ten headers and a response of 1 KB, including two of the handler.
func TestAllocationsOfGETAreBounded(t *testing.T) {
	s := start(t, Config{Handler: benchHandler(1 << 10), DisconnectCheckDelay: time.Hour})
	c, err := tls.Dial("tcp", s.address, &tls.Config{RootCAs: s.roots, ServerName: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := asker(t, c, loads[0].request)
	ask()
	most := 12.0
	if raceEnabled { // sync.Pool drops items at random.
		most = 30
	}
	if n := testing.AllocsPerRun(500, ask); n > most {
		t.Errorf("%v allocations, want at most %v", n, most)
	}
}
