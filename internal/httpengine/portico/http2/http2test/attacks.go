package http2test

import (
	"bytes"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// script writes frames that the test chooses.
type script struct {
	out     bytes.Buffer
	block   bytes.Buffer
	encoder *hpack.Encoder
	*http2.Framer
}

func newScript() *script {
	s := &script{}
	s.Framer = http2.NewFramer(&s.out, nil)
	s.AllowIllegalWrites = true
	s.encoder = hpack.NewEncoder(&s.block)
	return s
}

// fields returns a header block of names and values.
func (s *script) fields(pairs ...string) []byte {
	s.block.Reset()
	for i := 0; i+1 < len(pairs); i += 2 {
		_ = s.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}) // writes to a buffer do not fail
	}
	return bytes.Clone(s.block.Bytes())
}

func (s *script) headers(id uint32, end bool, pairs ...string) {
	_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.fields(pairs...), EndHeaders: true, EndStream: end})
}

func request(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "https", ":authority", "a", ":path", path}, more...)
}

func seedOf(write func(s *script)) []byte {
	s := newScript()
	write(s)
	return append([]byte{Verbatim}, s.out.Bytes()...)
}

// ClientAttacks returns the inputs of known attacks by clients, in reduced form, and of the cases of
// golang.org/x/net/http2's server tests that concern frames and fields.
func ClientAttacks() (seeds [][]byte) {
	for _, write := range clientScripts {
		seeds = append(seeds, seedOf(write))
	}
	for _, list := range rejectedFields {
		seeds = append(seeds, seedOf(func(s *script) { s.headers(1, true, list...) }))
	}
	return seeds
}

var clientScripts = []func(s *script){
	func(s *script) { // CVE-2023-44487
		for id := uint32(1); id < 20; id += 2 {
			s.headers(id, true, request("GET", "/wait")...)
			_ = s.WriteRSTStream(id, http2.ErrCodeCancel)
		}
	},
	func(s *script) { // CVE-2025-8671, by windows
		for id := uint32(1); id < 12; id += 2 {
			s.headers(id, true, request("GET", "/wait")...)
			_ = s.WriteRawFrame(http2.FrameWindowUpdate, 0, id, []byte{0, 0, 0, 0})
		}
	},
	func(s *script) { // CVE-2025-8671, by a window that overflows, DATA on a half-closed stream, and an invalid length
		s.headers(1, true, request("GET", "/wait")...)
		_ = s.WriteWindowUpdate(1, 1<<31-1)
		s.headers(3, true, request("GET", "/wait")...)
		_ = s.WriteData(3, true, []byte("x"))
		s.headers(5, false, request("POST", "/echo", "content-length", "1")...)
		_ = s.WriteData(5, true, []byte("xy"))
	},
	func(s *script) { // CVE-2023-45288
		_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.fields(request("GET", "/now")...)})
		for range 40 {
			_ = s.WriteContinuation(1, false, nil)
		}
	},
	func(s *script) { // CVE-2019-9512, 9515, 9518
		for range 12 {
			_ = s.WritePing(false, [8]byte{})
			_ = s.WriteSettings()
			_ = s.WriteData(1, false, nil)
		}
	},
	func(s *script) { // CVE-2019-9518: empty DATA on an open stream
		s.headers(1, false, request("POST", "/echo")...)
		for range 30 {
			_ = s.WriteData(1, false, nil)
		}
	},
	func(s *script) { // CVE-2019-9517, CVE-2016-1546: responses without windows
		_ = s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		s.headers(1, true, request("GET", "/large")...)
		s.headers(3, true, request("GET", "/large")...)
		for range 10 {
			_ = s.WriteWindowUpdate(1, 1)
		}
	},
	func(s *script) { // HPACK bomb
		block := s.fields(append(request("GET", "/now"), "x", string(bytes.Repeat([]byte("v"), 3000)))...)
		_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: append(block, bytes.Repeat([]byte{0xbe}, 500)...), EndHeaders: true, EndStream: true})
	},
	func(s *script) { // many tiny fields, cookie crumbs
		list := request("GET", "/echo")
		for range 200 {
			list = append(list, "cookie", "a=b")
		}
		s.headers(1, true, list...)
	},
	func(s *script) { // CVE-2026-33814
		_ = s.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0})
		s.headers(1, true, request("GET", "/now")...)
	},
	func(s *script) { // frames after GOAWAY
		_ = s.WriteGoAway(0, http2.ErrCodeNo, nil)
		s.headers(1, true, request("GET", "/now")...)
	},
	func(s *script) { // CVE-2021-21409
		s.headers(1, false, request("POST", "/echo", "content-length", "5")...)
		_ = s.WriteData(1, true, []byte("POST / HTTP/1.1"))
	},
	func(s *script) { // TestServer_Handles_Fragmented headers, and trailers
		_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.fields(request("POST", "/echo", "trailer", "x-t")...), EndHeaders: true})
		_ = s.WriteDataPadded(1, false, []byte("hello"), make([]byte, 10))
		_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.fields("x-t", "1"), EndStream: true})
		_ = s.WriteContinuation(1, true, s.fields("x-u", "2"))
	},
	func(s *script) { // a stream's window, opened by SETTINGS after the response began
		_ = s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
		s.headers(1, true, request("GET", "/large")...)
		_ = s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		_ = s.WriteWindowUpdate(1, 10)
		_ = s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	},
	func(s *script) { _ = s.WriteRSTStream(1, http2.ErrCodeCancel) }, // of a stream that has not begun
	func(s *script) { _ = s.WriteWindowUpdate(1, 1) },
	func(s *script) { _ = s.WriteData(1, true, []byte("x")) },
	func(s *script) { _ = s.WriteContinuation(1, true, nil) },
	func(s *script) { // an interrupted block
		_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.fields(request("GET", "/now")...)})
		_ = s.WritePing(false, [8]byte{})
	},
	func(s *script) { // more streams than allowed, and one more when one has ended
		for id := uint32(1); id < 10; id += 2 {
			s.headers(id, true, request("GET", "/wait")...)
		}
		_ = s.WriteRSTStream(1, http2.ErrCodeCancel)
		s.headers(11, true, request("GET", "/now")...)
	},
}

// rejectedFields are the fields of TestServer_Request_Reject_* and similar tests.
var rejectedFields = [][]string{
	request("GET", "/echo", "UPPER", "v"), request("GET", "/echo", "foo\xffbar", "v"), request("GET", "/echo", "foo:bar", "v"), request("GET", "/echo", "foo", "has\nnewline"),
	request("GET", "/echo", ":unknown_thing", "v"), request("GET", "/echo", "x", "y", ":method", "GET"), request("GET", ""), request("GET", "/echo", "connection", "keep-alive"),
	request("GET", "/echo", "te", "gzip, trailers"), request("CONNECT", "/echo"), {":method", "CONNECT", ":authority", "a:443"}, {":method", "GET", ":path", "/echo", ":scheme", "https"},
	{":method", "GET", ":scheme", "https", ":path", "/echo", "host", "a"}, {":scheme", "https", ":path", "/echo"}, request("POST", "/echo", "content-length", "-1"),
	request("GET", "/x HTTP/1.1\r\nHost: a\r\n\r\nGET /y"), {":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":path", "/echo", ":authority", "a"},
}

// ServerAttacks returns the inputs of known attacks by servers, in reduced form, and of the cases of
// golang.org/x/net/http2's transport tests that concern frames and fields.
func ServerAttacks() (seeds [][]byte) {
	begin := func(s *script, more ...string) { s.headers(1, false, append([]string{":status", "200"}, more...)...) }
	for _, write := range []func(s *script){
		func(s *script) { begin(s, "content-length", "5"); _ = s.WriteData(1, true, []byte("hello")) },
		func(s *script) { begin(s, "content-length", "3"); _ = s.WriteData(1, true, []byte("hello")) },
		func(s *script) { begin(s); _ = s.WriteData(1, false, []byte("hello")); s.headers(1, true, "x-t", "1") },
		func(s *script) { begin(s); _ = s.WriteRSTStream(1, http2.ErrCodeNo) },
		func(s *script) {
			_ = s.WriteRSTStream(1, http2.ErrCodeRefusedStream)
			_ = s.WriteGoAway(1, http2.ErrCodeNo, nil)
		},
		func(s *script) { // endless 1xx
			for range 15 {
				s.headers(1, false, ":status", "103", "link", "a")
			}
		},
		func(s *script) { s.headers(1, true, ":status", "100"); s.headers(3, false, ":status", "101") },
		func(s *script) {
			_ = s.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
			begin(s)
			_ = s.WriteData(1, true, nil)
		},
		func(s *script) { // CVE-2023-45288
			_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.fields(":status", "200")})
			for range 40 {
				_ = s.WriteContinuation(1, false, []byte{0x88})
			}
		},
		func(s *script) { _ = s.WriteContinuation(1, true, nil) },
		func(s *script) { // an interrupted block
			_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.fields(":status", "200")})
			_ = s.WritePing(false, [8]byte{})
		},
		func(s *script) { // HPACK bomb
			block := s.fields(":status", "200", "x", string(bytes.Repeat([]byte("v"), 3000)))
			_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: append(block, bytes.Repeat([]byte{0xbe}, 500)...), EndHeaders: true, EndStream: true})
		},
		func(s *script) {
			_ = s.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
			begin(s)
		},
		func(s *script) { _ = s.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}) },
		func(s *script) {
			_ = s.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: s.fields(request("GET", "/")...), EndHeaders: true})
		},
		func(s *script) {
			s.headers(1, true, ":status", "204", "content-length", "5")
			s.headers(3, true, ":status", "304", "content-length", "5")
		},
		func(s *script) {
			s.headers(1, true, ":status", "200", "connection", "close", "transfer-encoding", "chunked", "upgrade", "h2c")
		},
		func(s *script) { s.headers(1, true, "x", "y"); s.headers(3, true, ":status", "200", ":status", "200") },
		func(s *script) {
			begin(s, "trailer", "x-t, content-length")
			s.headers(1, true, "x-t", "1", "content-length", "5")
		},
		func(s *script) { _ = s.WriteWindowUpdate(0, 1<<31-1); _ = s.WriteWindowUpdate(1, 0) },
	} {
		seeds = append(seeds, seedOf(write))
	}
	return seeds
}
