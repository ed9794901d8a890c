package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// at30 fails the test if nothing arrives within 30 seconds.
func at30[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		t.Fatal("nothing arrived within 30 seconds, want a value")
	}
	return v
}

func TestShutdown(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			w.(http.Flusher).Flush()
		}
		if r.URL.Path != "/a" {
			began <- struct{}{}
			<-goOn
		}
		echo(w, r)
	})})
	waiting, unheard, slow, begun := s.dial(t), s.dial(t), s.dial(t), s.dial(t)
	waiting.say(get)
	waiting.answer("GET")
	slow.say("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" + get)
	begun.say("GET /begun HTTP/1.1\r\nHost: x\r\n\r\n" + get)
	at30(t, began)
	at30(t, began)
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(soon(t)) }()
	waiting.ends()
	unheard.ends()
	late := s.dial(t)
	late.ends()
	select {
	case err := <-ended:
		t.Fatalf("Shutdown returned %v with an active request, want it to wait", err)
	default:
	}
	close(goOn)
	if res, got := slow.answer("GET"); got != "GET /slow " || !res.Close {
		t.Errorf("response = %q, close %v, want \"GET /slow \" and close", got, res.Close)
	}
	slow.ends()
	if res, got := begun.answer("GET"); got != "GET /begun " || res.Close {
		t.Errorf("response = %q, close %v, want \"GET /begun \" without close", got, res.Close)
	}
	begun.ends()
	if err := at30(t, ended); err != nil {
		t.Error(err)
	}
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	began := make(chan struct{})
	s := start(t, Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
	})})
	p := s.dial(t)
	p.say(get)
	at30(t, began)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); err != context.Canceled {
		t.Error(err)
	}
	s.Close() // ends the handler's context
	at30(t, s.ended)
	if err := s.Shutdown(soon(t)); err != nil {
		t.Error(err)
	}
}

func TestHijack(t *testing.T) {
	const sent = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: y\r\n\r\n"
	type taken struct {
		net.Conn
		rw *bufio.ReadWriter
	}
	var calls int
	got := make(chan taken, 1)
	left, over := make(chan struct{}), make(chan error, 1)
	server := New(Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := w.(*response).x
		for x.conn.net.(*counted).reads.Load() < 2 { // Then the disconnect check reads and must be stopped.
			x.conn.server.disconnects.check()
			runtime.Gosched()
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil || calls != 1 {
			t.Errorf("Hijack: error = %v with %d callbacks, want no error and 1", err, calls)
			return
		}
		if _, err := w.Write([]byte("x")); err != http.ErrHijacked {
			t.Error(err)
		}
		if _, _, err := http.NewResponseController(w).Hijack(); err != http.ErrHijacked {
			t.Error(err)
		}
		got <- taken{conn, rw}
		<-left
		over <- r.Context().Err()
	}), DisconnectCheckDelay: time.Hour, Logf: t.Logf})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(client, sent+"before"); err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn := &counted{Conn: near}
		server.begin(conn, conn, nil, func() { calls++ })()
	}()
	h := at30(t, got)
	if n := h.rw.Reader.Buffered(); n != len("before") {
		t.Errorf("%d bytes buffered, want %d", n, len("before"))
	}
	if err := server.Shutdown(soon(t)); err != nil { // Shutdown does not wait for hijacked connections.
		t.Error(err)
	}
	_, _ = io.WriteString(client, "after")
	room := make([]byte, len("beforeafter"))
	if _, err := io.ReadFull(h.rw, room); err != nil || string(room) != "beforeafter" {
		t.Errorf("read = %q, error %v, want \"beforeafter\"", room, err)
	}
	_, _ = h.rw.WriteString("back")
	_ = h.rw.Flush()
	if _, err := io.ReadFull(client, room[:4]); err != nil || string(room[:4]) != "back" {
		t.Errorf("read of the client = %q, error %v, want \"back\"", room[:4], err)
	}
	_ = client.Close()
	if n, err := h.rw.Read(room); n != 0 || err == nil {
		t.Errorf("Read after the client closed = %d, %v, want 0 and an error", n, err)
	}
	close(left)
	if err := at30(t, over); err != nil {
		t.Errorf("error after the client closed = %v, want none: the handler owns the connection", err)
	}
	at30(t, ended)
	if _, err := h.Conn.Write([]byte("x")); err != nil { // The connection is open.
		t.Error(err)
	}
	_ = h.Conn.Close()
}

// listened reports whether the disconnect check reads x's connection.
func listened(x *exchange) bool {
	e := &x.conn.server.disconnects
	e.mu.Lock()
	defer e.mu.Unlock()
	return x.watch.ended != nil
}

func TestDisconnectCheckIsStoppedDuringBody(t *testing.T) {
	s := start(t, Config{DisconnectCheckDelay: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := w.(*response).x
		look := func() bool {
			x.conn.server.disconnects.check()
			x.conn.server.disconnects.check()
			return listened(x)
		}
		if r.Method == http.MethodPost && look() {
			t.Error("disconnect check reads during the body, want it stopped")
		}
		echo(w, r)
		if !look() {
			t.Error("disconnect check is stopped after the body, want it active")
		}
	})})
	p := s.dial(t)
	for range 3 {
		p.say("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
		p.answer("POST")
		p.say(get)
		p.answer("GET")
	}
}
