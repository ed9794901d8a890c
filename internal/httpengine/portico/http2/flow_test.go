package http2_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// download responds with as many bytes as the query requests.
func download(w http.ResponseWriter, r *http.Request) {
	var n int
	_, _ = fmt.Sscan(r.URL.RawQuery, &n)
	if _, err := w.Write(bytes.Repeat([]byte("x"), n)); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// came reads until all allowed bytes have arrived and returns their number. A PING confirms that no more bytes follow.
func (p *peer) came(id uint32) (n int, ended bool) {
	for range 2 { // The first PING response may overtake a handler that is about to write.
		p.tell(p.WritePing(false, [8]byte{1}))
	}
	for acks := 0; acks < 2; {
		f, err := p.event()
		if err != nil {
			p.t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			n += len(f.Data())
			ended = f.StreamEnded()
		case *http2.PingFrame:
			acks++
		}
		if f.Header().StreamID == id && ended {
			return n, true
		}
	}
	return n, false
}

// collect reads until n bytes have arrived.
func (p *peer) collect(id uint32, n int) (ended bool) {
	p.t.Helper()
	for got := 0; ; {
		more, end := p.came(id)
		got += more
		if got > n {
			p.t.Fatalf("%d bytes arrived, want at most %d", got, n)
		}
		if got == n {
			return end
		}
	}
}

// A server sends exactly the allowed bytes for all sequences of window changes.
func TestDownloadsStayWithinWindows(t *testing.T) {
	window := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n} }
	type step struct {
		do   func(*peer)
		more int // bytes that arrive then
	}
	stream := func(n uint32) func(*peer) { return func(p *peer) { p.tell(p.WriteWindowUpdate(1, n)) } }
	connection := func(n uint32) func(*peer) { return func(p *peer) { p.tell(p.WriteWindowUpdate(0, n)) } }
	setting := func(n uint32) func(*peer) { return func(p *peer) { p.tell(p.WriteSettings(window(n))) } }
	for _, test := range []struct {
		name   string
		window uint32
		size   int
		steps  []step
	}{
		{"one byte at a time", 1, 4, []step{{nil, 1}, {stream(1), 1}, {stream(1), 1}, {stream(1), 1}}},
		{"a window of nothing that is opened", 0, 100, []step{{nil, 0}, {stream(60), 60}, {stream(60), 40}}},
		{"a window of nothing that a setting opens", 0, 100, []step{{nil, 0}, {setting(30), 30}, {setting(200), 70}}},
		{"a window that becomes less than nothing", 1000, 2000, []step{{nil, 1000}, {setting(400), 0}, {stream(599), 0}, {stream(2), 1}, {setting(5000), 999}}},
		{"the connection's window", 1 << 20, 65_635, []step{{nil, 65_535}, {stream(1000), 0}, {connection(1), 1}, {connection(98), 98}, {connection(1000), 1}}},
		{"both", 10, 30, []step{{nil, 10}, {connection(1000), 0}, {stream(10), 10}, {setting(20), 10}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			onBothSides(t, options{}, download, func(t *testing.T, s *testServer, _ string) {
				p := s.greet(t, window(test.window))
				p.deaf = true
				p.get("/?" + fmt.Sprint(test.size))
				ended := false
				for _, step := range test.steps {
					if step.do != nil {
						step.do(p)
					}
					ended = p.collect(1, step.more)
				}
				if a := (&answer{}); !ended {
					if a = p.await(1); !a.ended || len(a.body) > 0 {
						t.Errorf("end of the download = %+v, want the end of the stream without more bytes", a)
					}
				}
			})
		})
	}
}

// A stream with a closed window does not block other streams.
func TestClosedStreamWindowBlocksNoOtherStream(t *testing.T) {
	onBothSides(t, options{}, download, func(t *testing.T, s *testServer, _ string) {
		p := s.greet(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
		p.deaf = true
		for range 20 {
			p.get("/?100")
		}
		id := p.get("/?100")
		p.tell(p.WriteWindowUpdate(id, 1000))
		if a := p.await(id); len(a.body) != 100 || !a.ended {
			t.Errorf("response on stream %d = %+v, want 100 bytes and its end", id, a)
		}
	})
}

// DATA beyond the window ends the stream or the connection. Unread bytes count as unread.
func TestUploadBeyondWindowIsRejected(t *testing.T) {
	const window = 70_000
	release := make(chan struct{})
	handler := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/good" {
			return
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	onBothSides(t, options{window: window}, handler, func(t *testing.T, s *testServer, _ string) {
		p := s.greet(t)
		id := p.open(false, request("POST", "/")...)
		chunk := make([]byte, 10_000)
		for range 7 {
			p.tell(p.WriteData(id, false, chunk))
		}
		if got := p.verdict(); got != "served" {
			t.Fatalf("verdict after DATA within the window = %s, want served", got)
		}
		p.tell(p.WriteData(id, false, []byte("x")))
		if got := p.verdict(); got != "GOAWAY FLOW_CONTROL_ERROR" && got != "RST 1 FLOW_CONTROL_ERROR, served" {
			t.Errorf("verdict after one byte more = %s, want FLOW_CONTROL_ERROR", got)
		}
	})
}

// The connection's window is returned for unread data: of streams that are answered early, reset by the client, or padded.
func TestConnectionWindowIsReturnedForUnreadData(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-r.Context().Done()
		}
	}
	for name, each := range map[string]func(*peer){
		"bodies that nobody reads": func(p *peer) {
			id := p.open(false, request("POST", "/early")...)
			p.tell(p.WriteData(id, true, make([]byte, 16_000)))
			p.await(id)
		},
		"streams that the client resets": func(p *peer) {
			id := p.open(false, request("POST", "/wait")...)
			p.tell(p.WriteData(id, false, make([]byte, 16_000)))
			p.tell(p.WriteRSTStream(id, http2.ErrCodeCancel))
			p.verdict()
		},
		"padding": func(p *peer) {
			id := p.open(false, request("POST", "/early")...)
			for range 60 {
				p.tell(p.WriteDataPadded(id, false, []byte("x"), make([]byte, 255)))
			}
			p.tell(p.WriteData(id, true, nil))
			p.await(id)
		},
		"what comes after an early answer": func(p *peer) {
			id := p.open(false, request("POST", "/early")...)
			p.await(id)
			p.tell(p.WriteData(id, true, make([]byte, 16_000)))
			p.verdict()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothSides(t, options{window: 65_535}, handler, func(t *testing.T, s *testServer, _ string) {
				p := s.greet(t)
				p.counting()
				for i := range 20 {
					each(p)
					for p.window < 16_000 { // Announced updates may still be in flight.
						if _, err := p.event(); err != nil {
							t.Fatalf("window after %d streams = %d: %v, want at least 16000", i+1, p.window, err)
						}
					}
				}
			})
		})
	}
}

// A client that reads a response in small pieces sends many WINDOW_UPDATE frames for each DATA frame. This is not a flood.
func TestD16SlowlyReadingClientIsNotFlood(t *testing.T) {
	onBothSides(t, options{}, download, func(t *testing.T, s *testServer, _ string) {
		res, err := s.client(t).Get("https://" + s.address + "/?50000000")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		piece := make([]byte, 4<<10)
		n := 0
		for err == nil {
			var m int
			m, err = res.Body.Read(piece)
			n += m
		}
		if n != 50_000_000 {
			t.Errorf("download = %d bytes, error %v, want 50000000 bytes", n, err)
		}
	})
}
