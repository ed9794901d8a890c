package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attacker writes HTTP/2 frames directly.
type attacker struct {
	*http2.Framer
	conn    *tls.Conn
	encoder *hpack.Encoder
	block   bytes.Buffer
	stream  uint32
}

func (l *listening) attack(t testing.TB) *attacker {
	t.Helper()
	conn := l.secure(t, "h2")
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	a := &attacker{Framer: http2.NewFramer(conn, conn), conn: conn, stream: 1}
	a.encoder = hpack.NewEncoder(&a.block)
	a.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := a.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return a
}

// The server announces how many concurrent streams a connection may have.
func TestStreamLimitIsAnnounced(t *testing.T) {
	for configured, want := range map[int]uint32{0: maxConcurrentStreams, 250: 250} {
		l := newBench().listen(t, time.Second, func(s *Server) { s.c.MaxConcurrentStreams = configured })
		a := l.attack(t)
		f, err := a.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		settings, ok := f.(*http2.SettingsFrame)
		if !ok {
			t.Fatalf("first frame of the server = %v, want SETTINGS", f)
		}
		if got, _ := settings.Value(http2.SettingMaxConcurrentStreams); got != want {
			t.Errorf("announced concurrent streams with the configured value %d = %d, want %d", configured, got, want)
		}
	}
}

// fields encodes one request of user.
func (a *attacker) fields(user string, more ...string) []byte {
	a.block.Reset()
	list := append([]string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/api", "test-user", user}, more...)
	for i := 0; i+1 < len(list); i += 2 {
		_ = a.encoder.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]})
	}
	return bytes.Clone(a.block.Bytes())
}

// open begins a request that has no body, and returns its stream.
func (a *attacker) open(user string, more ...string) (uint32, error) {
	id := a.stream
	a.stream += 2
	return id, a.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: a.fields(user, more...), EndHeaders: true, EndStream: true})
}

// drain reads every frame until the connection ends, and returns the error code of the last GOAWAY.
func (a *attacker) drain() <-chan http2.ErrCode {
	over := make(chan http2.ErrCode, 1)
	go func() {
		last := http2.ErrCode(0xff)
		for {
			f, err := a.ReadFrame()
			if g, ok := f.(*http2.GoAwayFrame); ok {
				last = g.ErrCode
			}
			if err != nil {
				over <- last
				return
			}
		}
	}()
	return over
}

// handlerCounter counts the handlers that run concurrently.
type handlerCounter struct{ now, most, ever atomic.Int64 }

func (c *handlerCounter) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	c.ever.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	select {
	case <-r.Context().Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// A client may open and reset any number of streams on one connection: the handlers that run for it are limited, the connection
// is closed, and another client is served.
func TestD1D2RapidStreamResetsCloseConnection(t *testing.T) {
	for _, test := range []struct {
		name  string
		reset func(*attacker, uint32) error
	}{
		{"D1 rapid reset", func(a *attacker, id uint32) error { return a.WriteRSTStream(id, http2.ErrCodeCancel) }},
		{"D2 made you reset, by a window update of nothing", func(a *attacker, id uint32) error {
			return a.WriteRawFrame(http2.FrameWindowUpdate, 0, id, []byte{0, 0, 0, 0})
		}},
		{"D2 made you reset, by data after the end", func(a *attacker, id uint32) error { return a.WriteData(id, false, []byte("x")) }},
		{"D2 made you reset, by depending on itself", func(a *attacker, id uint32) error {
			return a.WriteRawFrame(http2.FramePriority, 0, id, []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id), 0})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench("alice *")
			c := &handlerCounter{}
			b.handler = c.ServeHTTP
			l := b.listen(t, 5*time.Second)
			a := l.attack(t)
			over := a.drain()
			sent := 0
			for ; sent < 20_000; sent++ {
				id, err := a.open("alice")
				if err == nil {
					err = test.reset(a, id)
				}
				if err != nil {
					break
				}
			}
			_ = a.conn.Close()
			<-over
			if most := c.most.Load(); most > maxConcurrentStreams {
				t.Errorf("%d handlers ran concurrently, want at most %d", most, maxConcurrentStreams)
			}
			t.Logf("%d streams opened, %d handlers begun, %d at one time", sent, c.ever.Load(), c.most.Load())
			answered(t, l)
		})
	}
}

// answered asserts that an ordinary client is served.
func answered(t *testing.T, l *listening) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.address+"/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Test-User", "alice")
	res, err := l.client(t, true).Do(r)
	if err != nil {
		t.Fatalf("GET /api of another client failed: %v, want it to be served", err)
	}
	_ = res.Body.Close()
}

// A client without a valid credential receives one response for each open stream, and GOAWAY.
func TestD1UnauthenticatedConnectionGetsGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("alice *")
		b.memory = true
		l := b.listen(t, 5*time.Second)
		a := l.attack(t)
		over := a.drain()
		if _, err := a.open("bad"); err != nil {
			t.Fatal(err)
		}
		select {
		case code := <-over:
			if code != http2.ErrCodeNo {
				t.Errorf("error code of GOAWAY = %v, want %v", code, http2.ErrCodeNo)
			}
		case <-time.After(30 * time.Second): // the reader ends after a minute
			t.Error("the connection is still open after 30 seconds, want it closed")
		}
		if len(b.reached) != 0 {
			t.Errorf("%d requests reached the handler without a valid credential, want 0", len(b.reached))
		}
	})
}

func TestD3EndlessHeadersCloseConnection(t *testing.T) {
	b := newBench("alice *")
	l := b.listen(t, 5*time.Second)
	a := l.attack(t)
	over := a.drain()
	first := a.fields("alice")
	if err := a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first}); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for i := 0; sent < 64<<20; i++ {
		a.block.Reset()
		_ = a.encoder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 8000), Sensitive: true})
		if a.WriteContinuation(1, false, a.block.Bytes()) != nil {
			break
		}
		sent += a.block.Len()
	}
	<-over
	if sent >= 16<<20 {
		t.Errorf("%d bytes of headers were accepted, want less than %d", sent, 16<<20)
	}
	if len(b.reached) != 0 {
		t.Errorf("%d requests reached the handler without the end of their headers, want 0", len(b.reached))
	}
	answered(t, l)
}

func TestD4UnknownFramesAreIgnored(t *testing.T) {
	b := newBench("alice *")
	l := b.listen(t, 5*time.Second)
	a := l.attack(t)
	for kind := http2.FrameType(0x0a); kind <= 0x0f; kind++ {
		for _, size := range []int{0, 1, 16384} {
			if err := a.WriteRawFrame(kind, 0xff, 0, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
	}
	id, err := a.open("alice")
	if err != nil {
		t.Fatal(err)
	}
	for {
		f, err := a.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == id {
			if status := h.PseudoValue("status"); status != "200" {
				t.Errorf("status of a request after unknown frames = %s, want 200", status)
			}
			break
		}
	}
}

// A few bytes encode a large header. The limit applies to the decoded size.
func TestD4HeaderLimitAppliesToDecodedSize(t *testing.T) {
	b := newBench("alice *")
	l := b.listen(t, 5*time.Second)
	a := l.attack(t)
	over := a.drain()
	big := strings.Repeat("b", 3000)
	var more []string
	for range 400 { // indexed: one byte each after the first, 1.2 MB when unpacked
		more = append(more, "x-bomb", big)
	}
	_, _ = a.open("alice", more...) // the server may stop reading before everything is written
	_, _ = a.open("alice")
	timer := time.AfterFunc(15*time.Second, func() { _ = a.conn.Close() })
	defer timer.Stop()
	answered(t, l)
	_ = a.conn.Close()
	<-over
	for _, r := range b.reached {
		if r.Header.Get("X-Bomb") != "" {
			t.Error("the request with the large decoded header reached the handler, want it rejected")
		}
	}
}

// HTTP/2 forbids header fields that have a meaning for the next hop.
func TestA9A18ConnectionFieldsOverHTTP2AreRejected(t *testing.T) {
	for name, more := range map[string][]string{
		"A9 a connection header":            {"connection", "x-remote-user"},
		"A19 a coding":                      {"transfer-encoding", "chunked"},
		"A19 a line break in a value":       {"x", "a\r\nX-Remote-User: root"},
		"A7 a capital in a name":            {"X-Remote-User", "root"},
		"A18 a path that is a URL":          {":path", "http://169.254.169.254/api"},
		"A18 a pseudo header after another": {":method", "POST"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench("alice *")
			l := b.listen(t, 5*time.Second)
			a := l.attack(t)
			over := a.drain()
			if _, err := a.open("alice", more...); err != nil {
				t.Fatal(err)
			}
			answered(t, l)
			_ = a.conn.Close()
			<-over
			if len(b.reached) != 1 { // the request of the other client
				t.Errorf("%d requests reached the handler with the fields %q, want only the other client's", len(b.reached), more)
			}
		})
	}
}

func TestA18SecondHostOverHTTP2IsRejected(t *testing.T) {
	b := newBench("alice *")
	l := b.listen(t, 5*time.Second)
	a := l.attack(t)
	if _, err := a.open("alice", "host", "evil.example"); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := a.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == 1 {
			if status := h.PseudoValue("status"); status != "400" {
				t.Errorf("status of a request with two hosts = %s, want 400", status)
			}
			return
		}
		if reset, ok := f.(*http2.RSTStreamFrame); ok && reset.StreamID == 1 && reset.ErrCode == http2.ErrCodeProtocol {
			return // reset by x/net/http2
		}
	}
}
