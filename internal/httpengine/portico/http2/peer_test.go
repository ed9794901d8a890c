package http2_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// peer is a client that reads and writes HTTP/2 frames directly.
type peer struct {
	*http2.Framer
	t       *testing.T
	conn    *tls.Conn
	encoder *hpack.Encoder
	block   bytes.Buffer
	next    uint32
	deaf    bool  // does not return windows
	window  int64 // of the connection, if counted
}

// counting lets window track the number of bytes that may be sent on the connection. Call it before anything is read.
func (p *peer) counting() { p.window = 65_535 }

// WriteData updates the window.
func (p *peer) WriteData(id uint32, end bool, data []byte) error {
	p.window -= int64(len(data))
	return p.Framer.WriteData(id, end, data)
}

// WriteDataPadded updates the window.
func (p *peer) WriteDataPadded(id uint32, end bool, data, pad []byte) error {
	p.window -= int64(len(data) + len(pad) + 1)
	return p.Framer.WriteDataPadded(id, end, data, pad)
}

// dial connects and sends nothing.
func (s *testServer) dial(t *testing.T) *peer {
	t.Helper()
	raw, err := s.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	conn := tls.Client(raw, s.tls)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	p := &peer{Framer: http2.NewFramer(conn, conn), t: t, conn: conn, next: 1}
	p.AllowIllegalWrites = true
	p.MaxHeaderListSize = 1 << 20
	p.encoder = hpack.NewEncoder(&p.block)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return p
}

// greet connects and sends the client preface and SETTINGS.
func (s *testServer) greet(t *testing.T, settings ...http2.Setting) *peer {
	t.Helper()
	p := s.dial(t)
	if _, err := io.WriteString(p.conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	p.must(p.WriteSettings(settings...))
	return p
}

func (p *peer) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// encode returns a header block with these fields.
func (p *peer) encode(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(p.block.Bytes())
}

// request returns the fields of a request, followed by more.
func request(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "https", ":authority", "example.com", ":path", path}, more...)
}

// id returns the ID of the next stream.
func (p *peer) id() uint32 {
	p.next += 2
	return p.next - 2
}

// open starts a stream with these fields.
func (p *peer) open(end bool, fields ...string) uint32 {
	id := p.id()
	p.headers(id, end, fields...)
	return id
}

func (p *peer) headers(id uint32, end bool, fields ...string) {
	p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(fields...), EndHeaders: true, EndStream: end}))
}

// tell ignores write errors. Reads detect the end of the connection.
func (p *peer) tell(error) {}

func (p *peer) get(path string) uint32 { return p.open(true, request("GET", path)...) }

// answer contains the frames received on a stream.
type answer struct {
	interim  []string
	header   []hpack.HeaderField
	body     []byte
	trailer  []hpack.HeaderField
	reset    string // code of RST_STREAM
	ended    bool
	lost     error // error if the connection ended earlier
	goneAway string
}

func (a *answer) get(name string) string {
	for _, f := range a.header {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func (a *answer) status() string { return a.get(":status") }

// event returns the next frame that is relevant to a test.
func (p *peer) event() (http2.Frame, error) {
	f, err := p.ReadFrame()
	if err != nil {
		return nil, err
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			p.tell(p.WriteSettingsAck())
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			p.window += int64(f.Increment)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			p.tell(p.WritePing(true, f.Data))
		}
	case *http2.DataFrame:
		if n := f.Header().Length; n > 0 && !p.deaf {
			p.tell(p.WriteWindowUpdate(0, n))
			if !f.StreamEnded() {
				p.tell(p.WriteWindowUpdate(f.StreamID, n))
			}
		}
	}
	return f, nil
}

// await reads until a stream or the connection has ended.
func (p *peer) await(id uint32) *answer { return p.awaitUntil(id, func(*answer) bool { return false }) }

// awaitUntil is like await and also returns if enough reports true.
func (p *peer) awaitUntil(id uint32, enough func(*answer) bool) *answer {
	a := &answer{}
	for {
		f, err := p.event()
		if err != nil {
			a.lost = err
			return a
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			a.goneAway = g.ErrCode.String()
		}
		if f.Header().StreamID != id {
			continue
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			a.headers(f)
			a.ended = f.StreamEnded()
		case *http2.DataFrame:
			a.body = append(a.body, f.Data()...)
			a.ended = f.StreamEnded()
		case *http2.RSTStreamFrame:
			a.reset = f.ErrCode.String()
			return a
		}
		if a.ended || enough(a) {
			return a
		}
	}
}

func (a *answer) headers(f *http2.MetaHeadersFrame) {
	switch status := f.PseudoValue("status"); {
	case strings.HasPrefix(status, "1"):
		a.interim = append(a.interim, status)
	case a.header == nil:
		a.header = slices.Clone(f.Fields)
	default:
		a.trailer = slices.Clone(f.Fields)
	}
}

// verdict describes the server's reaction: the streams that it reset or refused, and whether it still serves. It sends a last request
// on a stream with a higher ID, so that the server processes all earlier frames. The streams in answered must end too.
func (p *peer) verdict(answered ...uint32) string {
	var said []string
	good := p.get("/good")
	open := append(answered, good)
	for {
		f, err := p.event()
		if err != nil {
			var reading http2.ConnectionError
			if errors.As(err, &reading) {
				p.t.Fatalf("read of the server's frames failed: %v, want valid frames", err)
			}
			return strings.Join(append(said, "closed"), ", ")
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return strings.Join(append(said, fmt.Sprintf("GOAWAY %v", f.ErrCode)), ", ")
			}
		case *http2.RSTStreamFrame:
			if f.ErrCode != http2.ErrCodeNo {
				said = append(said, fmt.Sprintf("RST %d %v", f.StreamID, f.ErrCode))
			}
		case *http2.MetaHeadersFrame:
			if status := f.PseudoValue("status"); status != "200" {
				said = append(said, fmt.Sprintf("%d %s", f.StreamID, status))
			}
		}
		if over(f) {
			open = slices.DeleteFunc(open, func(id uint32) bool { return id == f.Header().StreamID })
		}
		if len(open) == 0 {
			return strings.Join(append(said, "served"), ", ")
		}
	}
}

// over reports whether f ends a stream.
func over(f http2.Frame) bool {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return f.StreamEnded()
	case *http2.DataFrame:
		return f.StreamEnded()
	case *http2.RSTStreamFrame:
		return true
	}
	return false
}
