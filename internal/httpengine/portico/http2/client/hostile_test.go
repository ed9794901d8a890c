package client

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"portico.dev/internal/httpengine/engine"
)

// A server that violates the protocol ends the stream or the connection with the code of RFC 9113. The caller never receives a
// complete response.
func TestProtocolViolationsEndStreamOrConnection(t *testing.T) {
	const (
		protocol = http2.ErrCodeProtocol
		flow     = http2.ErrCodeFlowControl
		size     = http2.ErrCodeFrameSize
		calm     = http2.ErrCodeEnhanceYourCalm
	)
	begun := func(p *peer, id uint32) { p.headers(id, false, ":status", "200") }
	for _, test := range []struct {
		name   string
		method string
		code   http2.ErrCode
		say    func(p *peer, id uint32)
	}{
		{"no status", "", protocol, func(p *peer, id uint32) { p.headers(id, true, "x", "y") }},
		{"a status that is no number", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "abc") }},
		{"a status of four digits", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "2000") }},
		{"two statuses", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "200", ":status", "200") }},
		{"a status after a field", "", protocol, func(p *peer, id uint32) { p.headers(id, true, "x", "y", ":status", "200") }},
		{"a pseudo field of requests", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "200", ":path", "/") }},
		{"a name in upper case", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "X-A", "y") }},
		{"a value that splits", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "x", "a\r\nb: c") }},
		{"protocols switched", "", protocol, func(p *peer, id uint32) { p.headers(id, false, ":status", "101") }},
		{"an interim response that ends", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "103") }},
		{"interim responses without end", "", protocol, func(p *peer, id uint32) {
			for range 1000 {
				p.headers(id, false, ":status", "103")
			}
		}},
		{"two lengths", "", protocol, func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-length", "1", "content-length", "2")
		}},
		{"a length with a sign", "", protocol, func(p *peer, id uint32) { p.headers(id, false, ":status", "200", "content-length", "+1") }},
		{"a body longer than its length", "", protocol, func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-length", "1")
			_ = p.WriteData(id, true, []byte("xx"))
		}},
		{"a body shorter than its length", "", protocol, func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-length", "3")
			_ = p.WriteData(id, true, []byte("xx"))
		}},
		{"no body where a length was said", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "content-length", "3") }},
		{"trailers before the length is there", "", protocol, func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-length", "3")
			p.headers(id, true, "x", "y")
		}},
		{"A39: a length of 204", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "204", "content-length", "3") }},
		{"A39: a length of 103", "", protocol, func(p *peer, id uint32) { p.headers(id, false, ":status", "103", "content-length", "3") }},
		{"A39: a body of 103", "", protocol, func(p *peer, id uint32) {
			p.headers(id, false, ":status", "103")
			_ = p.WriteData(id, false, []byte("x"))
		}},
		{"A39: 103 that ends the stream", "", protocol, func(p *peer, id uint32) { p.headers(id, true, ":status", "103") }},
		{"a body of 204", "", protocol, func(p *peer, id uint32) {
			p.headers(id, false, ":status", "204")
			_ = p.WriteData(id, true, []byte("x"))
		}},
		{"DATA before HEADERS", "", protocol, func(p *peer, id uint32) { _ = p.WriteData(id, true, []byte("x")) }},
		{"trailers that end nothing", "", protocol, func(p *peer, id uint32) { begun(p, id); p.headers(id, false, "x", "y") }},
		{"trailers with a pseudo field", "", protocol, func(p *peer, id uint32) { begun(p, id); p.headers(id, true, ":status", "200") }},
		{"more than the stream's window", "", flow, func(p *peer, id uint32) {
			begun(p, id)
			for range streamWindow/16384 + 1 {
				_ = p.WriteData(id, false, make([]byte, 16384))
			}
		}},
		{"a stream's window beyond the limit", "", flow, func(p *peer, id uint32) { _ = p.WriteWindowUpdate(id, 1<<31-1) }},
		{"a stream's window opened by nothing", "", protocol, func(p *peer, id uint32) { _ = p.WriteWindowUpdate(id, 0) }},
		// The following cases end the connection.
		{"DATA of a stream that does not exist", "", protocol, func(p *peer, id uint32) { _ = p.WriteData(id+100, true, []byte("x")) }},
		{"HEADERS of a stream that does not exist", "", protocol, func(p *peer, id uint32) { begun(p, id+100) }},
		{"HEADERS of a stream of its own", "", protocol, func(p *peer, _ uint32) { begun(p, 2) }},
		{"RST_STREAM of a stream that does not exist", "", protocol, func(p *peer, id uint32) { _ = p.WriteRSTStream(id+2, http2.ErrCodeCancel) }},
		{"WINDOW_UPDATE of a stream that does not exist", "", protocol, func(p *peer, id uint32) { _ = p.WriteWindowUpdate(id+2, 1) }},
		{"DATA without a stream", "", protocol, func(p *peer, _ uint32) { _ = p.WriteRawFrame(http2.FrameData, 0, 0, []byte("x")) }},
		{"PING on a stream", "", protocol, func(p *peer, id uint32) { _ = p.WriteRawFrame(http2.FramePing, 0, id, make([]byte, 8)) }},
		{"PING of another size", "", size, func(p *peer, _ uint32) { _ = p.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 9)) }},
		{"RST_STREAM of another size", "", size, func(p *peer, id uint32) { _ = p.WriteRawFrame(http2.FrameRSTStream, 0, id, make([]byte, 3)) }},
		{"SETTINGS of another size", "", size, func(p *peer, _ uint32) { _ = p.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5)) }},
		{"a frame that is too large", "", size, func(p *peer, id uint32) {
			begun(p, id)
			_ = p.WriteRawFrame(http2.FrameData, 0, id, make([]byte, 1<<14+1))
		}},
		{"a push", "", protocol, func(p *peer, id uint32) {
			_ = p.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: p.block(":method", "GET"), EndHeaders: true})
		}},
		{"CONTINUATION of nothing", "", protocol, func(p *peer, id uint32) { _ = p.WriteContinuation(id, true, nil) }},
		{"a header block that is interrupted", "", protocol, func(p *peer, id uint32) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(":status", "200")})
			_ = p.WritePing(false, [8]byte{})
		}},
		{"a header block without end", "", calm, func(p *peer, id uint32) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(":status", "200")})
			for range 100_000 {
				if p.WriteContinuation(id, false, make([]byte, 1000)) != nil {
					return
				}
			}
		}},
		{"headers larger than allowed, as compression hides", "", calm, func(p *peer, id uint32) {
			fields := []string{":status", "200"}
			for range 40 {
				fields = append(fields, "x", strings.Repeat("y", 2000))
			}
			p.headers(id, true, fields...)
		}},
		{"a block that does not decode", "", http2.ErrCodeCompression, func(p *peer, id uint32) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}},
		{"the connection's window beyond the limit", "", flow, func(p *peer, _ uint32) { _ = p.WriteWindowUpdate(0, 1<<31-1) }},
		{"a window beyond the limit by SETTINGS", "", flow, func(p *peer, _ uint32) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 + 5})
		}},
		{"a stream's window beyond the limit by SETTINGS", "", flow, func(p *peer, id uint32) {
			_ = p.WriteWindowUpdate(id, 1<<31-1-65535)
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 65536})
		}},
		{"frames of size 0", "", protocol, func(p *peer, _ uint32) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 0}) }},
		{"a server that wants to be pushed to", "", protocol, func(p *peer, _ uint32) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 1})
		}},
		{"a flood of PINGs", "", calm, func(p *peer, _ uint32) {
			for range 100_000 {
				if p.WritePing(false, [8]byte{}) != nil {
					return
				}
			}
		}},
		{"a flood of SETTINGS", "", calm, func(p *peer, _ uint32) {
			for range 100_000 {
				if p.WriteSettings() != nil {
					return
				}
			}
		}},
		{"a flood of empty DATA", "", calm, func(p *peer, id uint32) {
			begun(p, id)
			for range 100_000 {
				if p.WriteData(id, false, nil) != nil {
					return
				}
			}
		}},
		{"a flood of what does not exist", "", calm, func(p *peer, _ uint32) {
			for range 100_000 {
				if p.WriteRawFrame(0x2a, 0, 0, nil) != nil {
					return
				}
			}
		}},
		{"a body of an answer to HEAD", http.MethodHead, http2.ErrCodeCancel, func(p *peer, id uint32) { begun(p, id); _ = p.WriteData(id, true, []byte("x")) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := make(chan http2.ErrCode, 1)
			c := connect(t, serve(t, nil, func(p *peer) {
				id := p.request()
				test.say(p, id)
				code, ok := p.verdict()
				if !ok && strings.HasPrefix(test.name, "a flood") {
					code = test.code // The unread frames of the client were lost with the connection.
				} else if !ok {
					t.Errorf("client reset neither the stream nor the connection, want code %s", test.code)
				}
				got <- code
				p.drain()
			}))
			method := test.method
			if method == "" {
				method = http.MethodGet
			}
			resp, err := c.RoundTrip(newRequest(t, method, "/", nil))
			code := <-got // before the body is read, because reading opens windows
			if err == nil && method == http.MethodGet {
				_, err = io.Copy(io.Discard, onlyReader{resp.Body})
				_ = resp.Body.Close()
			}
			if kind := kindOf(err); kind != engine.ProtocolViolation && method == http.MethodGet {
				t.Errorf("error kind = %d (%v), want ProtocolViolation", kind, err)
			}
			if code != test.code {
				t.Errorf("code of the reset = %s, want %s", code, test.code)
			}
			c.Close()
		})
	}
}

// onlyReader hides all other methods.
type onlyReader struct{ io.Reader }
