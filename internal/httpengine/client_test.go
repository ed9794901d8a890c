package httpengine_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/pki"
)

const (
	serverName = "metrics.kube-system.svc"
	patience   = time.Minute
)

// peer is a server that reads and writes HTTP/2 frames directly.
type peer struct {
	*http2.Framer
	nc     *tls.Conn
	buffer bytes.Buffer
	hpack  *hpack.Encoder
}

// speaks returns the client's side of a socket connection. The server side follows script after the preface.
func speaks(t *testing.T, script func(*peer)) *tls.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return speaksOn(t, l, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}, script)
}

// speaksInMemory is speaks over a connection in memory.
func speaksInMemory(t *testing.T, script func(*peer)) *tls.Conn {
	t.Helper()
	l := enginetest.Listen()
	return speaksOn(t, l, l.Dial, script)
}

func speaksOn(t *testing.T, l net.Listener, connect func(context.Context) (net.Conn, error), script func(*peer)) *tls.Conn {
	t.Helper()
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: serverName, DNSNames: []string{serverName}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := pki.ServerConfig(pair)
	config.NextProtos = []string{"h2"}
	var wg sync.WaitGroup
	wg.Go(func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = nc.Close() }()
		_ = nc.SetDeadline(time.Now().Add(patience))
		tc := tls.Server(nc, config)
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(tc, preface); err != nil {
			return
		}
		p := &peer{Framer: http2.NewFramer(tc, tc), nc: tc}
		p.hpack = hpack.NewEncoder(&p.buffer)
		p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		p.AllowIllegalWrites = true
		script(p)
	})
	trust, err := pki.ClientConfig(pki.ClientOptions{ServerName: serverName, Roots: ca.PEM()})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close(); _ = l.Close(); wg.Wait() })
	tc := tls.Client(raw, trust)
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	return tc
}

// next returns the next frame of a type, or nil at the end. It answers PINGs.
func (p *peer) next(kind http2.FrameType) http2.Frame {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return nil
		}
		if f.Header().Type == kind {
			return f
		}
		if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() {
			_ = p.WritePing(true, ping.Data)
		}
	}
}

// request returns the stream of the next request.
func (p *peer) request() uint32 {
	if f := p.next(http2.FrameHeaders); f != nil {
		return f.Header().StreamID
	}
	return 0
}

// drain reads until the connection ends and answers PINGs.
func (p *peer) drain() { p.next(0xff) }

func (p *peer) headers(stream uint32, end bool, fields ...string) {
	p.buffer.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = p.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // A buffer has no errors.
	}
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.buffer.Bytes(), EndHeaders: true, EndStream: end})
}

// settled is a script that begins with SETTINGS.
func settled(script func(*peer), settings ...http2.Setting) func(*peer) {
	return func(p *peer) {
		_ = p.WriteSettings(settings...)
		_ = p.WriteSettingsAck()
		script(p)
	}
}

func config() engine.ClientConfig {
	return engine.ClientConfig{
		MaxHeaderBytes: 64 << 10, CheckInterval: 20 * time.Millisecond, PingAfter: time.Hour, PingTimeout: time.Hour,
		HeaderTimeout: patience, ProtocolTimeout: patience,
	}
}

// onBoth runs a test on a connection of each engine. The periodic check of the connection runs until the test ends.
func onBoth(t *testing.T, script func(*peer), change func(*engine.ClientConfig), test func(*testing.T, httpengine.Name, engine.ClientConn)) {
	t.Helper()
	for _, n := range httpengine.Names() {
		t.Run(string(n), func(t *testing.T) { test(t, n, begin(t, n, speaks(t, script), change)) })
	}
}

// onBothInTime is onBoth in separate synctest bubbles, with connections in memory.
func onBothInTime(t *testing.T, script func(*peer), change func(*engine.ClientConfig), test func(*testing.T, httpengine.Name, engine.ClientConn)) {
	t.Helper()
	inTime(t, func(t *testing.T, n httpengine.Name) { test(t, n, begin(t, n, speaksInMemory(t, script), change)) })
}

// begin makes a connection of an engine. Its periodic check runs until the test ends.
func begin(t *testing.T, n httpengine.Name, tc *tls.Conn, change func(*engine.ClientConfig)) engine.ClientConn {
	t.Helper()
	c := config()
	if change != nil {
		change(&c)
	}
	over := make(chan struct{})
	c.OnClose = func() { close(over) }
	conn, err := httpengine.NewClientConn(t.Context(), n, tc, c)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(c.CheckInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				conn.Check(true)
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		looking.Wait()
		conn.Close()
		select {
		case <-over:
		case <-time.After(patience):
			t.Error("OnClose was not called after Close, want one call")
		}
	})
	return conn
}

func newRequest(t *testing.T, method string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+serverName+"/x", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask sends a request and reads the response.
func ask(c engine.ClientConn, r *http.Request) (resp *http.Response, body string, inBody bool, err error) {
	if resp, err = c.RoundTrip(r); err != nil {
		return nil, "", false, err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return resp, string(text), err != nil, err
}

const none = engine.ErrorKind(-1)

func kindOf(err error) engine.ErrorKind {
	var e *engine.Error
	switch {
	case err == nil:
		return none
	case errors.As(err, &e):
		return e.Kind
	}
	return -2
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("condition %q is still false after %s, want true", what, patience)
		}
		<-tick.C
	}
}

// Both engines report the same progress of a request for every kind of failure.
func TestA42EnginesReportSameRequestProgress(t *testing.T) {
	begin := func(p *peer, id uint32, more ...string) {
		p.headers(id, false, append([]string{":status", "200"}, more...)...)
	}
	type situation struct {
		name   string
		method string
		say    func(p *peer, id uint32)
		kind   engine.ErrorKind
		inBody bool
		body   string // the known part of the body
		row    string // of the limitation in the documentation
	}
	tests := []situation{
		{name: "an answer with interim responses, padding and trailers", kind: none, body: "whole", say: func(p *peer, id uint32) {
			p.headers(id, false, ":status", "103", "link", "x")
			begin(p, id, "content-length", "5")
			_ = p.WriteDataPadded(id, false, []byte("wh"), make([]byte, 100))
			_ = p.WriteDataPadded(id, false, []byte("ole"), make([]byte, 200))
			p.headers(id, true, "x-sum", "1")
		}},
		{name: "an answer without a body", kind: none, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "200") }},
		{name: "an answer to HEAD", method: http.MethodHead, kind: none, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "content-length", "9") }},
		{name: "304 with a length", kind: none, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "304", "content-length", "9") }},
		{name: "no error after a whole answer", kind: none, body: "whole", say: func(p *peer, id uint32) {
			begin(p, id)
			_ = p.WriteData(id, true, []byte("whole"))
			_ = p.WriteRSTStream(id, http2.ErrCodeNo)
		}},
		{name: "GOAWAY that leaves the stream out", kind: engine.Unprocessed, say: func(p *peer, _ uint32) { _ = p.WriteGoAway(0, http2.ErrCodeNo, nil) }},
		{name: "GOAWAY with an error that leaves the stream out", kind: engine.Unprocessed, say: func(p *peer, _ uint32) {
			_ = p.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
		}},
		{name: "GOAWAY that covers the stream, and then the end", kind: engine.Lost, say: func(p *peer, id uint32) {
			_ = p.WriteGoAway(id, http2.ErrCodeNo, nil)
			_ = p.nc.Close()
		}},
		{name: "GOAWAY with an error that covers the stream, and then the end", kind: engine.Lost, say: func(p *peer, id uint32) {
			_ = p.WriteGoAway(id, http2.ErrCodeInternal, []byte("10.1.2.3:443"))
			_ = p.nc.Close()
		}},
		{name: "GOAWAY that covers the stream, and the answer", kind: none, body: "whole", say: func(p *peer, id uint32) {
			_ = p.WriteGoAway(id, http2.ErrCodeNo, nil)
			begin(p, id)
			_ = p.WriteData(id, true, []byte("whole"))
		}},
		{name: "REFUSED_STREAM after the head", kind: engine.Reset, inBody: true, body: "some", say: func(p *peer, id uint32) {
			begin(p, id)
			_ = p.WriteData(id, false, []byte("some"))
			_ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}},
		{name: "REFUSED_STREAM within a short answer", kind: engine.Reset, say: func(p *peer, id uint32) {
			begin(p, id, "content-length", "10")
			_ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}},
		{name: "the connection closes before the head", kind: engine.Lost, say: func(p *peer, _ uint32) { _ = p.nc.Close() }},
		{name: "the connection is reset before the head", kind: engine.Lost, say: func(p *peer, _ uint32) { _ = p.nc.NetConn().(*net.TCPConn).SetLinger(0); _ = p.nc.NetConn().Close() }},
		{name: "the connection closes within a short answer", kind: engine.Lost, say: func(p *peer, id uint32) {
			begin(p, id, "content-length", "10")
			_ = p.WriteData(id, false, []byte("some"))
			_ = p.nc.Close()
		}},
		{name: "the connection closes within a long answer", kind: engine.Lost, inBody: true, body: "some", say: func(p *peer, id uint32) {
			begin(p, id, "content-length", "100000")
			_ = p.WriteData(id, false, []byte("some"))
			_ = p.nc.Close()
		}},
		{name: "no status", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, "x", "y") }},
		{name: "a status that is no number", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "abc") }},
		{name: "a status of four digits", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "2000") }},
		{name: "a status of two digits", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "20") }},
		{name: "two statuses", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "200", ":status", "200") }},
		{name: "a pseudo field of requests", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "200", ":path", "/") }},
		{name: "a name in upper case", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "X-A", "y") }},
		{name: "a value that splits", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "x", "a\r\nb: c") }},
		{name: "protocols switched", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, false, ":status", "101") }},
		{name: "an interim response that ends", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "103") }},
		{name: "a flood of interim responses", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			for range 1000 {
				p.headers(id, false, ":status", "103")
			}
		}},
		{name: "headers larger than allowed, as compression hides", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			fields := []string{":status", "200"}
			for range 40 {
				fields = append(fields, "x", strings.Repeat("y", 2000))
			}
			p.headers(id, true, fields...)
		}},
		{name: "a flood of CONTINUATION", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}})
			for range 100_000 {
				if p.WriteContinuation(id, false, append([]byte{0x00, 1, 'x', 0x7f, 0xe9, 0x06}, make([]byte, 1000)...)) != nil {
					return
				}
			}
		}},
		{name: "a flood of empty CONTINUATION", kind: engine.ProtocolViolation, row: "floods of frames that carry nothing", say: func(p *peer, id uint32) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}})
			for range 100_000 {
				if p.WriteContinuation(id, false, nil) != nil {
					return
				}
			}
		}},
		{name: "a body longer than its length", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			begin(p, id, "content-length", "1")
			_ = p.WriteData(id, true, []byte("xx"))
		}},
		{name: "a body shorter than its length", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			begin(p, id, "content-length", "3")
			_ = p.WriteData(id, true, []byte("xx"))
		}},
		{name: "no body where a length was said", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "content-length", "3") }},
		{name: "two lengths", kind: engine.ProtocolViolation, row: "Content-Length fields that contradict each other", say: func(p *peer, id uint32) {
			begin(p, id, "content-length", "1", "content-length", "2")
			_ = p.WriteData(id, true, []byte("xx"))
		}},
		{name: "a length with a sign", kind: engine.ProtocolViolation, row: "Content-Length fields that contradict each other", say: func(p *peer, id uint32) {
			begin(p, id, "content-length", "+2")
			_ = p.WriteData(id, true, []byte("xx"))
		}},
		{name: "a body of 204", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			p.headers(id, false, ":status", "204")
			_ = p.WriteData(id, true, []byte("x"))
		}},
		{name: "DATA before HEADERS", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { _ = p.WriteData(id, true, []byte("x")) }},
		{name: "trailers that end nothing", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			begin(p, id, "content-length", "3")
			p.headers(id, false, "x", "y")
		}},
		{name: "DATA of a stream that nobody opened", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { _ = p.WriteData(id+100, true, []byte("x")) }},
		{name: "HEADERS of a stream that nobody opened", kind: engine.ProtocolViolation, row: "frames on streams that nobody opened", say: func(p *peer, id uint32) { begin(p, id+100) }},
		{name: "RST_STREAM of a stream that nobody opened", kind: engine.ProtocolViolation, row: "frames on streams that nobody opened", say: func(p *peer, id uint32) {
			_ = p.WriteRSTStream(id+2, http2.ErrCodeCancel)
		}},
		{name: "WINDOW_UPDATE of a stream that nobody opened", kind: engine.ProtocolViolation, row: "frames on streams that nobody opened", say: func(p *peer, id uint32) {
			_ = p.WriteWindowUpdate(id+2, 1)
		}},
		{name: "a push", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			_ = p.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: []byte{0x82}, EndHeaders: true})
		}},
		{name: "frames of size 0 in later SETTINGS", kind: engine.ProtocolViolation, say: func(p *peer, _ uint32) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0})
		}},
		{name: "a window beyond the limit in later SETTINGS", kind: engine.ProtocolViolation, say: func(p *peer, _ uint32) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 + 5})
		}},
		{name: "a server that wants to be pushed to", kind: engine.ProtocolViolation, row: "SETTINGS of clients", say: func(p *peer, _ uint32) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 1})
		}},
		{name: "a frame that is too large", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			_ = p.WriteRawFrame(http2.FrameData, 0, id, make([]byte, 1<<14+1))
		}},
		{name: "a block that does not decode", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}},
		{name: "the connection's window beyond the limit", kind: engine.ProtocolViolation, say: func(p *peer, _ uint32) { _ = p.WriteWindowUpdate(0, 1<<31-1) }},
		{name: "a stream's window opened by nothing", kind: engine.ProtocolViolation, say: func(p *peer, id uint32) { _ = p.WriteWindowUpdate(id, 0) }},
	}
	for code := range http2.ErrCode(0x10) {
		kind := engine.Reset
		switch code {
		case http2.ErrCodeRefusedStream:
			kind = engine.Refused
		case http2.ErrCodeProtocol:
			kind = engine.Rejected
		}
		tests = append(tests, situation{name: fmt.Sprintf("RST_STREAM with code %d", code), kind: kind, say: func(p *peer, id uint32) { _ = p.WriteRSTStream(id, code) }})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			script := settled(func(p *peer) { test.say(p, p.request()); p.drain() })
			onBoth(t, script, nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
				if test.row != "" {
					notOnLibrary(t, n, test.row)
				}
				method := test.method
				if method == "" {
					method = http.MethodGet
				}
				resp, body, inBody, err := ask(c, newRequest(t, method, nil))
				if kind := kindOf(err); kind != test.kind || test.inBody && (!inBody || body != test.body) {
					t.Errorf("%s: error kind = %d, want %d; body %q, error %v", method, kind, test.kind, body, err)
				}
				if test.kind == none && err == nil && (body != test.body || resp.ProtoMajor != 2 || resp.TLS == nil) {
					t.Errorf("body = %q, response %+v, want body %q over HTTP/2 with TLS", body, resp, test.body)
				}
				if strings.Contains(test.name, "trailers") && test.kind == none && resp.Trailer.Get("X-Sum") != "1" {
					t.Errorf("trailers = %v, want X-Sum: 1", resp.Trailer)
				}
			})
		})
	}
}

// notOnLibrary skips rows that a table of limitations names.
func notOnLibrary(t *testing.T, n httpengine.Name, row string) {
	t.Helper()
	enginetest.NotOnLibrary(t, n, row)
}

// GOAWAY identifies the processed requests. The connection accepts no new requests and ends with its last one.
func TestGoAwayEndsConnectionAfterLastRequest(t *testing.T) {
	script := settled(func(p *peer) {
		first := p.request()
		second := p.request()
		_ = p.WriteGoAway(first, http2.ErrCodeNo, nil)
		_ = second
		p.headers(first, false, ":status", "200")
		if p.next(http2.FramePing) == nil { // The test continues.
			return
		}
		_ = p.WriteData(first, true, []byte("whole"))
		p.drain()
	})
	onBothInTime(t, script, func(c *engine.ClientConfig) { c.PingAfter = 100 * time.Millisecond }, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		type result struct {
			body string
			err  error
		}
		results := make(chan result, 2)
		for range 2 {
			go func() {
				_, body, _, err := ask(c, newRequest(t, http.MethodGet, nil))
				results <- result{body, err}
			}()
		}
		if r := <-results; kindOf(r.err) != engine.Unprocessed {
			t.Errorf("request after GOAWAY = %q, error %v, want Unprocessed", r.body, r.err)
		}
		if c.Available() {
			t.Error("Available after GOAWAY = true, want false")
		}
		if _, _, _, err := ask(c, newRequest(t, http.MethodPost, strings.NewReader("x"))); kindOf(err) != engine.Unsent {
			t.Errorf("third request: error = %v, want Unsent", err)
		}
		if r := <-results; r.err != nil || r.body != "whole" {
			t.Errorf("processed request = %q, error %v, want \"whole\" and no error", r.body, r.err)
		}
		c.Close()
		if c.ProtocolError() != nil || c.PingTimedOut() {
			t.Errorf("after GOAWAY: ProtocolError = %v, PingTimedOut = %v, want none", c.ProtocolError(), c.PingTimedOut())
		}
	})
}

// Repeatable requests that wait for a header fail. Other requests and the connection continue.
func TestAbandonWaitingFailsOnlyWaitingRequests(t *testing.T) {
	both := make(chan [2]uint32, 2)
	answer := make(chan struct{}, 2)
	script := settled(func(p *peer) {
		streams := map[string]uint32{}
		for len(streams) < 2 {
			f, ok := p.next(http2.FrameHeaders).(*http2.MetaHeadersFrame)
			if !ok {
				return
			}
			streams[f.PseudoValue("method")] = f.StreamID
		}
		both <- [2]uint32{streams[http.MethodGet], streams[http.MethodPost]}
		reset, ok := p.next(http2.FrameRSTStream).(*http2.RSTStreamFrame)
		if !ok || reset.StreamID != streams[http.MethodGet] || reset.ErrCode != http2.ErrCodeCancel {
			return
		}
		<-answer
		p.headers(streams[http.MethodPost], true, ":status", "201")
		p.drain()
	})
	onBoth(t, script, nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		results := map[string]chan error{http.MethodGet: make(chan error, 1), http.MethodPost: make(chan error, 1)}
		for method, result := range results {
			go func() {
				_, _, _, err := ask(c, newRequest(t, method, nil))
				result <- err
			}()
		}
		<-both
		why := errors.New("it hangs")
		c.AbandonWaiting(why)
		if err := <-results[http.MethodGet]; kindOf(err) != engine.Abandoned || !errors.Is(err, why) {
			t.Errorf("GET after AbandonWaiting: error = %v, want Abandoned with %v", err, why)
		}
		answer <- struct{}{}
		if err := <-results[http.MethodPost]; err != nil {
			t.Errorf("POST after AbandonWaiting: error = %v, want no error", err)
		}
		if c.Closed() {
			t.Error("connection is closed after AbandonWaiting, want it open")
		}
	})
}

// The server's SETTINGS limit the number of requests. The server may change the limit.
func TestClientFollowsServerStreamLimit(t *testing.T) {
	script := settled(func(p *peer) {
		p.next(http2.FramePing)
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1 << 31})
		p.drain()
	}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 7})
	onBothInTime(t, script, func(c *engine.ClientConfig) { c.PingAfter = 100 * time.Millisecond }, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		if got := c.MaxStreams(); got != 7 {
			t.Errorf("MaxStreams = %d, want 7", got)
		}
		eventually(t, "more are allowed", func() bool { return c.MaxStreams() == 1000 })
	})
	onBothInTime(t, settled((*peer).drain, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}), nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		if got := c.MaxStreams(); got != 0 {
			t.Errorf("MaxStreams = %d, want 0", got)
		}
	})
}

// A server that does not speak HTTP/2 receives no request, and its connection is closed.
func TestNonHTTP2ServerGetsNoRequest(t *testing.T) {
	for name, test := range map[string]struct {
		script func(*peer)
		kind   engine.ErrorKind
	}{
		"nothing":                      {(*peer).drain, engine.Canceled},
		"the end":                      {func(*peer) {}, engine.Lost},
		"PING before SETTINGS":         {func(p *peer) { _ = p.WritePing(false, [8]byte{}); p.drain() }, engine.ProtocolViolation},
		"frames of size 0":             {settled((*peer).drain, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}), engine.ProtocolViolation},
		"a window beyond the limit":    {settled((*peer).drain, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 + 5}), engine.ProtocolViolation},
		"HTTP/1.1 instead of HTTP/2":   {func(p *peer) { _, _ = io.WriteString(p.nc, "HTTP/1.1 400 Bad Request\r\n\r\n"); p.drain() }, engine.ProtocolViolation},
		"SETTINGS that do not end":     {func(p *peer) { _, _ = p.nc.Write([]byte{0, 0, 6, 4, 0}); p.drain() }, engine.Canceled},
		"SETTINGS of no possible size": {func(p *peer) { _ = p.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5)); p.drain() }, engine.ProtocolViolation},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T, n httpengine.Name) {
				limit := patience
				if test.kind == engine.Canceled { // No other event ends it.
					limit = patience / 2
				}
				tc := speaksInMemory(t, test.script)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				c := config()
				var ended atomic.Int64
				c.OnClose = func() { ended.Add(1) }
				conn, err := httpengine.NewClientConn(ctx, n, tc, c)
				if conn != nil || kindOf(err) != test.kind {
					t.Errorf("NewClientConn = %v, error %v of kind %d, want no connection and kind %d", conn, err, kindOf(err), test.kind)
				}
				if ended.Load() != 1 {
					t.Errorf("OnClose called %d times, want 1", ended.Load())
				}
				if _, err := tc.NetConn().Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
					t.Errorf("write after NewClientConn failed: error = %v, want net.ErrClosed", err)
				}
			})
		})
	}
}

func TestHeaderTimeoutKeepsConnectionOpen(t *testing.T) {
	script := settled(func(p *peer) { p.drain() })
	onBothInTime(t, script, func(c *engine.ClientConfig) { c.HeaderTimeout = 20 * time.Second }, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		if _, err := c.RoundTrip(newRequest(t, http.MethodGet, nil)); kindOf(err) != engine.HeaderTimeout {
			t.Errorf("request to a server that hangs: error = %v, want HeaderTimeout", err)
		}
		if c.Closed() {
			t.Error("connection is closed after a HeaderTimeout, want it open")
		}
	})
}

// Unanswered PINGs end the connection after a number of checks. All received bytes count as an answer.
func TestUnansweredPingsEndConnection(t *testing.T) {
	silent := settled(func(p *peer) {
		for {
			if _, err := p.ReadFrame(); err != nil {
				return
			}
		}
	})
	quick := func(c *engine.ClientConfig) { c.PingAfter, c.PingTimeout = 100*time.Millisecond, 200*time.Millisecond }
	onBothInTime(t, silent, quick, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		if _, err := c.RoundTrip(newRequest(t, http.MethodGet, nil)); kindOf(err) != engine.PingTimeout {
			t.Errorf("request on a silent connection: error = %v, want PingTimeout", err)
		}
		if !c.PingTimedOut() || !c.Closed() || c.ProtocolError() != nil {
			t.Errorf("silent connection: PingTimedOut = %v, Closed = %v, ProtocolError = %v, want true, true and none", c.PingTimedOut(), c.Closed(), c.ProtocolError())
		}
		if _, err := c.RoundTrip(newRequest(t, http.MethodGet, nil)); kindOf(err) != engine.Unsent {
			t.Errorf("request after the PING timeout: error = %v, want Unsent", err)
		}
	})
	var pings atomic.Int64
	answering := settled(func(p *peer) {
		for {
			ping, _ := p.next(http2.FramePing).(*http2.PingFrame)
			if ping == nil {
				return
			}
			pings.Add(1)
			_ = p.WritePing(true, ping.Data)
		}
	})
	// More PINGs than fit into the timeout of one.
	onBothInTime(t, answering, func(c *engine.ClientConfig) { c.PingAfter, c.PingTimeout = 100*time.Millisecond, time.Second }, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		pings.Store(0)
		eventually(t, "some pings", func() bool { return pings.Load() > 12 })
		if c.Closed() {
			t.Error("connection is closed although PINGs are answered, want it open")
		}
	})
}

// A server that violates the protocol without a request is reported.
func TestProtocolViolationWithoutRequestIsReported(t *testing.T) {
	made := make(chan struct{}) // An end during the setup is another case.
	after := func(script func(*peer)) func(*peer) {
		return settled(func(p *peer) {
			select {
			case <-made:
			case <-time.After(patience):
			}
			script(p)
		})
	}
	onBoth(t, after(func(p *peer) { _ = p.WriteData(101, true, []byte("x")); p.drain() }), nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		made <- struct{}{}
		eventually(t, "it ended", c.Closed)
		eventually(t, "it is known why", func() bool { return c.ProtocolError() != nil })
	})
	onBoth(t, after(func(p *peer) { _ = p.nc.Close() }), nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		made <- struct{}{}
		eventually(t, "it ended", c.Closed)
		if err := c.ProtocolError(); err != nil {
			t.Errorf("ProtocolError after the server closed the connection = %v, want none", err)
		}
	})
}

func TestFloodEndsConnection(t *testing.T) {
	made := make(chan struct{}) // Before that, no connection exists.
	script := settled(func(p *peer) {
		select {
		case <-made:
		case <-time.After(patience):
		}
		for range 100_000 {
			if p.WritePing(true, [8]byte{}) != nil {
				return
			}
		}
		p.drain()
	})
	onBoth(t, script, nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		made <- struct{}{}
		enginetest.NotOnLibrary(t, n, "floods of frames that carry nothing")
		eventually(t, "it ended", func() bool { return c.ProtocolError() != nil })
	})
}

// The acknowledgement of SETTINGS and the rest of a header block have a deadline.
func TestServerProtocolStepsHaveDeadline(t *testing.T) {
	quick := func(c *engine.ClientConfig) { c.ProtocolTimeout = time.Second }
	for name, script := range map[string]func(*peer){
		"no acknowledgement of SETTINGS": func(p *peer) { _ = p.WriteSettings(); p.drain() },
		"a header block that does not end": settled(func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.request(), BlockFragment: []byte{0x88}})
			p.drain()
		}),
	} {
		t.Run(name, func(t *testing.T) {
			onBothInTime(t, script, quick, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
				enginetest.NotOnLibrary(t, n, "deadlines for what the protocol asks of the server")
				if _, err := c.RoundTrip(newRequest(t, http.MethodGet, nil)); kindOf(err) != engine.ProtocolViolation {
					t.Error(err)
				}
			})
		})
	}
}

// brokenBody fails after some bytes.
type brokenBody struct {
	io.Reader
	closed chan struct{}
}

func (b *brokenBody) Close() error { close(b.closed); return nil }

var errBody = errors.New("the client's body broke")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBody }

// An invalid request or a failing body has its own error kind, and the body is closed.
func TestInvalidRequestsAndBodiesHaveTheirOwnErrors(t *testing.T) {
	script := settled(func(p *peer) {
		for {
			id := p.request()
			if id == 0 {
				return
			}
		}
	})
	for name, test := range map[string]struct {
		body   io.Reader
		length int64
		change func(*http.Request)
		kind   engine.ErrorKind
	}{
		"a body that fails":                   {body: failing{}, length: -1, kind: engine.BodyError},
		"a body that fails later":             {body: io.MultiReader(strings.NewReader("some"), failing{}), length: 100, kind: engine.BodyError},
		"a body that is shorter than it says": {body: strings.NewReader("some"), length: 100, kind: engine.BodyError},
		"a blank in the path":                 {change: func(r *http.Request) { r.URL.Opaque = "/x y" }, kind: engine.InvalidRequest},
		"a line end in a value":               {change: func(r *http.Request) { r.Header["A"] = []string{"b\r\nc"} }, kind: engine.InvalidRequest},
		"a name that is no token":             {change: func(r *http.Request) { r.Header["a b"] = []string{"c"} }, kind: engine.InvalidRequest},
		"an upgrade":                          {change: func(r *http.Request) { r.Header["Upgrade"] = []string{"websocket"} }, kind: engine.InvalidRequest},
		"an option of the connection":         {change: func(r *http.Request) { r.Header["Connection"] = []string{"x-remote-user"} }, kind: engine.InvalidRequest},
		"a trailer that frames":               {change: func(r *http.Request) { r.Trailer = http.Header{"Content-Length": {"1"}} }, kind: engine.InvalidRequest},
		"CONNECT":                             {change: func(r *http.Request) { r.Method = http.MethodConnect }, kind: engine.InvalidRequest},
		"a sender that leaves": {change: func(r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			*r = *r.WithContext(ctx)
		}, kind: engine.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			onBothInTime(t, script, nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
				body := &brokenBody{Reader: test.body, closed: make(chan struct{})}
				if body.Reader == nil {
					body.Reader, test.length = strings.NewReader("x"), 1
				}
				r := newRequest(t, http.MethodPost, body)
				r.ContentLength = test.length
				if test.change != nil {
					test.change(r)
				}
				_, err := c.RoundTrip(r)
				if kindOf(err) != test.kind {
					t.Errorf("error kind = %d, want %d; error %v", kindOf(err), test.kind, err)
				}
				select {
				case <-body.closed:
				case <-time.After(patience):
					t.Error("body is open after the failed request, want it closed")
				}
				if c.Closed() || !c.Available() {
					t.Errorf("connection after an invalid request: closed = %v, available = %v, want open and available", c.Closed(), c.Available())
				}
			})
		})
	}
}

// A body ends at its length, even if its reader has more bytes. A stream that the server resets ends without the body.
func TestBodyEndsAtItsLengthOrReset(t *testing.T) {
	got := make(chan string, 1)
	script := settled(func(p *peer) {
		id := p.request()
		var all strings.Builder
		for {
			f, _ := p.next(http2.FrameData).(*http2.DataFrame)
			if f == nil {
				return
			}
			all.Write(f.Data())
			if f.StreamEnded() {
				break
			}
		}
		got <- all.String()
		p.headers(id, true, ":status", "200")
		_ = p.WriteRSTStream(p.request(), http2.ErrCodeInternal)
		p.drain()
	})
	onBoth(t, script, nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		r := newRequest(t, http.MethodPost, strings.NewReader("0123456789"))
		r.ContentLength = 4
		if _, _, _, err := ask(c, r); err != nil {
			t.Error(err)
		}
		if sent := <-got; sent != "0123" {
			t.Errorf("body at the server = %q, want \"0123\"", sent)
		}
		never, stop := io.Pipe()
		defer func() { _ = stop.Close() }()
		if _, err := c.RoundTrip(newRequest(t, http.MethodPost, never)); kindOf(err) != engine.Reset {
			t.Error(err)
		}
	})
}

// A window that the server does not open counts as closed, so that other uploads use other connections.
func TestUnopenedWindowCountsAsClosed(t *testing.T) {
	onBothInTime(t, settled((*peer).drain), nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		if now, most := c.Window(); now < most/2 {
			t.Errorf("window before the first request = %d of %d, want at least half", now, most)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := c.RoundTrip(newRequest(t, http.MethodPost, io.LimitReader(zeros{}, 1<<20)).WithContext(ctx))
			done <- err
		}()
		eventually(t, "the window is used up", func() bool { now, most := c.Window(); return now < min(1, most/2) })
		cancel()
		if err := <-done; kindOf(err) != engine.Canceled {
			t.Error(err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// The client searches for these texts of x/net. Texts that no peer can cause in a test are compared with its constants.
func TestErrorTextsMatchXNetHTTP2(t *testing.T) {
	script := settled(func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 100})
		for {
			id := p.request()
			if id == 0 {
				return
			}
			p.headers(id, true, ":status", "200")
		}
	})
	onBoth(t, script, nil, func(t *testing.T, n httpengine.Name, c engine.ClientConn) {
		if n != httpengine.Library {
			return // It sends the header: the limit is advisory (RFC 9113, 6.5.2).
		}
		eventually(t, "the server's limit of headers is kept", func() bool {
			r := newRequest(t, http.MethodGet, nil)
			r.Header.Set("X", strings.Repeat("x", 200))
			_, err := c.RoundTrip(r)
			return kindOf(err) == engine.InvalidRequest
		})
	})
}
