package http2_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// waits answers /good at once, /read after reading the body, and other paths when the client has disconnected.
func waits(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/good":
	case "/read":
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusTeapot)
		}
	default:
		<-r.Context().Done()
	}
}

// Server behavior that RFC 9113 requires for invalid client behavior. If a stream error and a connection error are both allowed (5.4),
// both are listed.
func TestInvalidClientFramesAreRejected(t *testing.T) {
	const (
		served       = "served"
		wrong        = "GOAWAY PROTOCOL_ERROR"
		wrongSize    = "GOAWAY FRAME_SIZE_ERROR"
		wrongFlow    = "GOAWAY FLOW_CONTROL_ERROR"
		wrongCoding  = "GOAWAY COMPRESSION_ERROR"
		closedStream = "GOAWAY STREAM_CLOSED"
		streamWrong  = "RST 1 PROTOCOL_ERROR, served"
	)
	get := func(p *peer, path string) uint32 { return p.get(path) }
	raw := func(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*peer) {
		return func(p *peer) {
			p.next = 3
			p.tell(p.WriteRawFrame(kind, flags, stream, []byte(payload)))
		}
	}
	fields := func(list ...string) func(*peer) { return func(p *peer) { p.open(true, list...) } }
	during := func(do func(*peer)) func(*peer) { // while a request without a body waits for its response
		return func(p *peer) { get(p, "/wait"); do(p) }
	}
	uploading := func(do func(*peer)) func(*peer) { // while the server waits for a body
		return func(p *peer) { p.open(false, request("POST", "/read")...); do(p) }
	}
	for _, test := range []struct {
		name string
		do   func(*peer)
		want []string
		// library is the behavior of net/http's server if it is more lenient, or if Portico's server is stricter.
		library string
	}{
		{"3.4: another first frame than SETTINGS", nil, []string{wrong}, ""},

		{"4.1: a type that nobody knows", raw(0x20, 0xff, 0, "abc"), []string{served}, ""},
		{"4.1: a type that nobody knows, on a stream that has not begun", raw(0x20, 0xff, 9, "abc"), []string{served}, ""},
		{"4.1: unknown flags", raw(http2.FramePing, 0xfe, 0, "12345678"), []string{served}, ""},
		{"4.1: the reserved bit", raw(http2.FramePing, 0, 1<<31, "12345678"), []string{served}, ""},
		{"4.2: DATA that is too long", uploading(func(p *peer) { p.tell(p.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 16385))) }),
			[]string{wrongSize, "RST 1 FRAME_SIZE_ERROR, served"}, ""},
		{"4.2: HEADERS that are too long", raw(http2.FrameHeaders, 5, 1, strings.Repeat("\x00", 16385)), []string{wrongSize}, ""},
		{"4.3: a block that does not decode", raw(http2.FrameHeaders, 5, 1, "\xff\x80\x01"), []string{wrongCoding}, ""},
		{"4.3: a block that is cut short", raw(http2.FrameHeaders, 5, 1, "\x82\x00\x05ab"), []string{wrongCoding}, ""},
		{"4.3: another frame within a block", func(p *peer) {
			p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(request("GET", "/good")...)}))
			p.tell(p.WritePing(false, [8]byte{}))
		}, []string{wrong}, ""},
		{"4.3: another stream's CONTINUATION within a block", func(p *peer) {
			p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(request("GET", "/good")...)}))
			p.tell(p.WriteContinuation(3, true, nil))
		}, []string{wrong}, ""},
		{"4.3: a frame that nobody knows within a block", func(p *peer) {
			p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(request("GET", "/good")...)}))
			p.tell(p.WriteRawFrame(0x20, 0, 1, nil))
		}, []string{wrong}, ""},

		{"5.1: DATA on an idle stream", raw(http2.FrameData, 1, 1, "abc"), []string{wrong}, ""},
		{"5.1: RST_STREAM on an idle stream", raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08"), []string{wrong}, ""},
		{"5.1: WINDOW_UPDATE on an idle stream", raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x08"), []string{wrong}, ""},
		{"5.1: CONTINUATION of nothing", raw(http2.FrameContinuation, 4, 1, "\x82"), []string{wrong}, ""},
		{"5.1: PRIORITY on an idle stream", raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x00\x10"), []string{served}, ""},
		{"5.1: DATA after the end", during(raw(http2.FrameData, 1, 1, "abc")), []string{"RST 1 STREAM_CLOSED, served", closedStream}, ""},
		{"5.1: HEADERS after the end", during(func(p *peer) { p.headers(1, true, "a", "b") }), []string{"RST 1 STREAM_CLOSED, served", closedStream}, ""},
		{"5.1: CONTINUATION after the end", during(raw(http2.FrameContinuation, 4, 1, "\x82")), []string{wrong}, ""},
		{"5.1: WINDOW_UPDATE after the end", during(raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x08")), []string{served}, ""},
		{"5.1: PRIORITY after the end", during(raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x00\x10")), []string{served}, ""},
		{"5.1: DATA after our RST_STREAM", func(p *peer) {
			p.open(false, request("POST", "/wait")...)
			p.tell(p.WriteRSTStream(1, http2.ErrCodeCancel))
			p.tell(p.WriteData(1, true, []byte("x")))
		}, []string{"RST 1 STREAM_CLOSED, served", closedStream}, ""},
		{"5.1: HEADERS after our RST_STREAM", func(p *peer) {
			p.open(false, request("POST", "/wait")...)
			p.tell(p.WriteRSTStream(1, http2.ErrCodeCancel))
			p.headers(1, true, request("GET", "/good")...)
		}, []string{"RST 1 STREAM_CLOSED, served", closedStream, wrong}, ""},
		{"5.1: RST_STREAM twice", during(func(p *peer) {
			p.tell(p.WriteRSTStream(1, http2.ErrCodeCancel))
			p.tell(p.WriteRSTStream(1, http2.ErrCodeCancel))
		}), []string{served}, ""},
		{"5.1.1: an even stream", func(p *peer) { p.headers(2, true, request("GET", "/good")...) }, []string{wrong}, ""},
		{"5.1.1: an older stream", func(p *peer) {
			p.headers(5, true, request("GET", "/wait")...)
			p.headers(3, true, request("GET", "/good")...)
			p.next = 7
		}, []string{wrong}, ""},
		{"5.3.1: HEADERS that depend on themselves", func(p *peer) {
			p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id(), BlockFragment: p.encode(request("GET", "/wait")...), EndHeaders: true,
				EndStream: true, Priority: http2.PriorityParam{StreamDep: 1, Weight: 1}}))
		}, []string{streamWrong, wrong}, ""},
		{"5.3.1: PRIORITY that depends on itself", during(raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x01\x10")), []string{streamWrong, wrong}, ""},

		{"6.1: DATA on no stream", raw(http2.FrameData, 1, 0, "abc"), []string{wrong}, ""},
		{"6.1: padding as long as DATA", uploading(raw(http2.FrameData, 9, 1, "\x04abc")), []string{wrong}, ""},
		{"6.1: padded DATA without a length", uploading(raw(http2.FrameData, 9, 1, "")), []string{wrongSize, wrong}, "closed"},
		{"6.1: nothing but padding", uploading(raw(http2.FrameData, 9, 1, "\x03\x00\x00\x00")), []string{served}, ""},
		{"6.2: HEADERS on no stream", raw(http2.FrameHeaders, 5, 0, "\x82"), []string{wrong}, ""},
		{"6.2: padding as long as HEADERS", raw(http2.FrameHeaders, 13, 1, "\x02\x82"), []string{wrong}, "RST 1 PROTOCOL_ERROR, served"},
		{"6.2: a priority that is cut short", raw(http2.FrameHeaders, 0x25, 1, "\x82"), []string{wrongSize, wrong}, "closed"},
		{"6.3: PRIORITY on no stream", raw(http2.FramePriority, 0, 0, "\x00\x00\x00\x01\x10"), []string{wrong}, ""},
		{"6.3: PRIORITY of another length", during(raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x01")), []string{"RST 1 FRAME_SIZE_ERROR, served", wrongSize}, ""},
		{"6.4: RST_STREAM on no stream", raw(http2.FrameRSTStream, 0, 0, "\x00\x00\x00\x01"), []string{wrong}, ""},
		{"6.4: RST_STREAM of another length", during(raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x01")), []string{wrongSize}, ""},
		{"6.5: SETTINGS on a stream", raw(http2.FrameSettings, 0, 1, ""), []string{wrong}, ""},
		{"6.5: SETTINGS of another length", raw(http2.FrameSettings, 0, 0, "\x00\x00\x00"), []string{wrongSize}, ""},
		{"6.5: an acknowledgement with something in it", raw(http2.FrameSettings, 1, 0, "\x00\x03\x00\x00\x00\x01"), []string{wrongSize}, ""},
		{"6.5.2: ENABLE_PUSH 2", func(p *peer) { p.tell(p.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2})) }, []string{wrong}, ""},
		{"6.5.2: a window that is too large", func(p *peer) {
			p.tell(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}))
		}, []string{wrongFlow}, ""},
		{"6.5.2: frames that are too small", func(p *peer) { p.tell(p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 16383})) }, []string{wrong}, ""},
		{"6.5.2: frames that are too large", func(p *peer) { p.tell(p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 24})) }, []string{wrong}, ""},
		{"6.5.2: a setting that nobody knows", func(p *peer) { p.tell(p.WriteSettings(http2.Setting{ID: 0xff, Val: 1 << 31})) }, []string{served}, ""},
		{"6.5.3: an acknowledgement of nothing", func(p *peer) { p.tell(p.WriteSettingsAck()) }, []string{served, wrong}, ""},
		{"6.6: PUSH_PROMISE", raw(http2.FramePushPromise, 4, 1, "\x00\x00\x00\x02\x82"), []string{wrong}, ""},
		{"6.7: PING on a stream", raw(http2.FramePing, 0, 1, "12345678"), []string{wrong}, ""},
		{"6.7: PING of another length", raw(http2.FramePing, 0, 0, "1234567"), []string{wrongSize}, ""},
		{"6.8: GOAWAY on a stream", raw(http2.FrameGoAway, 0, 1, "\x00\x00\x00\x00\x00\x00\x00\x00"), []string{wrong}, ""},
		{"6.8: GOAWAY that is cut short", raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00"), []string{wrongSize}, ""},
		{"6.9: WINDOW_UPDATE of nothing", raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00"), []string{wrong}, ""},
		{"6.9: WINDOW_UPDATE of nothing, on a stream", during(raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00")), []string{streamWrong, wrong}, ""},
		{"6.9: WINDOW_UPDATE of another length", raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x01"), []string{wrongSize}, ""},
		{"6.9.1: a window of the connection that is too large", raw(http2.FrameWindowUpdate, 0, 0, "\x7f\xff\xff\xff"), []string{wrongFlow}, ""},
		{"6.9.1: a window of a stream that is too large", during(raw(http2.FrameWindowUpdate, 0, 1, "\x7f\xff\xff\xff")),
			[]string{"RST 1 FLOW_CONTROL_ERROR, served", wrongFlow}, ""},
		{"6.9.2: a setting that makes a window too large", during(func(p *peer) {
			p.tell(p.WriteWindowUpdate(1, 1<<31-1-65535))
			p.tell(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 65536}))
		}), []string{wrongFlow}, ""},
		{"6.10: CONTINUATION on no stream", func(p *peer) {
			p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(request("GET", "/good")...)}))
			p.tell(p.WriteContinuation(0, true, nil))
		}, []string{wrong}, ""},
		{"6.10: CONTINUATION after END_HEADERS", during(func(p *peer) { p.tell(p.WriteContinuation(1, true, p.encode("a", "b"))) }), []string{wrong}, ""},

		{"8.1: trailers that do not end the stream", uploading(func(p *peer) { p.headers(1, false, "a", "b") }), []string{streamWrong, wrong}, ""},
		{"8.1: a pseudo field in trailers", uploading(func(p *peer) { p.headers(1, true, ":path", "/x") }), []string{streamWrong, wrong}, ""},
		{"8.1.1: DATA longer than its length", func(p *peer) {
			p.open(false, request("POST", "/wait", "content-length", "2")...)
			p.tell(p.WriteData(1, true, []byte("abc")))
		}, []string{streamWrong, wrong}, ""},
		{"8.1.1: DATA shorter than its length", func(p *peer) {
			p.open(false, request("POST", "/wait", "content-length", "4")...)
			p.tell(p.WriteData(1, true, []byte("abc")))
		}, []string{streamWrong, wrong}, "served"}, // Read fails in its handler.
		{"8.1.1: trailers before the length is reached", func(p *peer) {
			p.open(false, request("POST", "/wait", "content-length", "4")...)
			p.tell(p.WriteData(1, false, []byte("abc")))
			p.headers(1, true, "a", "b")
		}, []string{streamWrong, wrong}, "served"}, // as above
		{"8.1.1: a length without a body", fields(request("POST", "/wait", "content-length", "3")...), []string{streamWrong, wrong}, "served"},
		{"8.1.1: two lengths", func(p *peer) {
			p.open(false, request("POST", "/wait", "content-length", "3", "content-length", "4")...)
		}, []string{streamWrong, wrong}, "served"}, // net/http's server uses the first one.
		{"8.1.1: a length that is none", func(p *peer) {
			p.open(false, request("POST", "/wait", "content-length", "x")...)
		}, []string{streamWrong, wrong}, "served"}, // net/http's server uses 0, and reading the body fails.
		{"8.2: a capital in a name", fields(request("GET", "/wait", "X-Capital", "x")...), []string{streamWrong, wrong}, ""},
		{"8.2.1: a space in a name", fields(request("GET", "/wait", "x y", "x")...), []string{streamWrong, wrong}, ""},
		{"8.2.1: a colon in a name", fields(request("GET", "/wait", "x:y", "x")...), []string{streamWrong, wrong}, ""},
		{"8.2.1: a line feed in a value", fields(request("GET", "/wait", "x", "a\nb")...), []string{streamWrong, wrong}, ""},
		{"8.2.1: a carriage return in a value", fields(request("GET", "/wait", "x", "a\rb")...), []string{streamWrong, wrong}, ""},
		{"8.2.1: a NUL in a value", fields(request("GET", "/wait", "x", "a\x00b")...), []string{streamWrong, wrong}, ""},
		{"8.2.2: Connection", fields(request("GET", "/good", "connection", "close")...), []string{"1 400, served", streamWrong}, ""},
		{"8.2.2: Keep-Alive", fields(request("GET", "/good", "keep-alive", "1")...), []string{"1 400, served", streamWrong}, ""},
		{"8.2.2: Proxy-Connection", fields(request("GET", "/good", "proxy-connection", "close")...), []string{"1 400, served", streamWrong}, ""},
		{"8.2.2: Transfer-Encoding", fields(request("GET", "/good", "transfer-encoding", "chunked")...), []string{"1 400, served", streamWrong}, ""},
		{"8.2.2: Upgrade", fields(request("GET", "/good", "upgrade", "websocket")...), []string{"1 400, served", streamWrong}, ""},
		{"8.2.2: TE that is not trailers", fields(request("GET", "/good", "te", "gzip")...), []string{"1 400, served", streamWrong}, ""},
		{"8.2.2: TE that is trailers", fields(request("GET", "/good", "te", "trailers")...), []string{served}, ""},
		{"8.3: a pseudo field that nobody knows", fields(request("GET", "/wait", ":test", "x")...), []string{streamWrong, wrong}, ""},
		{"8.3: a response's pseudo field", fields(append([]string{":status", "200"}, request("GET", "/wait")...)...), []string{streamWrong, wrong}, ""},
		{"8.3: a pseudo field after others", fields(append([]string{"a", "b"}, request("GET", "/wait")...)...), []string{streamWrong, wrong}, ""},
		{"8.3.1: :method twice", fields(append(request("GET", "/wait"), ":method", "GET")...), []string{streamWrong, wrong}, ""},
		{"8.3.1: :path twice", fields(append(request("GET", "/wait"), ":path", "/")...), []string{streamWrong, wrong}, ""},
		{"8.3.1: :scheme twice", fields(append(request("GET", "/wait"), ":scheme", "https")...), []string{streamWrong, wrong}, ""},
		{"8.3.1: :authority twice", fields(append(request("GET", "/wait"), ":authority", "b")...), []string{streamWrong, wrong}, ""},
		{"8.3.1: no :method", fields(":scheme", "https", ":authority", "a", ":path", "/wait"), []string{streamWrong, wrong}, ""},
		{"8.3.1: no :scheme", fields(":method", "GET", ":authority", "a", ":path", "/wait"), []string{streamWrong, wrong}, ""},
		{"8.3.1: no :path", fields(":method", "GET", ":scheme", "https", ":authority", "a"), []string{streamWrong, wrong}, ""},
		{"8.3.1: an empty :path", fields(request("GET", "")...), []string{streamWrong, wrong}, ""},
		{"8.3.1: a :path without a slash", fields(request("GET", "wait")...), []string{streamWrong, wrong}, ""},
		{"8.3.1: an :authority with a user", fields(":method", "GET", ":scheme", "https", ":authority", "u@a", ":path", "/wait"), []string{streamWrong, wrong}, ""},
		{"8.5: CONNECT with a path", fields(":method", "CONNECT", ":authority", "a:1", ":path", "/wait"), []string{streamWrong, wrong}, ""},
		{"8.5: CONNECT with a scheme", fields(":method", "CONNECT", ":authority", "a:1", ":scheme", "https"), []string{streamWrong, wrong}, ""},
		{"8.5: CONNECT to nowhere", fields(":method", "CONNECT"), []string{streamWrong, wrong}, ""},

		{"a block of a HEADERS and many CONTINUATIONs", func(p *peer) {
			block := p.encode(request("GET", "/good", "x", strings.Repeat("y", 300))...)
			p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id(), BlockFragment: block[:1], EndStream: true}))
			for chunk := range slices.Chunk(block[1:], 7) {
				p.tell(p.WriteContinuation(1, false, chunk))
			}
			p.tell(p.WriteContinuation(1, true, nil))
		}, []string{served}, ""},
		{"a block that begins in a CONTINUATION", func(p *peer) {
			p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id(), EndStream: true}))
			p.tell(p.WriteContinuation(1, true, p.encode(request("GET", "/good")...)))
		}, []string{served}, ""},
		{"a value beyond what is allowed", func(p *peer) { p.long(request("GET", "/good", "x", strings.Repeat("y", 100_000))) }, []string{"1 431, served"}, wrongCoding},
		{"headers beyond what is allowed, in many fields", func(p *peer) {
			list := request("GET", "/good")
			for range 40 {
				list = append(list, "x", strings.Repeat("y", 2000))
			}
			p.long(list)
		}, []string{"1 431, served"}, ""},
		{"a smaller table", func(p *peer) {
			p.tell(p.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}))
			get(p, "/good")
			get(p, "/good")
		}, []string{served}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			onBothInTime(t, options{}, waits, func(t *testing.T, s *testServer, side string) {
				var p *peer
				if test.do == nil {
					p = s.dial(t)
					_, _ = io.WriteString(p.conn, http2.ClientPreface)
					p.tell(p.WritePing(false, [8]byte{}))
				} else {
					p = s.greet(t)
					test.do(p)
				}
				var answered []uint32
				if strings.HasPrefix(test.want[0], "1 ") {
					answered = []uint32{1}
				}
				got, want := p.verdict(answered...), test.want
				if side == library && test.library != "" {
					want = []string{test.library}
				}
				if side == fallback { // either of the two, or a refusal
					want = append([]string{test.library, "1 400, served"}, want...)
				}
				if side == fallback && strings.HasPrefix(test.name, "6.9.2") { // golang.org/x/net does not check it any more (golang/go#81742).
					want = append(want, served)
				}
				if !slices.Contains(want, got) {
					t.Errorf("verdict = %q, want one of %q", got, want)
				}
			})
		})
	}
}

// long opens a stream whose header needs several frames.
func (p *peer) long(list []string) uint32 {
	id := p.id()
	block := p.encode(list...)
	first := block[:min(len(block), 16000)]
	p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: true, EndHeaders: len(first) == len(block)}))
	for rest := block[len(first):]; len(rest) > 0; {
		n := min(len(rest), 16000)
		p.tell(p.WriteContinuation(id, n == len(rest), rest[:n]))
		rest = rest[n:]
	}
	return id
}
