package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Actions of a handler and the resulting frames.
func TestHandlerActionsProduceExpectedFrames(t *testing.T) {
	long := strings.Repeat("z", 10_000)
	for _, test := range []struct {
		name    string
		request []string
		handler http.HandlerFunc
		want    string // status, body, reset
		header  map[string]string
		trailer map[string]string
	}{
		{name: "nothing", handler: func(http.ResponseWriter, *http.Request) {}, want: "200 0 bytes", header: map[string]string{"content-length": "0", "content-type": ""}},
		{name: "a small body", handler: say("<html>"), want: "200 6 bytes", header: map[string]string{"content-length": "6", "content-type": "text/html; charset=utf-8"}},
		{name: "a body that is too large to count", handler: say(long), want: "200 10000 bytes", header: map[string]string{"content-length": "", "content-type": "text/plain; charset=utf-8"}},
		{name: "a flush", handler: func(w http.ResponseWriter, _ *http.Request) {
			say("a")(w, nil)
			w.(http.Flusher).Flush()
			say("b")(w, nil)
		},
			want: "200 2 bytes", header: map[string]string{"content-length": ""}},
		{name: "HEAD", request: []string{":method", "HEAD", ":scheme", "https", ":path", "/"}, handler: say("<html>"), want: "200 0 bytes", header: map[string]string{"content-length": "6"}},
		{name: "HEAD of a long body", request: []string{":method", "HEAD", ":scheme", "https", ":path", "/"}, handler: say(long), want: "200 0 bytes", header: map[string]string{"content-length": ""}},
		{name: "204", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
				panic(err)
			}
		}, want: "204 0 bytes", header: map[string]string{"content-length": "", "content-type": ""}},
		{name: "304 of something long", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(304)
		}, want: "304 0 bytes", header: map[string]string{"content-length": ""}},
		{name: "more than declared", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "abc")
			if _, err := io.WriteString(w, "d"); !errors.Is(err, http.ErrContentLength) {
				panic(err)
			}
		}, want: "200 3 bytes", header: map[string]string{"content-length": "3"}},
		{name: "a header that changes too late", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("A", "1")
			w.WriteHeader(200)
			w.Header().Set("A", "2")
			w.Header().Set("B", "2")
			w.WriteHeader(500)
		}, want: "200 0 bytes", header: map[string]string{"a": "1", "b": ""}},
		{name: "headers that nobody may send", handler: func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Connection", "keep-alive")
			h.Set("Keep-Alive", "1")
			h.Set("Upgrade", "x")
			h.Set("Transfer-Encoding", "chunked")
			h["Bad Name"] = []string{"x"}
			h.Set("Bad-Value", "a\nb")
			h["Content-Length"] = []string{"none"}
			h["Date"] = nil
		}, want: "200 0 bytes", header: map[string]string{"connection": "", "keep-alive": "", "upgrade": "", "transfer-encoding": "", "bad name": "", "bad-value": "", "content-length": "0", "date": ""}},
		{name: "trailers", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "A, Content-Length")
			_, _ = io.WriteString(w, "x")
			w.Header().Set("A", "1")
			w.Header().Set(http.TrailerPrefix+"b", "2")
		}, want: "200 1 bytes", header: map[string]string{"trailer": "A, Content-Length", "a": ""}, trailer: map[string]string{"a": "1", "b": "2"}},
		{name: "trailers that never came", handler: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Trailer", "A") }, want: "200 0 bytes"},
		{name: "interim answers", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "x")
			w.WriteHeader(101)
			w.WriteHeader(103)
			w.WriteHeader(102)
			w.WriteHeader(201)
		}, want: "201 0 bytes 103 102", header: map[string]string{"link": "x"}},
		{name: "an abort", handler: func(w http.ResponseWriter, _ *http.Request) {
			say("half")(w, nil)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, want: "200 4 bytes INTERNAL_ERROR"},
		{name: "a panic", handler: func(http.ResponseWriter, *http.Request) { panic("x") }, want: " 0 bytes INTERNAL_ERROR"},
		{name: "a status that is none", handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(99) }, want: " 0 bytes INTERNAL_ERROR"},
		{name: "a goroutine that ends", handler: func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, want: " 0 bytes INTERNAL_ERROR"},
		{name: "a write deadline that has passed", handler: func(w http.ResponseWriter, _ *http.Request) {
			say("x")(w, nil)
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now())
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, os.ErrDeadlineExceeded) {
				panic(err)
			}
		}, want: " 0 bytes INTERNAL_ERROR"},
		{name: "a write deadline that comes", handler: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			<-r.Context().Done()
		}, want: " 0 bytes INTERNAL_ERROR"},
		{name: "a write deadline that is taken back", handler: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour))
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		}, want: "200 0 bytes"},
		{name: "a body that is not read", request: post, handler: say("no"), want: "200 2 bytes NO_ERROR"},
		{name: "a read deadline", request: post, handler: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, err := r.Body.Read(make([]byte, 1))
			fmt.Fprint(w, errors.Is(err, os.ErrDeadlineExceeded))
		}, want: "200 4 bytes NO_ERROR"},
		{name: "100 (Continue)", request: append(post, "expect", "100-continue"), handler: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = r.Body.Read(make([]byte, 1))
		}, want: "200 0 bytes NO_ERROR 100"},
		{name: "100 (Continue) too late", request: append(post, "expect", "100-continue"), handler: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(400)
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = r.Body.Read(make([]byte, 1))
		}, want: "400 0 bytes NO_ERROR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, Config{Handler: test.handler, Logf: func(string, ...any) {}})
			p := s.dial(t)
			p.open(1, len(test.request) == 0 || test.request[1] == "HEAD", test.request...)
			a := p.answers()
			got := a.wait(1)
			said := fmt.Sprintf("%s %d bytes", got.status, len(got.body))
			if got.reset == 0 && strings.Contains(test.want, "NO_ERROR") {
				said += " " + http2.ErrCodeNo.String()
				for { // after the end of the response
					if f := next[*http2.RSTStreamFrame](p); f == nil || f.ErrCode == http2.ErrCodeNo {
						break
					}
				}
			} else if got.reset != 0 {
				said += " " + got.reset.String()
			}
			for _, code := range got.interim {
				said += " " + code
			}
			if said != test.want {
				t.Errorf("response = %q, want %q", said, test.want)
			}
			for name, want := range test.header {
				if value := strings.Join(got.header[textproto.CanonicalMIMEHeaderKey(name)], ","); value != want {
					t.Errorf("header %s = %q, want %q", name, value, want)
				}
			}
			for name, want := range test.trailer {
				if value := got.trailer.Get(name); value != want {
					t.Errorf("trailer %s = %q, want %q", name, value, want)
				}
			}
			if len(test.trailer) != len(got.trailer) {
				t.Errorf("trailers = %v, want %v", got.trailer, test.trailer)
			}
		})
	}
}

func say(what string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, what) }
}

// A request in its handler.
func TestHandlersReceiveSentRequest(t *testing.T) {
	seen := make(chan *http.Request, 1)
	read := make(chan string, 1)
	httpServer := &http.Server{ReadHeaderTimeout: time.Second}
	s := start(t, Config{BaseServer: httpServer, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.Context().Value(http.ServerContextKey) != httpServer || r.Context().Value(http.LocalAddrContextKey).(net.Addr).String() == "" {
			t.Error("request context lacks the server or the local address, want both")
		}
		read <- fmt.Sprintf("%s %v", body, err)
		seen <- r
	})})
	p := s.dial(t)
	p.open(1, false, ":method", "PUT", ":scheme", "https", ":authority", "host:1", ":path", "/a%2fb/c?d=e&f", "content-length", "3",
		"cookie", "a=b", "cookie", "c=d", "trailer", "x-t", "x-many", "1", "x-many", "2", "te", "trailers")
	p.must(p.WriteDataPadded(1, false, []byte("abc"), make([]byte, 100)))
	p.block.Reset()
	p.fieldsOnly("x-t", "1", "x-other", "2")
	p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block.Bytes(), EndHeaders: true, EndStream: true}))
	r := <-seen
	got := fmt.Sprintf("%s %s|%s|%s|%s %s %s %d %v %v %v %v", r.Method, r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.RequestURI, r.Host, r.Proto,
		r.ContentLength, r.Header, r.Trailer, r.TLS != nil && r.TLS.HandshakeComplete, r.RemoteAddr != "")
	const want = "PUT /a/b/c|/a%2fb/c|d=e&f|/a%2fb/c?d=e&f host:1 HTTP/2.0 3 map[Content-Length:[3] Cookie:[a=b; c=d] Te:[trailers] X-Many:[1 2]] map[X-T:[1]] true true"
	if body := <-read; got != want || body != "abc <nil>" {
		t.Errorf("request = %s %q\nwant %s", got, body, want)
	}
	p.open(3, true, ":method", "CONNECT", ":authority", "host:1")
	<-read
	if r := <-seen; r.URL.Host != "host:1" || r.RequestURI != "host:1" || r.URL.Path != "" || r.Body != http.NoBody || r.ContentLength != 0 {
		t.Errorf("CONNECT request = %+v, want host:1 without a path and a body", r)
	}
}

// The context of a request ends with the first end of the request, the stream or the connection, and wakes its waiters.
func TestContextEndsWithRequestStreamOrConnection(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*peer)
	}{
		{"a reset", func(p *peer) { p.must(p.WriteRSTStream(1, http2.ErrCodeCancel)) }},
		{"the connection", func(p *peer) { _ = p.conn.Close() }},
		{"a fault of the stream", func(p *peer) { p.must(p.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4))) }},
		{"a fault of the connection", func(p *peer) { p.must(p.WriteRawFrame(http2.FramePing, 0, 0, nil)) }},
		{"the handler", func(p *peer) { p.must(p.WriteData(1, true, nil)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ended, stopped := make(chan string, 4), make(chan bool, 1)
			s := start(t, Config{GoAwayGrace: 100 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				child, cancel := context.WithCancel(r.Context())
				context.AfterFunc(child, func() { ended <- "child"; cancel() })
				context.AfterFunc(r.Context(), func() { ended <- "function" })
				stopped <- context.AfterFunc(r.Context(), func() { ended <- "no" })()
				go func() { <-r.Context().Done(); ended <- r.Context().Err().Error() }()
				closed := w.(interface{ CloseNotify() <-chan bool }).CloseNotify() // which some programs still use
				go func() { <-closed; ended <- "notified" }()
				_, _ = r.Body.Read(make([]byte, 1))
			})})
			p := s.dial(t)
			p.open(1, false, post...)
			if !<-stopped {
				t.Error("function ran before the end of the context, want it afterwards")
			}
			test.end(p)
			got := map[string]bool{}
			for range 4 {
				select {
				case what := <-ended:
					got[what] = true
				case <-time.After(30 * time.Second):
					t.Fatalf("notifications after 30 seconds = %v, want 4", got)
				}
			}
			if !got["child"] || !got["function"] || !got["context canceled"] || !got["notified"] {
				t.Errorf("notifications = %v, want child, function, context canceled and notified", got)
			}
		})
	}
}

// A response waits for the client's windows. A handler that waits is woken when the stream ends.
func TestResponsesWaitForClientWindows(t *testing.T) {
	result := make(chan error, 1)
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 100_000))
		result <- err
	})})
	p := s.dial(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	p.open(1, true)
	a := p.answers()
	a.until(1, func(r *answered) bool { return len(r.body) == 10 })
	p.must(p.WriteWindowUpdate(1, 5))
	a.until(1, func(r *answered) bool { return len(r.body) == 15 })
	p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	a.until(1, func(r *answered) bool { return len(r.body) == 65_535 })
	p.must(p.WriteWindowUpdate(0, 1<<20))
	if got := a.wait(1); len(got.body) != 100_000 || <-result != nil {
		t.Errorf("body = %d bytes, want 100000", len(got.body))
	}
	p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
	p.open(3, true)
	a.until(3, func(r *answered) bool { return len(r.body) == 10 })
	p.must(p.WriteRSTStream(3, http2.ErrCodeCancel))
	if err := <-result; err == nil {
		t.Error("write on a reset stream: error = nil, want an error")
	}
}

// A shutdown may begin between the handshake of a connection and its first frame, which must still be SETTINGS. The first request is
// served.
func TestShutdownDuringPrefaceServesFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })})
		ours, theirs := net.Pipe()
		serve := s.begin(ours, ours, nil)
		over := make(chan error, 1)
		go func() { over <- s.Shutdown(context.Background()) }()
		synctest.Wait()
		go serve()
		framer := http2.NewFramer(theirs, theirs)
		frames := make(chan http2.Frame, 100)
		go func() {
			defer close(frames)
			for {
				f, err := framer.ReadFrame()
				if err != nil {
					return
				}
				frames <- keep(f)
			}
		}()
		if f := <-frames; f.Header().Type != http2.FrameSettings {
			t.Errorf("first frame = %v, want SETTINGS", f)
		}
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/"}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		_, _ = io.WriteString(theirs, http2.ClientPreface)
		_ = framer.WriteSettings()
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		warned, answered := false, ""
		for f := range frames {
			switch f := f.(type) {
			case *http2.GoAwayFrame:
				warned = warned || f.LastStreamID == 1<<31-1
			case *dataOf:
				answered += string(f.data)
			}
			if warned && answered == "ok" {
				break
			}
		}
		if !warned || answered != "ok" {
			t.Errorf("GOAWAY received = %t, response %q, want true and \"ok\"", warned, answered)
		}
		_ = theirs.Close()
		if err := <-over; err != nil {
			t.Error(err)
		}
		for range frames { // until the connection has ended
		}
	})
}

// GOAWAY loses no request. Requests in flight are served. Later requests are known to be unprocessed.
func TestTwoStepGoAwayLosesNoRequest(t *testing.T) {
	finish := make(chan struct{})
	s := start(t, Config{GoAwayGrace: 20 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-finish
		_, _ = io.WriteString(w, "ok")
	})})
	p := s.dial(t)
	p.open(1, true)
	p.must(p.WritePing(false, [8]byte{1}))
	next[*http2.PingFrame](p)
	told, over := make(chan error, 1), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() { told <- s.GoAway(ctx) }()
	go func() { over <- s.Shutdown(ctx) }()
	if f := next[*http2.GoAwayFrame](p); f.LastStreamID != 1<<31-1 || f.ErrCode != http2.ErrCodeNo {
		t.Fatalf("first GOAWAY = %v, want last stream 2147483647 and NO_ERROR", f)
	}
	ping := next[*http2.PingFrame](p)
	p.open(3, true) // in flight
	p.must(p.WritePing(true, ping.Data))
	if f := next[*http2.GoAwayFrame](p); f.LastStreamID != 3 || f.ErrCode != http2.ErrCodeNo {
		t.Fatalf("second GOAWAY = %v, want last stream 3 and NO_ERROR", f)
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
	p.open(5, false, post...)
	p.must(p.WriteData(5, true, []byte("x")))
	close(finish)
	a := p.answers()
	if one, three := a.wait(1), a.wait(3); one.body != "ok" || three.body != "ok" {
		t.Errorf("bodies of streams 1 and 3 = %q and %q, want ok", one.body, three.body)
	}
	_ = p.conn.CloseWrite()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if got := a.of(5); got.status != "" || got.reset != 0 {
		t.Errorf("response to a request after GOAWAY = %+v, want none", got)
	}
}

func TestConnectionCloseHeaderSendsGoAway(t *testing.T) {
	s := start(t, Config{GoAwayGrace: 50 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
	})})
	p := s.dial(t)
	p.open(1, true)
	if got := p.goneAway(); got != http2.ErrCodeNo {
		t.Errorf("code of GOAWAY = %v, want NO_ERROR", got)
	}
}

func TestShutdownReturnsAtItsDeadline(t *testing.T) {
	s := start(t, Config{GoAwayGrace: 10 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})})
	res, err := s.client(t).Get("https://" + s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: error = %v, want context.DeadlineExceeded", err)
	}
	s.Close()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("read of a truncated response: error = nil, want an error")
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// Expect: 100-continue with net/http's client.
func TestExpectContinueWithNetHTTPClient(t *testing.T) {
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })})
	var continued atomic.Bool
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { continued.Store(true) }})
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.address, strings.NewReader("body"))
	r.Header.Set("Expect", "100-continue")
	client := s.client(t)
	client.Transport.(*http.Transport).ExpectContinueTimeout = 30 * time.Second
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if string(body) != "body" || !continued.Load() {
		t.Errorf("body = %q, continued = %v, want \"body\" and true", body, continued.Load())
	}
}
