package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

const noCode = http2.ErrCode(998)

// Each case ends the connection or one stream, or is tolerated. Valid clients are served at the same time.
func TestInvalidClientFramesAreRejected(t *testing.T) {
	large := strings.Repeat("x", 20_000)
	for _, test := range []struct {
		name   string
		do     func(*peer)
		conn   http2.ErrCode // of GOAWAY
		stream http2.ErrCode // of RST_STREAM on stream 1
		status string        // of stream 1
	}{
		{"an ordinary request", func(p *peer) { p.open(1, true) }, noCode, noCode, "200"},
		{"an even stream", func(p *peer) { p.open(2, true) }, http2.ErrCodeProtocol, noCode, ""},
		{"a stream that goes down", func(p *peer) { p.open(3, true); p.open(1, true) }, http2.ErrCodeProtocol, noCode, ""},
		{"DATA on stream 0", func(p *peer) { p.must(p.WriteRawFrame(http2.FrameData, 0, 0, []byte("x"))) }, http2.ErrCodeProtocol, noCode, ""},
		{"DATA on an idle stream", func(p *peer) { p.must(p.WriteData(1, false, []byte("x"))) }, http2.ErrCodeProtocol, noCode, ""},
		{"RST_STREAM on an idle stream", func(p *peer) { p.must(p.WriteRSTStream(1, http2.ErrCodeCancel)) }, http2.ErrCodeProtocol, noCode, ""},
		{"WINDOW_UPDATE on an idle stream", func(p *peer) { p.must(p.WriteWindowUpdate(1, 1)) }, http2.ErrCodeProtocol, noCode, ""},
		{"a WINDOW_UPDATE of nothing", func(p *peer) { p.must(p.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 4))) }, http2.ErrCodeProtocol, noCode, ""},
		{"a connection window that overflows", func(p *peer) { p.must(p.WriteWindowUpdate(0, 1<<31-1)) }, http2.ErrCodeFlowControl, noCode, ""},
		{"a stream window that overflows", func(p *peer) {
			p.open(1, false, post...)
			p.must(p.WriteWindowUpdate(1, 1<<31-1))
		}, noCode, http2.ErrCodeFlowControl, ""},
		{"a setting that makes a window overflow", func(p *peer) {
			p.open(1, false, post...)
			p.must(p.WriteWindowUpdate(1, 1<<30))
			p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}))
		}, http2.ErrCodeFlowControl, noCode, ""},
		{"a setting out of bounds", func(p *peer) { p.must(p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1})) }, http2.ErrCodeProtocol, noCode, ""},
		{"SETTINGS on a stream", func(p *peer) { p.must(p.WriteRawFrame(http2.FrameSettings, 0, 1, nil)) }, http2.ErrCodeProtocol, noCode, ""},
		{"SETTINGS of odd length", func(p *peer) { p.must(p.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5))) }, http2.ErrCodeFrameSize, noCode, ""},
		{"an acknowledgement that says something", func(p *peer) {
			p.must(p.WriteRawFrame(http2.FrameSettings, http2.FlagSettingsAck, 0, make([]byte, 6)))
		}, http2.ErrCodeFrameSize, noCode, ""},
		{"a PING of 7 bytes", func(p *peer) { p.must(p.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 7))) }, http2.ErrCodeFrameSize, noCode, ""},
		{"PING on a stream", func(p *peer) { p.must(p.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8))) }, http2.ErrCodeProtocol, noCode, ""},
		{"PUSH_PROMISE", func(p *peer) { p.must(p.WriteRawFrame(http2.FramePushPromise, 4, 1, make([]byte, 8))) }, http2.ErrCodeProtocol, noCode, ""},
		{"GOAWAY on a stream", func(p *peer) { p.must(p.WriteRawFrame(http2.FrameGoAway, 0, 1, make([]byte, 8))) }, http2.ErrCodeProtocol, noCode, ""},
		{"a frame that is too long", func(p *peer) { _ = p.WriteRawFrame(0x20, 0, 0, []byte(large)) }, http2.ErrCodeFrameSize, noCode, ""},
		{"CONTINUATION of nothing", func(p *peer) { p.must(p.WriteRawFrame(http2.FrameContinuation, 4, 1, nil)) }, http2.ErrCodeProtocol, noCode, ""},
		{"a frame within a header block", func(p *peer) {
			p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields()}))
			p.must(p.WritePing(false, [8]byte{}))
		}, http2.ErrCodeProtocol, noCode, ""},
		{"CONTINUATION of another stream", func(p *peer) {
			p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields()}))
			p.must(p.WriteContinuation(3, true, nil))
		}, http2.ErrCodeProtocol, noCode, ""},
		{"an empty CONTINUATION without end", func(p *peer) {
			p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields()}))
			p.must(p.WriteContinuation(1, false, nil))
		}, http2.ErrCodeEnhanceYourCalm, noCode, ""},
		{"a header block that does not decode", func(p *peer) {
			p.must(p.WriteRawFrame(http2.FrameHeaders, 5, 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}))
		}, http2.ErrCodeCompression, noCode, ""},
		{"padding beyond the frame", func(p *peer) { p.must(p.WriteRawFrame(http2.FrameHeaders, 0xd, 1, []byte{200, 0x82})) }, http2.ErrCodeProtocol, noCode, ""},
		{"PRIORITY of 4 bytes on an open stream", func(p *peer) {
			p.open(1, false, post...)
			p.must(p.WriteRawFrame(http2.FramePriority, 0, 1, make([]byte, 4)))
		}, noCode, http2.ErrCodeFrameSize, ""},
		{"DATA after the end", func(p *peer) { p.open(1, true, "slow", "1"); p.must(p.WriteData(1, false, []byte("x"))) }, noCode, http2.ErrCodeStreamClosed, ""},
		{"HEADERS after the end", func(p *peer) { p.open(1, true, "slow", "1"); p.open(1, true) }, noCode, http2.ErrCodeStreamClosed, ""},
		{"trailers that do not end", func(p *peer) { p.open(1, false, post...); p.open(1, false, ":x", "") }, noCode, http2.ErrCodeProtocol, ""},
		{"more body than declared", func(p *peer) {
			p.open(1, false, append(post, "content-length", "2")...)
			p.must(p.WriteData(1, false, []byte("xyz")))
		}, noCode, http2.ErrCodeProtocol, ""},
		{"less body than declared", func(p *peer) {
			p.open(1, false, append(post, "content-length", "4")...)
			p.must(p.WriteData(1, true, []byte("xyz")))
		}, noCode, http2.ErrCodeProtocol, ""},
		{"no body where one is declared", func(p *peer) { p.open(1, true, append(post, "content-length", "4")...) }, noCode, http2.ErrCodeProtocol, ""},
		{"two lengths", func(p *peer) { p.open(1, false, append(post, "content-length", "4", "content-length", "5")...) }, noCode, http2.ErrCodeProtocol, ""},
		{"a length that is none", func(p *peer) { p.open(1, false, append(post, "content-length", "+4")...) }, noCode, http2.ErrCodeProtocol, ""},
		{"the same length twice", func(p *peer) { p.open(1, true, append(post, "content-length", "0", "content-length", "0")...) }, noCode, http2.ErrCodeProtocol, ""},
		{"no path", func(p *peer) { p.open(1, true, ":method", "GET", ":scheme", "https", ":authority", "a") }, noCode, http2.ErrCodeProtocol, ""},
		{"an empty path", func(p *peer) { p.open(1, true, ":method", "GET", ":scheme", "https", ":path", "") }, noCode, http2.ErrCodeProtocol, ""},
		{"a path that is relative", func(p *peer) { p.open(1, true, ":method", "GET", ":scheme", "https", ":path", "a/b") }, noCode, http2.ErrCodeProtocol, ""},
		{"a scheme that is another's", func(p *peer) { p.open(1, true, ":method", "GET", ":scheme", "ftp", ":path", "/") }, noCode, http2.ErrCodeProtocol, ""},
		{"a user in the authority", func(p *peer) {
			p.open(1, true, ":method", "GET", ":scheme", "https", ":authority", "u@a", ":path", "/")
		}, noCode, http2.ErrCodeProtocol, ""},
		{"CONNECT with a path", func(p *peer) {
			p.open(1, true, ":method", "CONNECT", ":authority", "a:1", ":path", "/")
		}, noCode, http2.ErrCodeProtocol, ""},
		{"extended CONNECT", func(p *peer) {
			p.open(1, true, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "a", ":path", "/")
		}, noCode, http2.ErrCodeProtocol, ""},
		{"a pseudo field twice", func(p *peer) {
			p.open(1, true, ":method", "GET", ":method", "GET", ":scheme", "https", ":path", "/")
		}, noCode, http2.ErrCodeProtocol, ""},
		{"a pseudo field after others", func(p *peer) { p.open(1, true, "a", "b", ":path", "/") }, noCode, http2.ErrCodeProtocol, ""},
		{"a pseudo field of responses", func(p *peer) { p.open(1, true, ":status", "200", ":method", "GET", ":scheme", "https", ":path", "/") }, noCode, http2.ErrCodeProtocol, ""},
		{"a capital in a name", func(p *peer) { p.open(1, true, "X-Y", "z") }, noCode, http2.ErrCodeProtocol, ""},
		{"a line break in a value", func(p *peer) { p.open(1, true, "x", "a\r\nb") }, noCode, http2.ErrCodeProtocol, ""},
		{"a connection header", func(p *peer) { p.open(1, true, "connection", "close") }, noCode, noCode, "400"},
		{"a coding", func(p *peer) { p.open(1, true, "transfer-encoding", "chunked") }, noCode, noCode, "400"},
		{"TE for gzip", func(p *peer) { p.open(1, true, "te", "gzip") }, noCode, noCode, "400"},
		{"TE for trailers", func(p *peer) { p.open(1, true, "te", "trailers") }, noCode, noCode, "200"},
		{"a header that is too large", func(p *peer) {
			p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields("a", large[:8000]), EndStream: true}))
			for i := range 8 {
				p.block.Reset()
				p.fieldsOnly("a", large[:8000])
				p.must(p.WriteContinuation(1, i == 7, p.block.Bytes()))
			}
		}, noCode, noCode, "431"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, Config{GoAwayGrace: 100 * time.Millisecond, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Slow") != "" || r.Method == http.MethodPost && r.ContentLength != 0 {
					<-r.Context().Done()
				}
			})})
			p := s.dial(t)
			test.do(p)
			if test.conn != noCode {
				if got := p.goneAway(); got != test.conn {
					t.Errorf("code of GOAWAY = %v, want %v", got, test.conn)
				}
				return
			}
			got := p.answers().wait(1)
			if test.status != got.status || test.stream != noCode && got.reset != test.stream {
				t.Errorf("response = status %s, reset %v, want status %s, reset %v", got.status, got.reset, test.status, test.stream)
			}
			q := s.client(t)
			res, err := q.Get("https://" + s.address + "/")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
		})
	}
}

func (p *peer) fieldsOnly(pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		p.must(p.encoder.WriteField(hpackField(pairs[i], pairs[i+1])))
	}
}

// Each flood ends in GOAWAY with the given code.
func TestFloodsEndWithGoAway(t *testing.T) {
	for name, flood := range map[string]func(p *peer, i int) error{
		"SETTINGS":                 func(p *peer, _ int) error { return p.WriteSettings() },
		"PING":                     func(p *peer, _ int) error { return p.WritePing(false, [8]byte{}) },
		"acknowledgements of PING": func(p *peer, _ int) error { return p.WritePing(true, [8]byte{}) },
		"PRIORITY":                 func(p *peer, _ int) error { return p.WritePriority(1, http2.PriorityParam{}) },
		"unknown frames":           func(p *peer, _ int) error { return p.WriteRawFrame(0x77, 0, 0, nil) },
		"empty DATA":               func(p *peer, _ int) error { return p.WriteData(1, false, nil) },
		"small WINDOW_UPDATE":      func(p *peer, _ int) error { return p.WriteWindowUpdate(1, 1) },
		"RST_STREAM of what ended": func(p *peer, _ int) error { return p.WriteRSTStream(1, 0) },
		"resets": func(p *peer, i int) error {
			id := uint32(2*i + 3)
			if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.fields(), EndHeaders: true, EndStream: true}); err != nil {
				return err
			}
			return p.WriteRSTStream(id, http2.ErrCodeCancel)
		},
		"resets that are provoked": func(p *peer, i int) error {
			id := uint32(2*i + 3)
			if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.fields(), EndHeaders: true, EndStream: true}); err != nil {
				return err
			}
			return p.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, Config{GoAwayGrace: 5 * time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })})
			p := s.dial(t)
			p.open(1, false, post...)
			code := make(chan http2.ErrCode, 1)
			go func() { code <- p.goneAway() }()
			for i := range 60_000 {
				if flood(p, i) != nil {
					break
				}
			}
			_ = p.conn.CloseWrite()
			if got := <-code; got != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("code of GOAWAY = %v, want ENHANCE_YOUR_CALM", got)
			}
		})
	}
}

// A running handler counts even if its stream was reset.
func TestHandlersOfResetStreamsCountTowardLimit(t *testing.T) {
	begun, finish := make(chan struct{}, 100), make(chan struct{})
	s := start(t, Config{MaxConcurrentStreams: 2, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-finish
		_, _ = io.WriteString(w, "ok")
	})})
	p := s.dial(t)
	for id := uint32(1); id < 9; id += 2 {
		p.open(id, true)
		if id < 4 {
			<-begun
		}
		p.must(p.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	p.open(9, true)
	p.must(p.WritePing(false, [8]byte{1}))
	next[*http2.PingFrame](p)
	if len(begun) != 0 {
		t.Errorf("%d more handlers run before the first two returned, want 0", len(begun))
	}
	close(finish)
	if got := p.answers().wait(9); got.body != "ok" {
		t.Errorf("response to the waiting request = %+v, want body ok", got)
	}
	if len(begun) != 1 {
		t.Errorf("%d handlers ran afterwards, want 1, for the stream without a reset", len(begun))
	}
}

func TestStreamsBeyondLimitAreRefused(t *testing.T) {
	s := start(t, Config{MaxConcurrentStreams: 2, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })})
	p := s.dial(t)
	p.open(1, true)
	p.open(3, true)
	p.open(5, true)
	if got := p.answers().wait(5); got.reset != http2.ErrCodeRefusedStream {
		t.Errorf("response beyond the limit = %+v, want REFUSED_STREAM", got)
	}
}

// Timeouts.
func TestSlowAndSilentClientsTimeOut(t *testing.T) {
	const moment = 500 * time.Millisecond
	quick := Config{PrefaceTimeout: time.Hour, HeaderTimeout: time.Hour, IdleTimeout: time.Hour, PingAfter: time.Hour, PingTimeout: time.Hour, GoAwayGrace: moment}
	for _, test := range []struct {
		name   string
		change func(*Config)
		do     func(*served, *testing.T) *peer
		code   http2.ErrCode
	}{
		{"no preface", func(c *Config) { c.PrefaceTimeout = moment }, func(s *served, t *testing.T) *peer { return s.silent(t) }, 999},
		{"no SETTINGS", func(c *Config) { c.PrefaceTimeout = moment }, func(s *served, t *testing.T) *peer {
			p := s.silent(t)
			p.do(io.WriteString(p.conn, http2.ClientPreface))
			return p
		}, 999},
		{"another protocol's preface", func(*Config) {}, func(s *served, t *testing.T) *peer {
			p := s.silent(t)
			p.do(io.WriteString(p.conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
			return p
		}, http2.ErrCodeProtocol},
		{"a header block without end", func(c *Config) { c.HeaderTimeout = moment }, func(s *served, t *testing.T) *peer {
			p := s.dial(t)
			p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields()}))
			return p
		}, 999},
		{"half a frame of a header block", func(c *Config) { c.HeaderTimeout = moment }, func(s *served, t *testing.T) *peer {
			p := s.dial(t)
			p.do(p.conn.Write([]byte{0, 0, 50, 1, 4, 0, 0, 0, 1, 0x82}))
			return p
		}, 999},
		{"no requests", func(c *Config) { c.IdleTimeout = moment }, func(s *served, t *testing.T) *peer { return s.dial(t) }, http2.ErrCodeNo},
		{"no answer to PING", func(c *Config) { c.PingAfter, c.PingTimeout = moment, moment }, func(s *served, t *testing.T) *peer { return s.dial(t) }, 999},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := quick
			test.change(&c)
			c.Handler = http.NotFoundHandler()
			if got := test.do(start(t, c), t).goneAway(); got != test.code {
				t.Errorf("code of GOAWAY = %v, want %v", got, test.code)
			}
		})
	}
}

// A request keeps a connection from being idle. An answered PING keeps it open.
func TestActiveConnectionIsNotIdle(t *testing.T) {
	const moment = 100 * time.Millisecond
	s := start(t, Config{IdleTimeout: 5 * moment, PingAfter: moment, PingTimeout: 20 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-time.After(10 * moment)
		_, _ = io.WriteString(w, "ok")
	})})
	res, err := s.client(t).Get("https://" + s.address)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if string(body) != "ok" {
		t.Errorf("body = %q, want \"ok\"", body)
	}
}
