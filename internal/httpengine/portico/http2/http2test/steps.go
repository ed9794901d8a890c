// Package http2test converts the input of a fuzz test to HTTP/2 frames that a frame reader accepts, and records the other
// side's reaction to each. Only tests use it.
package http2test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Step is one frame, or a header block in several frames, that is written at once.
type Step struct {
	Bytes []byte
	// Type, Flags, Stream and Length are the values of the first frame.
	Type   http2.FrameType
	Flags  byte
	Stream uint32
	Length int
	// What describes the step.
	What string
}

// Sides of a connection.
const (
	client = iota
	server
)

const (
	// maxSteps is the maximum number of steps generated from one input.
	maxSteps = 48
	// maxFrames is the maximum number of frames of a header block. It exceeds the number of frames that a side accepts for
	// a block within its limits.
	maxFrames = 1000
)

// FromClient converts data to the frames of a client, after its preface and its first SETTINGS.
func FromClient(data []byte) []Step { return generate(data, client) }

// FromServer converts data to the frames of a server, after its first SETTINGS. The requests are on streams 1 and 3.
func FromServer(data []byte) []Step { return generate(data, server) }

type generator struct {
	side    int
	in      []byte
	newest  uint32
	out     bytes.Buffer
	framer  *http2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
	decoder *hpack.Decoder // decodes all generated blocks, to describe the ones that the input contains
	decoded []string
	what    []string
}

// Verbatim is the first byte of an input that contains frames instead of choices.
const Verbatim = 0xff

func generate(data []byte, side int) (steps []Step) {
	if len(data) > 0 && data[0] == Verbatim {
		return verbatim(data[1:])
	}
	g := &generator{side: side, in: data}
	g.framer = http2.NewFramer(&g.out, nil)
	g.framer.AllowIllegalWrites = true
	g.encoder = hpack.NewEncoder(&g.block)
	g.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) { g.decoded = append(g.decoded, describe(f)) })
	if side == server {
		g.newest = 3
	}
	for len(g.in) > 0 && len(steps) < maxSteps {
		g.out.Reset()
		g.what = g.what[:0]
		g.step()
		s := step(bytes.Clone(g.out.Bytes()))
		s.What = strings.Join(g.what, " ")
		steps = append(steps, s)
	}
	return steps
}

// verbatim splits data into frames.
func verbatim(data []byte) (steps []Step) {
	var fields []string
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) { fields = append(fields, describe(f)) })
	for len(data) >= 9 && len(steps) < maxSteps {
		n := min(9+(int(data[0])<<16|int(data[1])<<8|int(data[2])), len(data))
		s := step(data[:n])
		if block, ok := blockOf(&s); ok {
			fields = nil
			_, _ = d.Write(block) // invalid blocks are not described
			s.What += " " + strings.Join(fields, " ")
		}
		steps = append(steps, s)
		data = data[n:]
	}
	return steps
}

func describe(f hpack.HeaderField) string { return fmt.Sprintf("%q=%.40q", f.Name, f.Value) }

// blockOf returns the header block fragment of a frame.
func blockOf(s *Step) ([]byte, bool) {
	p := s.Bytes[9:]
	if s.Type == http2.FrameContinuation {
		return p, true
	}
	if s.Type != http2.FrameHeaders {
		return nil, false
	}
	if s.Flags&8 != 0 {
		if len(p) == 0 || int(p[0]) >= len(p) {
			return nil, false
		}
		p = p[1 : len(p)-int(p[0])]
	}
	if s.Flags&0x20 != 0 {
		if len(p) < 5 {
			return nil, false
		}
		p = p[5:]
	}
	return p, true
}

// step returns a Step with the given frames.
func step(b []byte) Step {
	s := Step{
		Bytes: b, Type: http2.FrameType(b[3]), Flags: b[4], Stream: binary.BigEndian.Uint32(b[5:]), Length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
	}
	s.What = fmt.Sprintf("%v flags %#x stream %d length %d %.300q", s.Type, s.Flags, s.Stream, s.Length, b[9:])
	return s
}

// next returns the next byte of the input, and 0 after its end.
func (g *generator) next() byte {
	if len(g.in) == 0 {
		return 0
	}
	b := g.in[0]
	g.in = g.in[1:]
	return b
}

// take returns the next n bytes of the input, or fewer at its end.
func (g *generator) take(n int) []byte {
	n = min(n, len(g.in))
	b := g.in[:n]
	g.in = g.in[n:]
	return b
}

func (g *generator) note(format string, args ...any) {
	g.what = append(g.what, fmt.Sprintf(format, args...))
}

// stream chooses a stream: usually one that has begun, or a new one.
func (g *generator) stream(begins bool) uint32 {
	b := g.next()
	switch {
	case b < 0xd0 && begins && g.side == client || g.newest == 0:
		g.newest = g.newest&^1 + 1 + 2*(g.newest&1)
		return g.newest
	case b < 0x80:
		return g.newest
	case b < 0xe0:
		return max(g.newest, 2*uint32(b&3)) - 2*uint32(b&3) | g.newest&1
	case b < 0xf0:
		return uint32(b & 7)
	}
	return g.newest + uint32(b&15)
}

func (g *generator) step() {
	switch op := g.next(); {
	case op < 0x60:
		g.headers(op < 0x10)
	case op < 0x90:
		g.data()
	case op < 0xa8:
		g.windowUpdate()
	case op < 0xb8:
		g.settings()
	case op < 0xc8:
		g.reset()
	case op < 0xd8:
		g.note("PING")
		g.raw(http2.FramePing, g.next()&1, 0, []byte("12345678"))
	case op < 0xe8:
		g.priority()
	case op < 0xec:
		g.goAway()
	case op < 0xf0:
		g.note("CONTINUATION")
		g.raw(http2.FrameContinuation, g.next(), g.stream(false), g.take(int(g.next()%32)))
	case op < 0xf2:
		g.note("PUSH_PROMISE")
		id := g.stream(false)
		block := append(binary.BigEndian.AppendUint32(nil, uint32(g.next())), g.request()...)
		g.raw(http2.FramePushPromise, g.next(), id, block)
	case op < 0xfd:
		g.note("RAW")
		kind := http2.FrameType(g.next() % 24)
		g.raw(kind, g.next(), g.stream(true), g.take(int(g.next())))
	default:
		g.oversized()
	}
}

func (g *generator) raw(kind http2.FrameType, flags byte, id uint32, payload []byte) {
	g.note("%v flags %#x stream %d length %d", kind, flags, id, len(payload))
	_ = g.framer.WriteRawFrame(kind, http2.Flags(flags), id, payload) // writes to a buffer do not fail
}

// headers generates a request or a response, or trailers, in one frame or in several.
func (g *generator) headers(several bool) {
	flags := g.next()
	trailers, raw := flags&0x40 != 0, flags&0x80 != 0 && flags&0x10 != 0
	id := g.stream(!trailers)
	g.note("HEADERS")
	var block []byte
	switch {
	case raw:
		block = g.take(int(g.next()))
		g.note("raw block")
	case trailers:
		block = g.fields(nil)
	case g.side == client:
		block = g.request()
	default:
		block = g.response()
	}
	g.decoded = g.decoded[:0]
	_, _ = g.decoder.Write(block) // invalid blocks are not described
	_ = g.decoder.Close()
	if raw {
		g.what = append(g.what, g.decoded...)
	}
	var frame byte
	if flags&1 != 0 {
		frame |= 1 // END_STREAM
	}
	if flags&2 != 0 && flags&4 != 0 {
		frame |= 0x20 // priority
		block = append([]byte{g.next() & 0x80, 0, 0, g.next() % 8, g.next()}, block...)
	}
	if flags&8 != 0 && flags&4 != 0 {
		frame |= 8
		pad := g.next()
		block = append(append([]byte{pad}, block...), make([]byte, pad%16)...)
	}
	if !several && len(block) <= 1<<14 {
		g.raw(http2.FrameHeaders, frame|4, id, block)
		return
	}
	kind := http2.FrameHeaders
	size := max(int(g.next())*64, len(block)/maxFrames) + 1
	for ; ; frame, kind = 0, http2.FrameContinuation {
		n := min(size, len(block), 1<<14)
		if n == len(block) {
			frame |= 4
		}
		g.raw(kind, frame, id, block[:n])
		if block = block[n:]; len(block) == 0 {
			return
		}
	}
}

func (g *generator) data() {
	id := g.stream(false)
	flags := g.next() & 0x9
	payload := g.take(int(g.next() % 64))
	if b := g.next(); b >= 0xf0 {
		payload = make([]byte, 1<<14-int(b&1))
	}
	if flags&8 != 0 {
		pad := g.next()
		payload = append(append([]byte{pad}, payload...), make([]byte, pad%16)...)
	}
	g.raw(http2.FrameData, flags, id, payload)
}

func (g *generator) reset() {
	id := g.stream(false)
	payload := binary.BigEndian.AppendUint32(nil, uint32(g.next()%16))
	if b := g.next(); b >= 0xf0 {
		payload = payload[:b&3]
	}
	g.raw(http2.FrameRSTStream, 0, id, payload)
}

// values are boundary values of windows and settings.
var values = [...]uint32{0, 1, 2, 100, 16383, 16384, 65535, 65536, 1<<20 - 1, 1 << 20, 1<<24 - 1, 1 << 24, 1<<31 - 1 - 65535, 1<<31 - 65535, 1<<31 - 1, 1 << 31}

func (g *generator) value() uint32 { return values[g.next()%byte(len(values))] }

func (g *generator) settings() {
	flags, id := byte(0), uint32(0)
	if b := g.next(); b >= 0xf0 {
		flags, id = b&1, uint32(b&2)
	}
	var payload []byte
	for range g.next() % 4 {
		name, value := uint16(g.next()%10), g.value()
		payload = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(payload, name), value)
		g.note("%v=%d", http2.SettingID(name), value)
	}
	if b := g.next(); b >= 0xf0 {
		payload = append(payload, b)
	}
	g.raw(http2.FrameSettings, flags, id, payload)
}

func (g *generator) goAway() {
	payload := binary.BigEndian.AppendUint32(nil, g.value())
	payload = binary.BigEndian.AppendUint32(payload, uint32(g.next()%16))
	id := uint32(0)
	if b := g.next(); b >= 0xf0 {
		id = uint32(b & 3)
		payload = payload[:b&7]
	}
	g.raw(http2.FrameGoAway, 0, id, payload)
}

func (g *generator) windowUpdate() {
	id := g.stream(false)
	if b := g.next(); b&1 != 0 {
		id = 0
	}
	increment := g.value()
	payload := binary.BigEndian.AppendUint32(nil, increment)
	if b := g.next(); b >= 0xf0 {
		payload = payload[:b&3]
	}
	g.note("increment %d", increment)
	g.raw(http2.FrameWindowUpdate, 0, id, payload)
}

func (g *generator) priority() {
	id := g.stream(true)
	payload := []byte{0, 0, 0, g.next() % 8, g.next()}
	if b := g.next(); b >= 0xf0 {
		payload = payload[:b&3]
	}
	g.raw(http2.FramePriority, 0, id, payload)
}

// oversized generates a frame that is longer than 16 KiB.
func (g *generator) oversized() {
	kind := http2.FrameType(g.next() % 10)
	g.note("OVERSIZED")
	g.raw(kind, g.next(), g.stream(true), make([]byte, 1<<14+1+int(g.next())))
}

type field struct{ name, value string }

// one chooses an element of list. The first elements are the ordinary ones, which most messages should use.
func (g *generator) one(ordinary int, list []string) string {
	b := g.next()
	if b < 0xc0 {
		return list[int(b)%ordinary]
	}
	return list[int(b)%len(list)]
}

var (
	methods     = []string{"GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "CONNECT", "", "get", "G T", "GE\x00", "PRI"}
	paths       = []string{"/echo", "/now", "/wait", "/large", "/early", "/trailers", "/echo?a=b", "*", "", "echo", "/a b", "/a%2Fb", "/a%zz", "/a#b", "//x/y", "/\x80", "/?a=%zz", "/a?b c", "https://a/b", "/a:b;c", "/\x7f"}
	authorities = []string{"a", "a:443", "", "u@a", "a:b", "[::1]", "[::1", "a b", "a/b", "a,b", "\x80", "A"}
	schemes     = []string{"https", "http", "", "ftp", "HTTPS"}
	statuses    = []string{"200", "404", "204", "304", "103", "100", "101", "500", "", "abc", "2000", "099", "99", "+20", "999", "1000", " 200"}
)

// others are fields with a meaning to a receiver, and some invalid ones.
var others = []field{
	{"x-a", "b"}, {"x-a", "c"}, {"accept", "application/json"}, {"user-agent", "kubectl/v1.37.0"}, {"authorization", "Bearer a.b.c"},
	{"content-type", "application/json"}, {"accept-encoding", "gzip"}, {"content-length", "5"}, {"content-length", "0"}, {"cookie", "a=b"},
	{"cookie", "c=d"}, {"te", "trailers"}, {"expect", "100-continue"}, {"trailer", "x-t"}, {"x-t", "1"}, {"host", "a"}, {"priority", "u=1"},
	{"content-length", "3"}, {"content-length", "+5"}, {"content-length", "05"}, {"content-length", "a"}, {"content-length", "5, 5"},
	{"content-length", ""}, {"content-length", "18446744073709551621"}, {"content-length", "9223372036854775808"}, {"content-length", "-1"},
	{"host", "b"}, {"host", "a b"}, {"host", ""}, {"connection", "close"}, {"connection", "x-a"}, {"keep-alive", "1"}, {"proxy-connection", "close"},
	{"transfer-encoding", "chunked"}, {"transfer-encoding", "identity"}, {"upgrade", "h2c"}, {"te", "gzip"}, {"te", ""}, {"expect", "200-ok"},
	{"trailer", "content-length"}, {"trailer", "x-t, x-u"}, {"trailer", ""}, {"x-u", "2"}, {"x-remote-user", "admin"}, {"date", "now"},
	{"X-Upper", "a"}, {"x y", "a"}, {"x\r\nb", "a"}, {"", "a"}, {":", "a"}, {":extra", "a"}, {":path", "/b"}, {":status", "200"}, {":method", "GET"},
	{":scheme", "https"}, {":authority", "b"}, {":protocol", "websocket"}, {"x-a", "a\r\nb: c"}, {"x-a", "a\x00b"}, {"x-a", " a "}, {"x-a", "a\t"}, {"x-a", "\x7f"},
	{"x-a", "\x80"}, {"x-a", ""}, {"x_a", "b"}, {"x-long", strings.Repeat("v", 4000)}, {"x-longer", strings.Repeat("v", 15000)},
	{"x-longest", strings.Repeat("v", 70000)}, {"x-bomb", strings.Repeat("v", 300000)},
}

// ordinaryFields is the number of elements of others that occur in ordinary messages.
const ordinaryFields = 17

// fields generates a header block of the given fields, and of fields from the input.
func (g *generator) fields(first []field) []byte {
	n := int(g.next())
	for range n % 6 {
		b := int(g.next())
		switch {
		case b < 0xa0:
			first = append(first, others[b%ordinaryFields])
		case b < 0xf8:
			first = append(first, others[b%len(others)])
		default:
			first = append(first, field{string(g.take(int(g.next() % 24))), string(g.take(int(g.next() % 64)))})
		}
	}
	if n >= 0xf8 { // at a different position in the block
		first = append(first[1%max(len(first), 1):], first[:1%max(len(first), 1)]...)
	}
	if n >= 0xf0 && n < 0xf8 {
		g.encoder.SetMaxDynamicTableSize(uint32(g.next()) * 64)
	}
	g.block.Reset()
	for _, f := range first {
		h := hpack.HeaderField{Name: f.name, Value: f.value, Sensitive: n&0x10 != 0}
		g.note("%s", describe(h))
		_ = g.encoder.WriteField(h) // writes to a buffer do not fail
	}
	return bytes.Clone(g.block.Bytes())
}

func (g *generator) request() []byte {
	missing := g.next()
	var list []field
	for i, f := range []field{
		{":method", g.one(5, methods)}, {":scheme", g.one(1, schemes)}, {":authority", g.one(2, authorities)}, {":path", g.one(6, paths)},
	} {
		if missing < 0xf0 || missing>>i&1 == 0 {
			list = append(list, f)
		}
	}
	return g.fields(list)
}

func (g *generator) response() []byte {
	if b := g.next(); b >= 0xf0 {
		return g.fields(nil)
	}
	return g.fields([]field{{":status", g.one(5, statuses)}})
}
