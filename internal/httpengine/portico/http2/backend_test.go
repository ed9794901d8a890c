package http2_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/httpengine/portico/http2/client"
)

// backend is a server that reads and writes HTTP/2 frames as a script, for one connection.
type backend struct {
	*peer
	mu  sync.Mutex // guards the fields below
	saw []string   // descriptions of the client's frames
}

// listenByHand lets script serve one connection. It returns the connector, and a function that closes the client and returns its
// frames.
func listenByHand(t *testing.T, script func(*backend)) (address connector, saw func(rt http.RoundTripper, atLeast int) []string) {
	t.Helper()
	l, connect := listenTCP(t)
	return connect, serveByHand(t, l, script)
}

// listenByHandInMemory is listenByHand for a connection in memory.
func listenByHandInMemory(t *testing.T, script func(*backend)) (address connector, saw func(rt http.RoundTripper, atLeast int) []string) {
	t.Helper()
	l := enginetest.Listen()
	return l.Dial, serveByHand(t, l, script)
}

func serveByHand(t *testing.T, raw net.Listener, script func(*backend)) (saw func(rt http.RoundTripper, atLeast int) []string) {
	t.Helper()
	cert, _ := certificate()
	l := tls.NewListener(raw, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	b := &backend{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		_ = l.Close()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		b.begin(t, conn.(*tls.Conn))
		script(b)
		b.rest()
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return func(rt http.RoundTripper, atLeast int) []string {
		for b.said() < atLeast { // Closing earlier would drop frames that wait to be sent.
			select {
			case <-done:
				return b.saw
			case <-time.After(time.Millisecond):
			}
		}
		closeCaller(rt)
		<-done
		return b.saw
	}
}

func (b *backend) begin(t *testing.T, conn *tls.Conn) {
	p := &peer{Framer: http2.NewFramer(conn, conn), t: t, conn: conn, next: 1}
	p.AllowIllegalWrites = true
	p.encoder = hpack.NewEncoder(&p.block)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	b.peer = p
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
}

// settle sends the server's first frames.
func (b *backend) settle(settings ...http2.Setting) { b.tell(b.WriteSettings(settings...)) }

// listen reads the next frame and records it.
func (b *backend) listen() (http2.Frame, error) {
	f, err := b.event()
	if err != nil {
		return nil, err
	}
	word := ""
	switch f := f.(type) {
	case *http2.RSTStreamFrame:
		word = fmt.Sprintf("RST %d %v", f.StreamID, f.ErrCode)
	case *http2.GoAwayFrame:
		if f.ErrCode != http2.ErrCodeNo {
			word = "GOAWAY " + f.ErrCode.String()
		}
	}
	if word != "" {
		b.mu.Lock()
		b.saw = append(b.saw, word)
		b.mu.Unlock()
	}
	return f, nil
}

func (b *backend) said() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.saw)
}

// rest reads until the client closes the connection.
func (b *backend) rest() {
	for {
		if _, err := b.listen(); err != nil {
			return
		}
	}
}

// request returns the stream of the next request. If whole is set, it waits for the end of the request.
func (b *backend) request(whole bool) uint32 {
	for id := uint32(0); ; {
		f, err := b.listen()
		if err != nil {
			return 0
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && id == 0 {
			id = h.StreamID
		}
		if id != 0 && f.Header().StreamID == id && (!whole || over(f)) {
			return id
		}
	}
}

// answer sends a response header.
func (b *backend) answer(id uint32, end bool, more ...string) {
	b.headers(id, end, append([]string{":status", "200"}, more...)...)
}

// caller is a client under test with one connection.
type caller struct {
	name string
	dial func(t *testing.T, address connector) http.RoundTripper
	late int64 // bytes that it may send by the previous window after it acknowledged a smaller one
}

// net/http's client cuts a frame first and then waits to send it, possibly until after the acknowledgement.
var callers = []caller{{library, dialLibrary, 16 << 10}, {ours, dialOurs, 0}}

func dialLibrary(t *testing.T, address connector) http.RoundTripper {
	_, roots := certificate()
	tr := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return address(ctx) },
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxResponseHeaderBytes: 64 << 10, ResponseHeaderTimeout: 2 * time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: time.Second},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := tr.NewClientConn(ctx, "https", "example.com:443")
	if err != nil {
		return broken{err}
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func dialOurs(t *testing.T, address connector) http.RoundTripper {
	_, roots := certificate()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	raw, err := address(ctx)
	if err != nil {
		return broken{err}
	}
	nc := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: []string{"h2"}})
	if err := nc.HandshakeContext(ctx); err != nil {
		return broken{errors.Join(err, raw.Close())}
	}
	const every = 50 * time.Millisecond
	c, err := client.New(ctx, nc, engine.ClientConfig{
		ProtocolTimeout: patience,
		MaxHeaderBytes:  64 << 10, CheckInterval: every, PingAfter: time.Second, PingTimeout: time.Second, HeaderTimeout: 2 * time.Second,
	})
	if err != nil {
		return broken{err}
	}
	stop := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				c.Check(false)
			}
		}
	})
	t.Cleanup(func() { close(stop); looking.Wait(); c.Close(); c.Wait() })
	return c
}

// broken is a connection that could not be made.
type broken struct{ err error }

func (b broken) RoundTrip(*http.Request) (*http.Response, error) { return nil, b.err }

// errorKind returns the progress of the request that Portico's client reports.
func errorKind(err error) string {
	var e *engine.Error
	if !errors.As(err, &e) {
		return "error"
	}
	return []string{"lost", "silent", "reset", "broken", "late", "unsent", "unprocessed", "refused", "left", "unread", "unsendable", "rejected"}[e.Kind]
}

// asked describes the outcome of a request.
func asked(rt http.RoundTripper, r *http.Request) string {
	res, err := rt.RoundTrip(r)
	if err != nil {
		return errorKind(err)
	}
	body, err := io.ReadAll(res.Body)
	closed := res.Body.Close()
	words := []string{res.Status}
	add := func(name, v string) {
		if v != "" {
			words = append(words, name+" "+v)
		}
	}
	add("header", spelled(res.Header))
	if res.ContentLength != 0 {
		add("length", fmt.Sprint(res.ContentLength))
	}
	if len(body) > 100 {
		add("body", fmt.Sprint(len(body), " bytes"))
	} else {
		add("body", string(body))
	}
	add("trailer", spelled(res.Trailer))
	if err != nil {
		add("then", errorKind(err))
	}
	if closed != nil {
		add("closed with", closed.Error())
	}
	if res.Proto != "HTTP/2.0" || res.Request != r || res.TLS == nil {
		words = append(words, "and is not HTTP/2")
	}
	return strings.Join(words, " | ")
}

func newRequest(t *testing.T, method string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://example.com/", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func closeCaller(rt http.RoundTripper) {
	switch c := rt.(type) {
	case interface{ Close() }:
		c.Close()
	case io.Closer:
		_ = c.Close()
	}
}
