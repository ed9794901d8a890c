package client

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// For each flood of a server, the client reads only a small part and ends the connection with an error that names the flood. Floods
// that arrive at once exceed the bound many times. Floods over time arrive in portions with checks between them.
func TestD16ServerFloodsEndConnection(t *testing.T) {
	const calm = frame.EnhanceYourCalm
	always := func(write func(p *peer, id uint32) error, n int) func(*peer, uint32, int) {
		return func(p *peer, id uint32, _ int) {
			for range n {
				if write(p, id) != nil {
					return
				}
			}
		}
	}
	begin := func(p *peer, id uint32) { p.headers(id, false, ":status", "200") }
	open := func(p *peer, id uint32) {
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(":status", "200")})
	}
	ping := func(p *peer, _ uint32) error { return p.WritePing(false, [8]byte{}) }
	pong := func(p *peer, _ uint32) error { return p.WritePing(true, [8]byte{}) }
	raw := func(kind http2.FrameType, flags http2.Flags, payload string) func(*peer, uint32) error {
		return func(p *peer, _ uint32) error { return p.WriteRawFrame(kind, flags, 0, []byte(payload)) }
	}
	const all = 60_000
	for _, test := range []struct {
		name  string
		begin func(p *peer, id uint32)
		flood func(p *peer, id uint32, portion int)
		looks int // checks between portions; 0: one portion
		code  frame.Code
		mute  bool // The server does not acknowledge SETTINGS.
	}{
		{name: "PING", flood: always(ping, all), code: calm},
		{name: "PING, as often as would pass in a quarter of a second, and on and on", flood: always(ping, 3000), looks: 1, code: calm},
		{name: "acknowledgements of PINGs that were not sent", flood: always(pong, all), code: calm},
		{name: "SETTINGS", flood: always(raw(http2.FrameSettings, 0, ""), all), code: calm},
		{name: "SETTINGS that are large", flood: always(raw(http2.FrameSettings, 0, strings.Repeat("\x00\x04\x00\x00\xff\xff", 2700)), 1000), code: calm},
		{name: "acknowledgements of SETTINGS", flood: always(raw(http2.FrameSettings, http2.FlagSettingsAck, ""), all), code: calm},
		{name: "no acknowledgement of SETTINGS", flood: func(*peer, uint32, int) {}, looks: 1, code: frame.SettingsTimeout, mute: true},
		{name: "PRIORITY", flood: always(func(p *peer, id uint32) error {
			return p.WriteRawFrame(http2.FramePriority, 0, id, []byte{0, 0, 0, 0, 16})
		}, all), code: calm},
		{name: "WINDOW_UPDATE of the connection", flood: always(func(p *peer, _ uint32) error { return p.WriteWindowUpdate(0, 1) }, all), code: calm},
		{name: "WINDOW_UPDATE of a stream", flood: always(func(p *peer, id uint32) error { return p.WriteWindowUpdate(id, 1) }, all), code: calm},
		{name: "WINDOW_UPDATE of much", flood: always(func(p *peer, id uint32) error { return p.WriteWindowUpdate(id, 2000) }, all), code: calm},
		{name: "RST_STREAM of what is over", begin: func(p *peer, id uint32) { p.headers(id, true, ":status", "200") },
			flood: always(func(p *peer, id uint32) error { return p.WriteRSTStream(id, http2.ErrCodeCancel) }, all), code: calm},
		{name: "A36: DATA of a byte for what is over", begin: func(p *peer, id uint32) { p.headers(id, true, ":status", "200") },
			flood: always(func(p *peer, id uint32) error { return p.WriteData(id, false, []byte("x")) }, all), code: calm},
		{name: "A36: WINDOW_UPDATE of what is over", begin: func(p *peer, id uint32) { p.headers(id, true, ":status", "200") },
			flood: always(func(p *peer, id uint32) error { return p.WriteWindowUpdate(id, 1) }, all), code: calm},
		{name: "empty DATA", begin: begin, flood: always(func(p *peer, id uint32) error { return p.WriteData(id, false, nil) }, all), code: calm},
		{name: "DATA that is padding", begin: begin, flood: always(func(p *peer, id uint32) error {
			return p.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, id, []byte{0})
		}, all), code: calm},
		{name: "frames that nobody knows", flood: always(raw(0x2a, 0, ""), all), code: calm},
		{name: "GOAWAY", flood: always(func(p *peer, _ uint32) error { return p.WriteGoAway(1, http2.ErrCodeNo, nil) }, all), code: calm},
		{name: "CONTINUATION of a byte each", begin: open, flood: always(func(p *peer, id uint32) error { return p.WriteContinuation(id, false, []byte{0x88}) }, 20_000), code: calm},
		{name: "CONTINUATION, one now and then", begin: open, looks: 1, code: calm,
			flood: func(p *peer, id uint32, n int) { _ = p.WriteContinuation(id, false, []byte{0x88}) }},
		{name: "headers of streams that are over, beyond their limit", begin: func(p *peer, id uint32) { p.headers(id, true, ":status", "200") },
			flood: always(func(p *peer, id uint32) error {
				fields := []string{":status", "200"}
				for range 60 {
					fields = append(fields, "x", strings.Repeat("y", 2000))
				}
				return p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(fields...), EndHeaders: true, EndStream: true})
			}, 200), code: calm},
		{name: "a header block of references without end", flood: always(func(p *peer, id uint32) error {
			block := append(p.block(":status", "200", "x", strings.Repeat("y", 3900)), []byte(strings.Repeat("\xbe", 12_000))...)
			return p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
		}, 1), code: calm},
	} {
		t.Run(test.name, func(t *testing.T) {
			portions, begun := make(chan int), make(chan struct{})
			address := serve(t, nil, func(p *peer) {
				if !test.mute {
					_ = p.WriteSettingsAck()
				}
				id := p.request()
				var reading sync.WaitGroup
				defer reading.Wait()
				reading.Go(p.drain)
				if test.begin != nil {
					test.begin(p, id)
				}
				close(begun)
				for n := range portions {
					test.flood(p, id, n)
				}
				_ = p.nc.SetReadDeadline(time.Now().Add(time.Minute))
			})
			c := connect(t, address, func(c *engine.ClientConfig) { c.CheckInterval, c.PingAfter = 250*time.Millisecond, time.Hour })
			upload := send(c, newRequest(t, http.MethodGet, "/", nil))
			<-begun
			if !test.mute { // Checks run as fast as possible. SETTINGS must not time out before their acknowledgement is read.
				wait(t, "an acknowledgement of SETTINGS", c.acknowledged.Load)
			}
			more := func(n int) bool {
				select {
				case portions <- n:
					return true
				case <-c.done:
					return false
				}
			}
			portion := 1
			for deadline := time.Now().Add(30 * time.Second); more(portion) && test.looks > 0 && time.Now().Before(deadline); portion++ {
				for range test.looks {
					c.Check(false)
				}
			}
			close(portions)
			select {
			case <-c.done:
			case <-time.After(30 * time.Second):
				c.Close()
				t.Error("connection is still open after the flood, want it closed")
			}
			<-upload.done
			var broken frame.ConnError
			if c.err.Kind != engine.ProtocolViolation || !errors.As(c.err, &broken) || broken.Code != test.code {
				t.Errorf("error of the connection = %v, want a ProtocolViolation with code %v", c.err, test.code)
			}
			t.Logf("after %d portions: %v", portion, c.err)
		})
	}
}

// Frames that normal servers send in addition to responses end no connection: the preface, acknowledgements, window updates, and
// frames in flight when requests are canceled.
func TestD16UsualServerFramesAreNotFlood(t *testing.T) {
	const requests = 3000
	c := connect(t, serve(t, nil, func(p *peer) {
		_ = p.WriteSettingsAck()
		for range requests {
			id := p.request()
			if id == 0 {
				return
			}
			_ = p.WriteWindowUpdate(0, 1<<10)
			p.headers(id, false, ":status", "200")
			for range 4 {
				_ = p.WriteData(id, false, []byte("x")) // Most of these arrive too late.
			}
			_ = p.WriteRSTStream(id, http2.ErrCodeNo)
		}
		p.drain()
	}))
	for range requests {
		resp, err := c.RoundTrip(newRequest(t, http.MethodGet, "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	c.Close()
}

// A server that reads an upload in small pieces sends many WINDOW_UPDATE frames for each DATA frame.
func TestD16SlowlyReadingServerIsNotFlood(t *testing.T) {
	c := connect(t, library(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 4<<10)
		for {
			if _, err := r.Body.Read(piece); err != nil {
				return
			}
		}
	})))
	body := strings.NewReader(strings.Repeat("x", 64<<20))
	resp, err := c.RoundTrip(newRequest(t, http.MethodPost, "/", body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	c.Close()
}
