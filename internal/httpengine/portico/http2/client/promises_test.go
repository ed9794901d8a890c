package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"portico.dev/internal/httpengine/engine"
)

// sent is the result of a RoundTrip that runs in the background.
type sent struct {
	resp *http.Response
	err  error
	done chan struct{}
}

func send(c *Conn, r *http.Request) *sent {
	s := &sent{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.resp, s.err = c.RoundTrip(r)
	}()
	return s
}

func TestRequestsAfterGoAwayAreUnprocessed(t *testing.T) {
	finish := make(chan struct{})
	c := connect(t, serve(t, nil, func(p *peer) {
		first, _ := p.request(), p.request()
		_ = p.WriteGoAway(first, http2.ErrCodeNo, nil)
		<-finish
		p.headers(first, false, ":status", "200")
		_ = p.WriteData(first, true, []byte("whole"))
		p.drain() // The client closes the connection when no stream is open.
	}))
	one := send(c, newRequest(t, http.MethodPost, "/", engine.NewBytesBody([]byte("1"))))
	wait(t, "the first is sent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.streams) == 1 })
	two := send(c, newRequest(t, http.MethodPost, "/", engine.NewBytesBody([]byte("2"))))
	<-two.done
	if kindOf(two.err) != engine.Unprocessed {
		t.Errorf("second request after GOAWAY: error = %v, want Unprocessed", two.err)
	}
	if c.Available() || c.Closed() {
		t.Errorf("connection after GOAWAY: available = %v, closed = %v, want neither", c.Available(), c.Closed())
	}
	if _, err := c.RoundTrip(newRequest(t, http.MethodPost, "/", nil)); kindOf(err) != engine.Unsent {
		t.Errorf("third request after GOAWAY: error = %v, want Unsent", err)
	}
	close(finish)
	<-one.done
	if one.err != nil || readAll(t, one.resp) != "whole" {
		t.Errorf("first request: error = %v, want a complete response", one.err)
	}
	c.Wait()
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("condition %q is still false after 30 seconds, want true", what)
		}
		<-tick.C
	}
}

func TestServerResetsAreReported(t *testing.T) {
	for _, test := range []struct {
		name string
		say  func(p *peer, id uint32)
		kind engine.ErrorKind // -1: a complete response
		body string
	}{
		{"refused", func(p *peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, engine.Refused, ""},
		{"reset", func(p *peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeInternal) }, engine.Reset, ""},
		{"reset after some of the body", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200")
			_ = p.WriteData(id, false, []byte("some"))
			_ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}, engine.Reset, "some"},
		{"no error after the whole answer", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200")
			_ = p.WriteData(id, true, []byte("whole"))
			_ = p.WriteRSTStream(id, http2.ErrCodeNo)
		}, -1, "whole"},
		{"no error without an answer", func(p *peer, id uint32) { _ = p.WriteRSTStream(id, http2.ErrCodeNo) }, engine.Reset, ""},
		{"the connection closes within a short response", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-length", "10")
			_ = p.WriteData(id, false, []byte("some"))
			_ = p.nc.Close()
		}, engine.Lost, ""},
		{"the connection closes within a long response", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-length", "100000")
			_ = p.WriteData(id, false, []byte("some"))
			_ = p.nc.Close()
		}, engine.Lost, "some"},
		{"interim responses, padding, trailers", func(p *peer, id uint32) {
			p.headers(id, false, ":status", "103", "link", "x")
			p.headers(id, false, ":status", "200", "content-length", "5")
			_ = p.WriteDataPadded(id, false, []byte("wh"), make([]byte, 100))
			_ = p.WriteDataPadded(id, false, []byte("ole"), make([]byte, 200))
			p.headers(id, true, "x-sum", "1")
		}, -1, "whole"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := connect(t, serve(t, nil, func(p *peer) { test.say(p, p.request()); p.drain() }))
			resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil))
			var body []byte
			if err == nil {
				body, err = io.ReadAll(resp.Body)
			}
			if kindOf(err) != test.kind || string(body) != test.body {
				t.Errorf("body = %q, error %v, want %q and kind %d", body, err, test.body, test.kind)
			}
			c.Close()
		})
	}
}

func TestHeaderTimeoutStartsAfterRequestIsSent(t *testing.T) {
	given := make(chan http2.ErrCode, 1)
	c := connect(t, serve(t, nil, func(p *peer) {
		p.request()
		code, _ := p.verdict()
		given <- code
		p.drain()
	}), func(c *engine.ClientConfig) {
		c.CheckInterval, c.HeaderTimeout = 5*time.Millisecond, 40*time.Millisecond
	})
	look(t, c, true)
	// The header timeout starts after the request is sent.
	reader, writer := io.Pipe()
	r := newRequest(t, http.MethodPost, "/", reader)
	upload := send(c, r)
	_, _ = writer.Write([]byte("x"))
	start := time.Now()
	time.AfterFunc(200*time.Millisecond, func() { _ = writer.Close() })
	<-upload.done
	if kindOf(upload.err) != engine.HeaderTimeout {
		t.Errorf("error of the request = %v, want HeaderTimeout", upload.err)
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("request failed after %s while it was sent, want at least 200ms", took)
	}
	if code := <-given; code != http2.ErrCodeCancel {
		t.Errorf("code of the reset = %s, want CANCEL", code)
	}
}

func TestSilentConnectionEndsAfterNumberOfChecks(t *testing.T) {
	answer := make(chan bool, 100)
	c := connect(t, serve(t, nil, func(p *peer) {
		for p.next(http2.FramePing) != nil {
			if <-answer {
				_ = p.WritePing(true, [8]byte{})
			}
		}
	}), func(c *engine.ClientConfig) {
		c.CheckInterval, c.PingAfter, c.PingTimeout = 250*time.Millisecond, 500*time.Millisecond, time.Second
		c.ProtocolTimeout = time.Hour // This server acknowledges nothing.
	})
	for range 3 { // the remaining frames of the start
		c.Check(false)
	}
	for range 100 {
		c.Check(false) // No request waits, so no PING is sent.
	}
	if c.Closed() {
		t.Fatal("idle connection closed without a PING, want it open")
	}
	answer <- true
	before := c.reads.Load()
	c.Check(true) // sends a PING
	wait(t, "the ping is answered", func() bool { return c.reads.Load() > before })
	c.Check(true)
	answer <- false
	for i := range 6 {
		if c.Closed() {
			t.Fatalf("connection closed after %d checks, want it open", i)
		}
		c.Check(true)
	}
	if !c.Closed() || !c.PingTimedOut() {
		t.Error("connection open after an unanswered PING, want it closed with PingTimedOut")
	}
	if _, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil)); kindOf(err) != engine.Unsent {
		t.Error(err)
	}
	c.Wait()
}

func TestRequestOnSilentConnectionFails(t *testing.T) {
	c := connect(t, serve(t, nil, func(p *peer) { p.drain() }), func(c *engine.ClientConfig) { c.PingTimeout = 100 * time.Millisecond })
	look(t, c, false)
	if _, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil)); kindOf(err) != engine.PingTimeout || !c.PingTimedOut() {
		t.Error(err)
	}
}

func TestMaxStreamsFollowsServerSettings(t *testing.T) {
	changed := make(chan struct{})
	c := connect(t, serve(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 7}}, func(p *peer) {
		<-changed
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1 << 31})
		p.drain()
	}))
	if n := c.MaxStreams(); n != 7 {
		t.Errorf("MaxStreams = %d, want 7", n)
	}
	close(changed)
	wait(t, "more are allowed", func() bool { return c.MaxStreams() == maxStreamsPerConn })
}

func TestServerWithoutSettingsIsRejected(t *testing.T) {
	for name, handle := range map[string]func(net.Conn){
		"nothing": func(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) },
		"the end": func(net.Conn) {},
		"another protocol": func(nc net.Conn) {
			_, _ = io.WriteString(nc, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_, _ = io.Copy(io.Discard, nc)
		},
		"PING before it": func(nc net.Conn) {
			_ = http2.NewFramer(nc, nc).WritePing(false, [8]byte{})
			_, _ = io.Copy(io.Discard, nc)
		},
		"an acknowledgment": func(nc net.Conn) { _ = http2.NewFramer(nc, nc).WriteSettingsAck(); _, _ = io.Copy(io.Discard, nc) },
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("tcp", listen(t, handle))
			if err != nil {
				t.Fatal(err)
			}
			limit := 30 * time.Second
			if name == "nothing" {
				limit = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err = New(ctx, nc, config())
			if kind, spoke := kindOf(err), name != "nothing" && name != "the end"; kind == -1 || (kind == engine.ProtocolViolation) != spoke {
				t.Errorf("New: kind %d, error %v, want ProtocolViolation only if the server sent data", kind, err)
			}
			if _, err := nc.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("write after New failed: error = %v, want net.ErrClosed", err)
			}
		})
	}
}

func TestUploadsWaitForServerWindows(t *testing.T) {
	t.Run("a body waits for those of the server", func(t *testing.T) {
		body := bytes.Repeat([]byte("0123456789"), 3000)
		for name, r := range map[string]*http.Request{
			"whole":    newRequest(t, http.MethodPost, "/", engine.NewBytesBody(body)),
			"streamed": newRequest(t, http.MethodPost, "/", bytes.NewReader(body)),
		} {
			t.Run(name, func(t *testing.T) {
				got := make(chan []byte, 1)
				c := connect(t, serve(t, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 100}}, func(p *peer) {
					id := p.request()
					var all []byte
					for {
						f := p.next(http2.FrameData)
						if f == nil {
							return
						}
						if all = append(all, f.bytes...); f.Flags.Has(http2.FlagDataEndStream) {
							break
						}
						if len(f.bytes) > 0 {
							_ = p.WriteWindowUpdate(id, 777)
						}
					}
					got <- all
					p.headers(id, true, ":status", "200")
					p.drain()
				}))
				resp, err := c.RoundTrip(r)
				if err != nil || resp.StatusCode != 200 {
					t.Fatal(err)
				}
				if all := <-got; !bytes.Equal(all, body) {
					t.Errorf("body = %d bytes, want the %d bytes sent", len(all), len(body))
				}
				c.Close()
			})
		}
	})
	t.Run("an answer needs no window of the request", func(t *testing.T) {
		given := make(chan http2.ErrCode, 1)
		c := connect(t, serve(t, []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1}}, func(p *peer) {
			id := p.request()
			p.headers(id, false, ":status", "413")
			_ = p.WriteData(id, true, []byte("no"))
			code, _ := p.verdict()
			given <- code
			p.drain()
		}))
		resp, err := c.RoundTrip(newRequest(t, http.MethodPost, "/", engine.NewBytesBody(make([]byte, 30_000))))
		if err != nil || readAll(t, resp) != "no" {
			t.Errorf("early response: error = %v, want the body \"no\"", err)
		}
		if code := <-given; code != http2.ErrCodeNo {
			t.Errorf("code of the reset = %s, want NO_ERROR", code)
		}
	})
	t.Run("padding is given back as it comes", func(t *testing.T) {
		const frames = 3 * streamWindow / 256
		c := connect(t, serve(t, nil, func(p *peer) {
			id := p.request()
			p.headers(id, false, ":status", "200")
			for i := range frames {
				if p.WriteDataPadded(id, i == frames-1, []byte("x"), make([]byte, 255)) != nil {
					return
				}
			}
			p.drain()
		}))
		resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil))
		if err != nil || len(readAll(t, resp)) != frames {
			t.Error(err)
		}
	})
	t.Run("who does not read keeps nobody waiting", func(t *testing.T) {
		c := connect(t, library(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/endless" {
				for {
					if _, err := w.Write(make([]byte, 32<<10)); err != nil {
						return
					}
				}
			}
			_, _ = io.WriteString(w, strings.Repeat("x", 3<<20))
		})))
		var unread []*http.Response
		for range 20 {
			resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/endless", nil))
			if err != nil {
				t.Fatal(err)
			}
			unread = append(unread, resp)
		}
		resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil))
		if err != nil || len(readAll(t, resp)) != 3<<20 {
			t.Error(err)
		}
		for _, resp := range unread {
			s := resp.Body.(*stream)
			wait(t, "its window is full", func() bool { n, _ := s.body.Buffered(); return n >= streamWindow*9/10 })
			if n, _ := s.body.Buffered(); n > streamWindow {
				t.Errorf("%d bytes of one response buffered, want at most %d", n, streamWindow)
			}
			_ = resp.Body.Close()
		}
	})
}

// brokenBody is a body that fails.
type brokenBody struct{ closed chan struct{} }

var errBroken = errors.New("the client's body broke")

func (b *brokenBody) Read([]byte) (int, error) { return 0, errBroken }
func (b *brokenBody) Close() error             { close(b.closed); return nil }

func TestFailingBodyResetsItsStream(t *testing.T) {
	given := make(chan http2.ErrCode, 1)
	c := connect(t, serve(t, nil, func(p *peer) {
		p.request()
		code, _ := p.verdict()
		given <- code
		p.drain()
	}))
	body := &brokenBody{make(chan struct{})}
	_, err := c.RoundTrip(newRequest(t, http.MethodPost, "/", body))
	if kindOf(err) != engine.BodyError || !errors.Is(err, errBroken) {
		t.Errorf("RoundTrip with a failing body: error = %v, want BodyError", err)
	}
	<-body.closed
	if code := <-given; code != http2.ErrCodeCancel {
		t.Errorf("code of the reset = %s, want CANCEL", code)
	}
}

func TestInvalidRequestsAreNotSent(t *testing.T) {
	c := connect(t, library(t, http.NotFoundHandler()))
	for name, change := range map[string]func(*http.Request){
		"a header name":    func(r *http.Request) { r.Header["X Y"] = []string{"z"} },
		"a header value":   func(r *http.Request) { r.Header["X"] = []string{"a\r\nb: c"} },
		"a path":           func(r *http.Request) { r.URL.Opaque = "/a b" },
		"a host":           func(r *http.Request) { r.Host = "a b" },
		"a method":         func(r *http.Request) { r.Method = "GET /" },
		"an upgrade":       func(r *http.Request) { r.Header["Upgrade"] = []string{"websocket"} },
		"a trailer":        func(r *http.Request) { r.Trailer = http.Header{"Content-Length": {"1"}} },
		"no URL":           func(r *http.Request) { r.URL = nil },
		"transfer coding":  func(r *http.Request) { r.Header["Transfer-Encoding"] = []string{"gzip"} },
		"a pseudo header":  func(r *http.Request) { r.Header[":path"] = []string{"/other"} },
		"header in Kelvin": func(r *http.Request) { r.Header["X-\u212a"] = []string{"z"} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequest(t, http.MethodGet, "/", nil)
			change(r)
			if _, err := c.RoundTrip(r); kindOf(err) != engine.InvalidRequest {
				t.Errorf("RoundTrip: error = %v, want InvalidRequest", err)
			}
		})
	}
	if c.Closed() {
		t.Error("connection closed by invalid requests, want it open")
	}
}

func TestReadyReportsWhetherReadBlocks(t *testing.T) {
	next := make(chan struct{})
	c := connect(t, serve(t, nil, func(p *peer) {
		id := p.request()
		p.headers(id, false, ":status", "200")
		<-next
		_ = p.WriteData(id, false, []byte("some"))
		<-next
		_ = p.WriteData(id, true, nil)
		p.drain()
	}))
	resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	ready := resp.Body.(engine.ResponseBody).Ready
	if ready() {
		t.Error("Ready before data arrived = true, want false")
	}
	next <- struct{}{}
	wait(t, "ready", ready)
	if n, err := resp.Body.Read(make([]byte, 10)); n != 4 || err != nil || ready() {
		t.Errorf("Read = %d, %v, want 4 bytes and no more data ready", n, err)
	}
	next <- struct{}{}
	wait(t, "ready for the end", ready)
	if n, err := resp.Body.Read(make([]byte, 10)); n != 0 || err != io.EOF {
		t.Errorf("Read at the end = %d, %v, want 0 and io.EOF", n, err)
	}
}

// ending is a context that calls a function when it ends.
type ending struct {
	context.Context
	mu     sync.Mutex
	told   func()
	offs   int
	asked  bool // A caller used Done.
	reason error
}

func (e *ending) OnEnd(f func()) { e.mu.Lock(); e.told = f; e.mu.Unlock() }
func (e *ending) OffEnd() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.offs++
	had := e.told != nil
	e.told = nil
	return had
}
func (e *ending) Done() <-chan struct{} {
	e.mu.Lock()
	e.asked = true
	e.mu.Unlock()
	return e.Context.Done()
}
func (e *ending) Err() error { e.mu.Lock(); defer e.mu.Unlock(); return e.reason }

func TestContextCallbackIsUsedAndRemoved(t *testing.T) {
	c := connect(t, library(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, "ok")
	})))
	e := &ending{Context: context.Background()}
	resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil).WithContext(e))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "ok" {
		t.Fatalf("body = %q, error %v, want \"ok\" and no error", text, err)
	}
	if e.told != nil || e.offs == 0 || e.asked {
		t.Errorf("context after the response = %+v, want its callback removed and Done unused", e)
	}
	e = &ending{Context: context.Background()}
	s := send(c, newRequest(t, http.MethodGet, "/hold", nil).WithContext(e))
	wait(t, "it is sent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.streams) == 1 })
	e.mu.Lock()
	end := e.told
	e.reason = context.Canceled
	e.mu.Unlock()
	end()
	<-s.done
	if kindOf(s.err) != engine.Canceled || !errors.Is(s.err, context.Canceled) {
		t.Errorf("request with an ended context: error = %v, want Canceled", s.err)
	}
}

func TestCloseEndsAllRequests(t *testing.T) {
	ended := make(chan struct{})
	c := connect(t, serve(t, nil, func(p *peer) {
		p.headers(p.request(), false, ":status", "200")
		p.drain()
	}), func(c *engine.ClientConfig) { c.OnClose = func() { close(ended) } })
	resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	waiting := send(c, newRequest(t, http.MethodGet, "/", nil))
	wait(t, "both are there", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.streams) == 2 })
	c.Close()
	<-waiting.done
	if kindOf(waiting.err) != engine.Lost {
		t.Errorf("request after Close: error = %v, want Lost", waiting.err)
	}
	if _, err := io.ReadAll(resp.Body); kindOf(err) != engine.Lost {
		t.Error(err)
	}
	<-ended
	c.Wait()
}

// The header of a short response waits for the body, but not for a body that does not arrive.
func TestShortResponseHeaderDoesNotWaitForSlowBody(t *testing.T) {
	rest := make(chan struct{})
	c := connect(t, serve(t, nil, func(p *peer) {
		id := p.request()
		p.headers(id, false, ":status", "200", "content-length", "4")
		<-rest
		_ = p.WriteData(id, true, []byte("late"))
		p.drain()
	}))
	s := send(c, newRequest(t, http.MethodGet, "/", nil))
	wait(t, "the head is there", func() bool { return c.heldCount.Load() == 1 })
	select {
	case <-s.done:
		t.Fatal("RoundTrip returned before the body or a check, want it to wait")
	default:
	}
	c.Check(false)
	<-s.done
	if s.err != nil || s.resp.ContentLength != 4 || c.heldCount.Load() != 0 {
		t.Fatalf("RoundTrip after a check = %+v, error %v, want a response of 4 bytes", s.resp, s.err)
	}
	close(rest)
	if body := readAll(t, s.resp); body != "late" {
		t.Errorf("body = %q, want \"late\"", body)
	}
}
