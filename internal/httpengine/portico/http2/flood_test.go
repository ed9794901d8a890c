package http2_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

var megabyte = make([]byte, 1<<20)

// handlerCounter counts the handlers that run at the same time. They run for a moment or until their clients disconnect.
type handlerCounter struct{ now, most, ever atomic.Int64 }

func (c *handlerCounter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/good" {
		return
	}
	n := c.now.Add(1)
	defer c.now.Add(-1)
	c.ever.Add(1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	if r.URL.Path == "/large" {
		_, _ = w.Write(megabyte)
		return
	}
	select {
	case <-r.Context().Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// listen reads and discards frames until the connection ends. It then returns the code of GOAWAY.
func (p *peer) listen() <-chan string {
	said := make(chan string, 1)
	go func() {
		f := http2.NewFramer(nil, p.conn)
		code := "nothing"
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				said <- code
				return
			}
			if g, ok := frame.(*http2.GoAwayFrame); ok && g.ErrCode != http2.ErrCodeNo {
				code = g.ErrCode.String()
			}
		}
	}()
	return said
}

// heap returns the number of bytes in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// Memory that one flooding client occupies is bounded, and other clients are served at once.
func TestFloodMemoryIsBoundedAndOtherClientsAreServed(t *testing.T) {
	const calm = "ENHANCE_YOUR_CALM"
	fixed := func(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*peer, *bytes.Buffer) {
		var b bytes.Buffer
		_ = http2.NewFramer(&b, nil).WriteRawFrame(kind, flags, stream, []byte(payload))
		return func(_ *peer, out *bytes.Buffer) { out.Write(b.Bytes()) }
	}
	opening := func(path string, end bool, then func(f *http2.Framer, id uint32)) func(*peer, *bytes.Buffer) {
		return func(p *peer, out *bytes.Buffer) {
			f := http2.NewFramer(out, nil)
			f.AllowIllegalWrites = true
			id := p.id()
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(request("GET", path)...), EndHeaders: true, EndStream: end})
			if then != nil {
				then(f, id)
			}
		}
	}
	for _, test := range []struct {
		name  string
		begin func(*peer)
		each  func(p *peer, out *bytes.Buffer) // appends one piece of the flood
		times int
		// ends is the code of GOAWAY that Portico's server sends. "" means that the flood is cheap and allowed.
		ends string
		deaf bool // the client reads nothing
	}{
		{name: "CVE-2023-44487: streams that are reset at once", times: 20_000, ends: calm,
			each: opening("/", true, func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeCancel) })},
		{name: "CVE-2025-8671: made to reset by a window of nothing", times: 20_000, ends: calm,
			each: opening("/", true, func(f *http2.Framer, id uint32) { _ = f.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4)) })},
		{name: "CVE-2025-8671: made to reset by a window that is too large", times: 20_000, ends: calm,
			each: opening("/", true, func(f *http2.Framer, id uint32) { _ = f.WriteWindowUpdate(id, 1<<31-1) })},
		{name: "CVE-2025-8671: made to reset by DATA after the end", times: 20_000, ends: calm,
			each: opening("/", true, func(f *http2.Framer, id uint32) { _ = f.WriteData(id, false, []byte("x")) })},
		{name: "CVE-2025-8671: made to reset by HEADERS after the end", times: 20_000, ends: calm,
			each: opening("/", true, func(f *http2.Framer, id uint32) {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x82}, EndHeaders: true, EndStream: true})
			})},
		{name: "CVE-2025-8671: made to reset by a priority", times: 20_000, ends: calm,
			each: opening("/", true, func(f *http2.Framer, id uint32) { _ = f.WriteRawFrame(http2.FramePriority, 0, id, []byte("bad")) })},
		{name: "requests that are malformed", times: 20_000, ends: calm, each: opening("", true, nil)},
		{name: "more streams than allowed", times: 20_000, ends: calm, each: opening("/wait", false, nil)},
		{name: "CVE-2023-45288: CONTINUATIONs without end", times: 3000, ends: calm,
			begin: func(p *peer) {
				p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(request("GET", "/")...)}))
			},
			each: func(p *peer, out *bytes.Buffer) {
				p.block.Reset()
				_ = p.encoder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 8000), Sensitive: true})
				_ = http2.NewFramer(out, nil).WriteContinuation(1, false, p.block.Bytes())
			}},
		{name: "CVE-2023-45288: empty CONTINUATIONs without end", times: 100_000, ends: calm,
			begin: func(p *peer) {
				p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.encode(request("GET", "/")...)}))
			}, each: fixed(http2.FrameContinuation, 0, 1, "")},
		{name: "CVE-2019-9512: PING", times: 200_000, ends: calm, each: fixed(http2.FramePing, 0, 0, "12345678")},
		{name: "CVE-2019-9512: PING, whose answers are not read", times: 2_000_000, ends: calm, deaf: true, each: fixed(http2.FramePing, 0, 0, "12345678")},
		{name: "CVE-2019-9515: SETTINGS", times: 200_000, ends: calm, each: fixed(http2.FrameSettings, 0, 0, "")},
		{name: "SETTINGS that are large", times: 2000, ends: calm, each: fixed(http2.FrameSettings, 0, 0, strings.Repeat("\x00\x04\x00\x00\xff\xff", 2700))},
		{name: "acknowledgements of SETTINGS", times: 200_000, ends: calm, each: fixed(http2.FrameSettings, 1, 0, "")},
		{name: "CVE-2019-9513: PRIORITY", times: 200_000, ends: calm, each: fixed(http2.FramePriority, 0, 1, "\x00\x00\x00\x00\x10")},
		{name: "CVE-2019-9518: empty DATA", times: 200_000, ends: calm,
			begin: func(p *peer) { p.open(false, request("POST", "/wait")...) }, each: fixed(http2.FrameData, 0, 1, "")},
		{name: "CVE-2019-9518: DATA that is padding", times: 200_000, ends: calm,
			begin: func(p *peer) { p.open(false, request("POST", "/wait")...) }, each: fixed(http2.FrameData, 8, 1, "\x00")},
		{name: "WINDOW_UPDATE", times: 200_000, ends: calm,
			begin: func(p *peer) { p.get("/wait") }, each: fixed(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x01")},
		{name: "frames that nobody knows", times: 200_000, ends: calm, each: fixed(0x77, 0, 0, "")},
		{name: "RST_STREAM of what is over", times: 200_000, ends: calm,
			begin: func(p *peer) { p.get("/good") }, each: fixed(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08")},
		{name: "CVE-2019-9517: answers that are not read", times: 2000, deaf: true,
			begin: func(p *peer) {
				p.tell(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}))
				p.tell(p.WriteWindowUpdate(0, 1<<30))
			}, each: opening("/large", true, nil)},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, side := range sides {
				t.Run(side.name, func(t *testing.T) {
					if testing.Short() && side.name != ours {
						t.Skip("takes seconds")
					}
					synctest.Test(t, func(t *testing.T) {
						c := &handlerCounter{}
						s := side.startInMemory(t, options{}, c)
						other := s.greet(t) // connected before the flood
						before := heap()
						p := s.greet(t)
						_ = p.conn.SetDeadline(time.Now().Add(patience))
						if test.begin != nil {
							test.begin(p)
						}
						var said <-chan string
						if !test.deaf {
							said = p.listen()
						}
						times := test.times
						if side.name == library {
							times /= 10 // It is only compared with, and processes all of them.
						}
						sent := p.flood(test.each, times)
						if grown := heap() - before; grown > 24<<20 {
							t.Errorf("heap grew by %d MiB, want at most 24", grown>>20)
						}
						if got := other.verdict(); got != "served" {
							t.Errorf("verdict of another connection = %s, want served", got)
						}
						if got := s.greet(t).verdict(); got != "served" {
							t.Errorf("verdict of a new connection = %s, want served", got)
						}
						if most := c.most.Load(); most > 100 {
							t.Errorf("%d handlers ran at the same time, want at most 100", most)
						}
						if said == nil {
							_ = p.conn.NetConn().Close()
							return
						}
						if test.ends == "" || side.name != ours {
							_ = p.conn.NetConn().Close()
							<-said
							return
						}
						if code := <-said; code != test.ends && code != "nothing" { // A client that continues the flood may not receive it.
							t.Errorf("GOAWAY after %d pieces = %s, want %s", sent, code, test.ends)
						}
					})
				})
			}
		})
	}
}

// flood sends n pieces until the server closes the connection or stops reading. It returns the number of pieces sent.
func (p *peer) flood(each func(*peer, *bytes.Buffer), n int) int {
	var out bytes.Buffer
	for i := range n {
		each(p, &out)
		if out.Len() > 60_000 || i == n-1 {
			_ = p.conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
			if _, err := p.conn.Write(out.Bytes()); err != nil {
				return i
			}
			out.Reset()
		}
	}
	return n
}

// References to a large field have one byte each. The size of the referenced field counts.
func TestHeaderBombIsRejected(t *testing.T) {
	c := &handlerCounter{}
	for _, side := range sides {
		t.Run(side.name, func(t *testing.T) {
			s := side.start(t, options{}, c)
			before := heap()
			p := s.greet(t)
			first := p.encode(request("GET", "/wait", "bomb", strings.Repeat("b", 3900))...)
			p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id(), BlockFragment: first, EndHeaders: true, EndStream: true}))
			for range 50 {
				id := p.id()
				p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: append(p.encode(request("GET", "/wait")...), bytes.Repeat([]byte{0xbe}, 16_000)...), EndHeaders: true, EndStream: true}))
				if a := p.await(id); a.status() != "431" && a.reset == "" && a.lost == nil {
					t.Fatalf("response to a header bomb = %+v, want 431 or an error", a)
				}
			}
			if grown := heap() - before; grown > 24<<20 {
				t.Errorf("heap grew by %d MiB, want at most 24", grown>>20)
			}
			if got := s.greet(t).verdict(); got != "served" {
				t.Errorf("verdict of another connection = %s, want served", got)
			}
		})
	}
}

// Connections of clients that send the preface or a header one byte at a time, or send nothing, are closed. net/http's server has
// ReadHeaderTimeout for this, for connections only. This test does not cover it.
func TestSlowClientsAreDisconnected(t *testing.T) {
	for name, say := range map[string]func(*peer, io.Writer) []byte{
		"no preface":     func(*peer, io.Writer) []byte { return nil },
		"half a preface": func(*peer, io.Writer) []byte { return []byte(http2.ClientPreface[:10]) },
		"no SETTINGS":    func(*peer, io.Writer) []byte { return []byte(http2.ClientPreface) },
		"half a frame": func(p *peer, _ io.Writer) []byte {
			return append(hello(), 0, 0, 100, 1, 5, 0, 0, 0, 1, 0x82)
		},
		"half a header block": func(p *peer, _ io.Writer) []byte {
			return append(hello(), 0, 0, 1, 1, 1, 0, 0, 0, 1, 0x82)
		},
		"a header block a byte at a time": func(p *peer, _ io.Writer) []byte {
			return append(hello(), append([]byte{0, 0, 1, 1, 1, 0, 0, 0, 1, 0x82}, bytes.Repeat([]byte{0, 0, 1, 9, 0, 0, 0, 0, 1, 0x82}, 100)...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startSlow(t, http.NotFoundHandler(), time.Second)
				p := s.dial(t)
				_, _ = p.conn.Write(say(p, p.conn))
				began := time.Now()
				for {
					if _, err := p.ReadFrame(); err != nil {
						break
					}
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("slow client stayed connected for %v, want at most 2s", took)
				}
			})
		})
	}
}

func hello() []byte { return append([]byte(http2.ClientPreface), 0, 0, 0, 4, 0, 0, 0, 0, 0) }

// A client that requests responses and neither reads nor writes is disconnected. Its handlers are released.
func TestClientThatReadsNothingIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 5
		done := make(chan error, streams)
		s := startSlow(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			var err error
			for err == nil {
				_, err = w.Write(megabyte)
			}
			done <- err
		}), time.Second) // All requests must arrive within this time.
		p := s.greet(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		p.tell(p.WriteWindowUpdate(0, 1<<30))
		for range streams {
			p.get("/")
		}
		for range streams {
			select {
			case <-done:
			case <-time.After(patience):
				t.Fatal("handler still writes after the client was disconnected, want it to return")
			}
		}
	})
}

// A header that is too large is answered with 431 and has no other effect. If a client sends many of them, the connection ends,
// because each one costs more than a hundred requests and needs no credentials. net/http's server allows them.
func TestD15RepeatedOversizedHeadersEndConnection(t *testing.T) {
	s := sides[1].start(t, options{}, &handlerCounter{})
	other := s.greet(t)
	p := s.greet(t)
	large := func() uint32 {
		id := p.id()
		block := p.encode(request("GET", "/good")...)
		for range 70 { // Literals exceed the limit only slightly.
			p.block.Reset()
			_ = p.encoder.WriteField(hpack.HeaderField{Name: "x-filler", Value: strings.Repeat("y", 1000), Sensitive: true})
			block = append(block, p.block.Bytes()...)
		}
		p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:16_000], EndStream: true}))
		for block = block[16_000:]; len(block) > 0; block = block[min(len(block), 16_000):] {
			p.tell(p.WriteContinuation(id, len(block) <= 16_000, block[:min(len(block), 16_000)]))
		}
		return id
	}
	if a := p.await(large()); a.status() != "431" {
		t.Fatalf("response to a large header = %+v, want status 431", a)
	}
	if got := p.verdict(); got != "served" {
		t.Fatalf("verdict after one large header = %s, want served", got)
	}
	answers := 1
	for ; answers < 100; answers++ {
		a := p.await(large())
		if a.status() == "431" {
			continue
		}
		if a.lost == nil || a.goneAway != "ENHANCE_YOUR_CALM" {
			t.Errorf("end of the connection after %d large headers = %+v, want ENHANCE_YOUR_CALM", answers, a)
		}
		break
	}
	if answers > 30 {
		t.Errorf("%d large headers were answered, want at most 30", answers)
	}
	if got := other.verdict(); got != "served" {
		t.Errorf("verdict of another connection = %s, want served", got)
	}
	bomb := s.greet(t)
	block := append(bomb.encode(request("GET", "/good", "x", strings.Repeat("b", 3900))...), bytes.Repeat([]byte{0xbe}, 10_000)...)
	id := bomb.id()
	bomb.tell(bomb.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true}))
	if a := bomb.await(id); a.lost == nil || a.goneAway != "ENHANCE_YOUR_CALM" {
		t.Errorf("response to a header bomb = %+v, want ENHANCE_YOUR_CALM", a)
	}
}

// CVE-2026-78659: a name in "Trailer" uses a hundred times the memory of its bytes for the duration of the request.
func TestAnnouncedTrailersAreBounded(t *testing.T) {
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "t%d, , ", i)
		}
		return b.String()
	}
	announced := make(chan int, 1)
	s := side{ours, runOurs}.start(t, options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { announced <- len(r.Trailer) }))
	p := s.greet(t)
	for _, test := range []struct {
		names  int
		status string
	}{{64, "200"}, {65, "400"}, {400, "400"}, {64, "200"}} {
		id := p.open(true, request("POST", "/", "trailer", names(test.names))...)
		if got := p.await(id).status(); got != test.status {
			t.Errorf("response to %d announced trailers = %s, want %s", test.names, got, test.status)
		} else if got == "200" {
			if n := <-announced; n != test.names {
				t.Errorf("handler received %d announced trailers, want %d", n, test.names)
			}
		}
	}
}
