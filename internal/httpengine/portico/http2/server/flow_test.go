package server

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// quiet fails the test if a stream or the connection ends before the client's PING is answered.
func (p *peer) quiet() {
	p.t.Helper()
	p.must(p.WritePing(false, [8]byte{7}))
	for f := range p.frames {
		switch f := f.(type) {
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			p.t.Fatalf("frame %v, want only the answer to PING", f)
		case *http2.PingFrame:
			if f.Data == [8]byte{7} {
				return
			}
		}
	}
	p.t.Fatal("connection ended, want an answer to PING")
}

// Padding is not read and counts for the window.
func TestPaddingIsReturnedToWindow(t *testing.T) {
	s := start(t, Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })})
	p := s.dial(t)
	p.open(1, false, post...)
	for range 5000 {
		p.must(p.WriteDataPadded(1, false, []byte("x"), make([]byte, 255)))
	}
	p.must(p.WriteData(1, true, nil))
	if got := p.answers().wait(1); got.status != "200" {
		t.Errorf("response = %+v, want status 200", got)
	}
}

// Unread bodies do not use up the connection's window. Data in flight is not a client error.
func TestUnreadBodiesReturnConnectionWindow(t *testing.T) {
	s := start(t, Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 1)) })})
	p := s.dial(t)
	for i := range uint32(50) {
		id := 2*i + 1
		p.open(id, false, post...)
		p.must(p.WriteData(id, false, make([]byte, 16_000)))
		p.must(p.WriteData(id, false, make([]byte, 16_000)))
		if f := next[*http2.RSTStreamFrame](p); f == nil || f.ErrCode != http2.ErrCodeNo {
			t.Fatalf("reset of stream %d = %v, want NO_ERROR", id, f)
		}
		p.must(p.WriteData(id, true, make([]byte, 16_000))) // in flight
	}
	p.quiet()
}

// A client with a request that answers PING stays connected without limit. A client that does not answer is disconnected.
func TestUnansweredPingsEndConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })})
		ours, theirs := net.Pipe()
		began := time.Now()
		var over atomic.Int64 // time of the end since began
		go func() {
			s.begin(ours, ours, nil)()
			over.Store(int64(time.Since(began)))
		}()
		var deaf atomic.Bool
		f := http2.NewFramer(theirs, theirs)
		send := make(chan func() error, 10)
		go func() {
			for write := range send {
				_ = write()
			}
		}()
		go func() {
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				if ping, ok := frame.(*http2.PingFrame); ok && !deaf.Load() {
					data := ping.Data
					send <- func() error { return f.WritePing(true, data) }
				}
			}
		}()
		send <- func() error { _, err := io.WriteString(theirs, http2.ClientPreface); return err }
		send <- func() error { return f.WriteSettings() }
		send <- func() error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x84, 0x87}, EndHeaders: true, EndStream: true})
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if over.Load() != 0 {
			t.Fatalf("connection ended after %s, want it open after an hour", time.Duration(over.Load()))
		}
		deaf.Store(true)
		<-time.After(time.Minute)
		synctest.Wait()
		if after := time.Duration(over.Load()); after < time.Hour+15*time.Second || after > time.Hour+time.Minute {
			t.Errorf("connection ended after %s, want 15 to 60 seconds after the last answer to PING", after)
		}
		close(send)
		s.Close()
		_ = theirs.Close()
	})
}

// Unread uploads fill their own windows and leave room in the connection's window for other streams (golang/go#16510): up to three
// uploads with the default windows.
func TestUnreadUploadsLeaveConnectionWindow(t *testing.T) {
	release := make(chan struct{})
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-release
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != 3<<20 {
			t.Errorf("upload = %d bytes, error %v, want %d bytes", n, err, 3<<20)
		}
	})})
	defer close(release)
	client := s.client(t)
	for range 3 {
		endless, stop := io.Pipe()
		defer stop.Close()
		go func() { _, _ = stop.Write(make([]byte, 2<<20)) }() // more than all windows
		res, err := client.Post("https://"+s.address+"/stuck", "", endless)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.address+"/", bytes.NewReader(make([]byte, 3<<20)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatalf("other upload on the connection failed: %v, want no error", err)
	}
	_ = res.Body.Close()
}
