package http2_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A36: frames on closed streams count as frames without meaning. A connection may send 10,000 of them at once and 1,000 per second.
func TestA36FramesOnClosedStreamsAreLimited(t *testing.T) {
	raw := func(kind http2.FrameType, flags http2.Flags, payload string) func(*peer, *bytes.Buffer) {
		var b bytes.Buffer
		_ = http2.NewFramer(&b, nil).WriteRawFrame(kind, flags, 1, []byte(payload))
		return func(_ *peer, out *bytes.Buffer) { out.Write(b.Bytes()) }
	}
	// The handler does not read the upload. The stream is reset as soon as the response is sent.
	reset := func(p *peer) { p.await(p.open(false, request("POST", "/good")...)) }
	for name, each := range map[string]func(*peer, *bytes.Buffer){
		"DATA of a byte":            raw(http2.FrameData, 0, "x"),
		"WINDOW_UPDATE":             raw(http2.FrameWindowUpdate, 0, "\x00\x00\x00\x01"),
		"HEADERS":                   raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, "\x82"),
		"HEADERS that end it again": raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, ""),
		"RST_STREAM":                raw(http2.FrameRSTStream, 0, "\x00\x00\x00\x08"),
	} {
		t.Run(name, func(t *testing.T) {
			s := sides[1].start(t, options{}, &handlerCounter{})
			p := s.greet(t)
			_ = p.conn.SetDeadline(time.Now().Add(patience))
			reset(p)
			said := p.listen()
			sent := p.flood(each, 1_000_000)
			_ = p.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			if code := <-said; code != "ENHANCE_YOUR_CALM" && (code != "nothing" || sent == 1_000_000) { // A client that continues the flood may not receive it.
				t.Errorf("GOAWAY after %d frames = %s, want ENHANCE_YOUR_CALM", sent, code)
			}
		})
	}
}

// A36: the same applies to DATA for a handler that has closed the body and still runs.
func TestA36DataAfterBodyCloseIsLimited(t *testing.T) {
	s := sides[1].start(t, options{window: 16 << 20}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		<-r.Context().Done()
	}))
	p := s.greet(t)
	_ = p.conn.SetDeadline(time.Now().Add(patience))
	p.open(false, request("POST", "/")...)
	said := p.listen()
	sent := p.flood(func(p *peer, out *bytes.Buffer) { _ = http2.NewFramer(out, nil).WriteData(1, false, []byte("x")) }, 1_000_000)
	_ = p.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if code := <-said; code != "ENHANCE_YOUR_CALM" && (code != "nothing" || sent == 1_000_000) {
		t.Errorf("GOAWAY after %d frames = %s, want ENHANCE_YOUR_CALM", sent, code)
	}
}

// A36: frames that were in flight when a stream was reset are not a flood, for any number of resets.
func TestA36FramesInFlightAtResetAreNotCounted(t *testing.T) {
	s := sides[1].start(t, options{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	p := s.greet(t)
	_ = p.conn.SetDeadline(time.Now().Add(patience))
	for range 500 { // 500 resets, and 25,000 frames
		id := p.open(false, request("POST", "/")...)
		a := p.await(id)
		if a.status() != "200" {
			t.Fatalf("response on stream %d = %+v, want status 200", id, a)
		}
		var all bytes.Buffer
		for range 50 {
			_ = http2.NewFramer(&all, nil).WriteData(id, false, []byte("on its way"))
		}
		_, _ = p.conn.Write(all.Bytes())
	}
	if got := p.verdict(); got != "served" {
		t.Errorf("verdict after frames in flight on reset streams = %s, want served", got)
	}
}

// A37: WINDOW_UPDATE frames stay cheap while a hundred responses wait for a window. One-byte updates do not pay for each other.
func TestA37OneByteWindowUpdatesStayCheap(t *testing.T) {
	const streams = 100
	began := make(chan struct{}, streams)
	s := sides[1].start(t, options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/good" {
			return
		}
		began <- struct{}{}
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	}))
	p := s.greet(t)
	_ = p.conn.SetDeadline(time.Now().Add(patience))
	for range streams {
		p.get("/large")
	}
	for range streams {
		<-began
	}
	said := p.listen()
	const most = 200_000
	sent := p.flood(func(_ *peer, out *bytes.Buffer) { _ = http2.NewFramer(out, nil).WriteWindowUpdate(0, 1) }, most)
	_ = p.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if code := <-said; code != "ENHANCE_YOUR_CALM" && (code != "nothing" || sent == most) {
		t.Errorf("GOAWAY after %d updates = %s, want ENHANCE_YOUR_CALM", sent, code)
	}
	if got := s.greet(t).verdict(); got != "served" {
		t.Errorf("verdict of another connection = %s, want served", got)
	}
}
