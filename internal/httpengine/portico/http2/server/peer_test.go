package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is a client that follows the test.
type peer struct {
	*http2.Framer
	t       testing.TB
	conn    *tls.Conn
	encoder *hpack.Encoder
	block   bytes.Buffer
	frames  chan http2.Frame // closed when the connection has ended
}

// dial connects and sends the preface and SETTINGS.
func (s *served) dial(t testing.TB, settings ...http2.Setting) *peer {
	t.Helper()
	p := s.silent(t)
	p.do(io.WriteString(p.conn, http2.ClientPreface))
	p.must(p.WriteSettings(settings...))
	return p
}

// silent connects and sends nothing.
func (s *served) silent(t testing.TB) *peer {
	t.Helper()
	conn, err := tls.Dial("tcp", s.address, &tls.Config{RootCAs: s.roots, ServerName: "example.com", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(40 * time.Second))
	p := &peer{Framer: http2.NewFramer(conn, conn), t: t, conn: conn, frames: make(chan http2.Frame, 1000)}
	p.AllowIllegalWrites, p.AllowIllegalReads = true, true
	p.SetMaxReadFrameSize(1 << 24)
	p.encoder = hpack.NewEncoder(&p.block)
	go p.read()
	t.Cleanup(func() {
		_ = conn.Close()
		for range p.frames { // until read has ended
		}
	})
	return p
}

func (p *peer) read() {
	defer close(p.frames)
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return
		}
		p.frames <- keep(f)
	}
}

// headersOf is a HEADERS frame with a copy of its block.
type headersOf struct {
	http2.FrameHeader
	block []byte
}

func keep(f http2.Frame) http2.Frame {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		return &headersOf{f.FrameHeader, bytes.Clone(f.HeaderBlockFragment())}
	case *http2.DataFrame:
		return &dataOf{f.FrameHeader, bytes.Clone(f.Data())}
	case *http2.GoAwayFrame:
		kept := *f
		return &kept
	case *http2.RSTStreamFrame:
		kept := *f
		return &kept
	case *http2.PingFrame:
		kept := *f
		return &kept
	}
	return &otherFrame{f.Header()}
}

type otherFrame struct{ http2.FrameHeader }

type dataOf struct {
	http2.FrameHeader
	data []byte
}

func (p *peer) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) do(_ int, err error) { p.t.Helper(); p.must(err) }

// fields encodes pairs of names and values. They follow the fields of a GET unless they begin with a pseudo header field.
func (p *peer) fields(pairs ...string) []byte {
	if len(pairs) == 0 || pairs[0][0] != ':' {
		pairs = append([]string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/"}, pairs...)
	}
	p.block.Reset()
	for i := 0; i+1 < len(pairs); i += 2 {
		p.must(p.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}))
	}
	return bytes.Clone(p.block.Bytes())
}

func (p *peer) open(id uint32, end bool, pairs ...string) {
	p.t.Helper()
	p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.fields(pairs...), EndHeaders: true, EndStream: end}))
}

var post = []string{":method", "POST", ":scheme", "https", ":authority", "a", ":path", "/"}

// next returns the next frame of a type and skips other frames. It returns nil if the connection ended first.
func next[F http2.Frame](p *peer) (f F) {
	p.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case got, ok := <-p.frames:
			if !ok {
				return f
			}
			if want, ok := got.(F); ok {
				return want
			}
		case <-deadline:
			p.t.Fatalf("no %T within the deadline, want one", f)
		}
	}
}

// goneAway returns the code of the last GOAWAY before the connection ends.
func (p *peer) goneAway() http2.ErrCode {
	p.t.Helper()
	code := http2.ErrCode(999)
	for {
		f := next[*http2.GoAwayFrame](p)
		if f == nil {
			return code
		}
		code = f.ErrCode
	}
}

// answered is a complete response on a stream.
type answered struct {
	status  string
	header  http.Header
	trailer http.Header
	body    string
	interim []string
	reset   http2.ErrCode
	ended   bool
}

// answers decodes the header blocks of responses. Each test must read all of them in order.
type answers struct {
	*peer
	decoder *hpack.Decoder
	all     map[uint32]*answered
}

func (p *peer) answers() *answers {
	return &answers{peer: p, decoder: hpack.NewDecoder(4096, nil), all: map[uint32]*answered{}}
}

func (a *answers) of(id uint32) *answered {
	if a.all[id] == nil {
		a.all[id] = &answered{header: http.Header{}, trailer: http.Header{}}
	}
	return a.all[id]
}

// wait reads until stream id has ended.
func (a *answers) wait(id uint32) *answered {
	a.t.Helper()
	return a.until(id, func(r *answered) bool { return r.ended })
}

var errNoAnswer = errors.New("no answer")

func (a *answers) until(id uint32, enough func(*answered) bool) *answered {
	a.t.Helper()
	deadline := time.After(30 * time.Second)
	for !enough(a.of(id)) {
		select {
		case f, ok := <-a.frames:
			if !ok {
				a.t.Fatalf("connection ended before stream %d, want the end of the stream", id)
			}
			a.note(f)
		case <-deadline:
			a.t.Fatalf("stream %d: %v: %+v, want a response", id, errNoAnswer, a.of(id))
		}
	}
	return a.of(id)
}

func (a *answers) note(f http2.Frame) {
	r := a.of(f.Header().StreamID)
	switch f := f.(type) {
	case *headersOf:
		fields, err := a.decoder.DecodeFull(f.block)
		a.must(err)
		r.head(fields)
		r.ended = f.Flags.Has(http2.FlagHeadersEndStream)
	case *dataOf:
		r.body += string(f.data)
		r.ended = f.Flags.Has(http2.FlagDataEndStream)
	case *http2.RSTStreamFrame:
		r.reset, r.ended = f.ErrCode, true
	}
}

func (r *answered) head(fields []hpack.HeaderField) {
	to := r.header
	switch {
	case r.status != "":
		to = r.trailer
	case len(fields) > 0 && fields[0].Value[0] == '1':
		to = http.Header{}
	}
	for _, f := range fields {
		switch {
		case f.Name != ":status":
			to.Add(f.Name, f.Value)
		case f.Value[0] == '1':
			r.interim = append(r.interim, f.Value)
		default:
			r.status = f.Value
		}
	}
}

func hpackField(name, value string) hpack.HeaderField {
	return hpack.HeaderField{Name: name, Value: value, Sensitive: true}
}
