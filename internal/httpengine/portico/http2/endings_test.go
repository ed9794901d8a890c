package http2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// Streams beyond the limit are refused, so that a client may send them again. Streams within the limit are served.
func TestStreamsBeyondLimitAreRefused(t *testing.T) {
	const limit = 5
	var now, most atomic.Int64
	release := make(chan struct{})
	handler := func(_ http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	onBothSides(t, options{streams: limit}, handler, func(t *testing.T, s *testServer, side string) {
		now.Store(0)
		most.Store(0)
		p := s.greet(t)
		p.event() // SETTINGS
		for range 4 * limit {
			p.get("/")
		}
		refused := 0
		for refused < 3*limit {
			f, err := p.event()
			if err != nil {
				t.Fatal(err)
			}
			if r, ok := f.(*http2.RSTStreamFrame); ok {
				if r.ErrCode != http2.ErrCodeRefusedStream && (side == ours || r.ErrCode != http2.ErrCodeProtocol) { // RFC 9113, 5.1.2 allows both.
					t.Fatalf("reset of a stream beyond the limit = %v, want REFUSED_STREAM", r)
				}
				refused++
			}
		}
		for range limit {
			release <- struct{}{}
		}
		served := 0
		for served < limit {
			f, err := p.event()
			if err != nil {
				t.Fatal(err)
			}
			if over(f) {
				served++
			}
		}
		if most.Load() > limit {
			t.Errorf("%d handlers ran at the same time, want at most %d", most.Load(), limit)
		}
	})
}

// Streams count until they have ended for the client. A stream whose last bytes wait for a window is open.
func TestStreamsWaitingForWindowCountAsOpen(t *testing.T) {
	const limit = 5
	onBothSides(t, options{streams: limit}, download, func(t *testing.T, s *testServer, side string) {
		p := s.greet(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		p.event()              // SETTINGS
		for i := range limit { // Their handlers have returned, but the data waits for the window.
			a := p.awaitUntil(p.get("/?2"), func(a *answer) bool { return a.header != nil })
			if a.status() != "200" {
				t.Fatalf("response %d = %+v, want status 200", i, a)
			}
		}
		if a := p.await(p.get("/?2")); a.reset != "REFUSED_STREAM" && (side == ours || a.reset != "PROTOCOL_ERROR") {
			t.Errorf("stream beyond the limit = %+v, want REFUSED_STREAM", a)
		}
		p.tell(p.WriteWindowUpdate(1, 2))
		if a := p.await(1); !a.ended {
			t.Errorf("stream 1 after its window opened = %+v, want its end", a)
		}
		if a := p.awaitUntil(p.get("/?2"), func(a *answer) bool { return a.header != nil }); a.status() != "200" {
			t.Errorf("stream after one has ended = %+v, want status 200", a)
		}
	})
}

// A client that returns small windows for each DATA frame and for the connection is slow and not hostile.
func TestSmallWindowUpdatesAreNotFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	onBothSides(t, options{}, download, func(t *testing.T, s *testServer, _ string) {
		const size = 500_000 // 20,000 updates, twice as many as a connection may send of other frames that carry nothing
		p := s.greet(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 50})
		if a := p.await(p.get("/?" + fmt.Sprint(size))); len(a.body) != size || !a.ended {
			t.Errorf("download = %d bytes, GOAWAY %s, error %v, want %d bytes", len(a.body), a.goneAway, a.lost, size)
		}
	})
}

// Requests that run during GOAWAY are served. Clients learn which requests are not served.
func TestShutdownLosesNoRequest(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, n)
	}
	onBothSides(t, options{}, handler, func(t *testing.T, s *testServer, side string) {
		var all sync.WaitGroup
		var good, refused atomic.Int64
		halfway := make(chan struct{})
		var once sync.Once
		for range 4 {
			c := s.client(t)
			for range 8 {
				all.Go(func() {
					for {
						connected := false // Without a connection, a closed listener refuses it or resets a connection that was not accepted.
						ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
							GetConn: func(string) { connected = false }, // possibly for the second time
							GotConn: func(httptrace.GotConnInfo) { connected = true },
						})
						q, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.address+"/", strings.NewReader("body"))
						if err != nil {
							t.Error(err)
							return
						}
						r, err := c.Do(q)
						if err != nil {
							if word := err.Error(); connected && !(strings.Contains(word, "GOAWAY") && strings.Contains(word, "NO_ERROR")) {
								t.Errorf("request during the shutdown failed: %v, want a response or GOAWAY with NO_ERROR", err)
							}
							refused.Add(1)
							return
						}
						b, err := io.ReadAll(r.Body)
						_ = r.Body.Close()
						if err != nil || string(b) != "4" {
							t.Errorf("body = %q, error %v, want \"4\" and no error", b, err)
							return
						}
						if good.Add(1) == 300 {
							once.Do(func() { close(halfway) })
						}
					}
				})
			}
		}
		<-halfway
		wait := patience
		if side == library {
			wait = time.Second // It may wait for connections without a request.
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		if err := s.shutdown(ctx); err != nil && side == ours {
			t.Error(err)
		}
		all.Wait()
		t.Logf("%d were served, %d refused", good.Load(), refused.Load())
	})
}

// A client that receives GOAWAY has its earlier requests served. Requests after the last GOAWAY are not served.
func TestRequestsBeforeLastGoAwayAreServed(t *testing.T) {
	var release chan struct{}
	handler := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-release
		}
	}
	onBothInTime(t, options{}, handler, func(t *testing.T, s *testServer, side string) {
		release = make(chan struct{})
		p := s.greet(t)
		id := p.get("/wait")
		p.verdict()
		over := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			over <- s.shutdown(ctx)
		}()
		var last []uint32
		for len(last) == 0 || last[len(last)-1] == 1<<31-1 {
			f, err := p.event()
			if err != nil {
				t.Fatal(err)
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				if g.ErrCode != http2.ErrCodeNo {
					t.Fatalf("GOAWAY = %v, want NO_ERROR", g)
				}
				last = append(last, g.LastStreamID)
			}
		}
		if want := map[string]int{ours: 2, library: 1, fallback: 1}; len(last) != want[side] || last[len(last)-1] != 3 { // net/http's server sends no first GOAWAY.
			t.Errorf("last streams of the GOAWAY frames = %d, want 3 as the last of them", last)
		}
		p.get("/late")
		close(release)
		a := p.await(id)
		if a.status() != "200" || !a.ended {
			t.Errorf("response on stream %d = %+v, want status 200 and its end", id, a)
		}
		if a := p.await(p.next - 2); a.status() != "" || a.lost == nil {
			t.Errorf("request after the last GOAWAY = %+v, want no response", a)
		}
		_ = p.conn.Close()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

func TestIdleConnectionsEndWithGoAway(t *testing.T) {
	onBothInTime(t, options{idle: 20 * time.Second}, waits, func(t *testing.T, s *testServer, _ string) {
		p := s.greet(t)
		if got := p.verdict(); got != "served" {
			t.Fatalf("verdict of the idle connection = %s, want served", got)
		}
		goneAway := false
		for {
			f, err := p.event()
			if err != nil {
				break
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				goneAway = true
				if g.ErrCode != http2.ErrCodeNo {
					t.Errorf("GOAWAY of the idle connection = %v, want NO_ERROR", g)
				}
			}
		}
		if !goneAway {
			t.Error("idle connection ended without GOAWAY, want GOAWAY with NO_ERROR")
		}
		busy := s.greet(t)
		busy.get("/wait")
		_ = busy.conn.SetReadDeadline(time.Now().Add(30 * time.Second)) // longer than the idle timeout
		for {
			f, err := busy.event()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatalf("connection with a request ended: %v, want it open", err)
			}
			if _, ok := f.(*http2.GoAwayFrame); ok {
				t.Fatal("connection with a request received GOAWAY, want none")
			}
		}
	})
}
