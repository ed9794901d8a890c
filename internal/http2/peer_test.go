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

// peer is a client that speaks HTTP/2 by hand.
type peer struct {
	*http2.Framer
	t       *testing.T
	conn    *tls.Conn
	encoder *hpack.Encoder
	block   bytes.Buffer
	next    uint32
	deaf    bool  // it gives no windows back
	window  int64 // the connection's, when it counts
}

// counting has window be what may be sent on the connection. It must be called before anything is read.
func (p *peer) counting() { p.window = 65_535 }

// WriteData counts.
func (p *peer) WriteData(id uint32, end bool, data []byte) error {
	p.window -= int64(len(data))
	return p.Framer.WriteData(id, end, data)
}

// WriteDataPadded counts.
func (p *peer) WriteDataPadded(id uint32, end bool, data, pad []byte) error {
	p.window -= int64(len(data) + len(pad) + 1)
	return p.Framer.WriteDataPadded(id, end, data, pad)
}

// dial connects, and says nothing.
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

// greet connects and says what a client says first.
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

// encode is a header block of these fields.
func (p *peer) encode(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(p.block.Bytes())
}

// request are the fields of one, with more after them.
func request(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "https", ":authority", "example.com", ":path", path}, more...)
}

// id is that of the next stream.
func (p *peer) id() uint32 {
	p.next += 2
	return p.next - 2
}

// open begins a stream with these fields.
func (p *peer) open(end bool, fields ...string) uint32 {
	id := p.id()
	p.headers(id, end, fields...)
	return id
}

func (p *peer) headers(id uint32, end bool, fields ...string) {
	p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(fields...), EndHeaders: true, EndStream: end}))
}

// tell is for writing: an end of the connection is found by reading.
func (p *peer) tell(error) {}

func (p *peer) get(path string) uint32 { return p.open(true, request("GET", path)...) }

// answer is what came on a stream.
type answer struct {
	interim  []string
	header   []hpack.HeaderField
	body     []byte
	trailer  []hpack.HeaderField
	reset    string // the code of RST_STREAM
	ended    bool
	lost     error // the connection ended before
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

// event is what a frame means to a test, if it means anything.
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

// await reads until a stream has ended, or the connection has.
func (p *peer) await(id uint32) *answer { return p.awaitUntil(id, func(*answer) bool { return false }) }

// awaitUntil is await that ends when enough has come too.
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

// verdict is what the server thinks of what it was told: which streams it reset or refused, and whether it still serves.
// A last request, of a stream that all others are older than, has it think to the end. answered are streams that must end too.
func (p *peer) verdict(answered ...uint32) string {
	var said []string
	good := p.get("/good")
	open := append(answered, good)
	for {
		f, err := p.event()
		if err != nil {
			var reading http2.ConnectionError
			if errors.As(err, &reading) {
				p.t.Fatalf("what the server writes: %v", err)
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

// over reports whether a stream ends with f.
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
