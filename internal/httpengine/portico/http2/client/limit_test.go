package client

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A caller may send another request as soon as it has the outcome of the previous one. The server must know by then that the previous
// stream is closed. Otherwise it would count one stream too many. Many servers, net/http's among them, refuse such a stream, some with
// a connection error.
func TestStreamLimitIsObeyedWhenRequestsEndEarly(t *testing.T) {
	const requests = 3000
	for name, end := range map[string]func(p *peer, id uint32, leave func()){
		"callers leave":       func(_ *peer, _ uint32, leave func()) { leave() },
		"answered before all": func(p *peer, id uint32, _ func()) { p.headers(id, true, ":status", "200") },
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex // guards the fields below
			var next func()
			most := 0
			c := connect(t, serve(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: 1}}, func(p *peer) {
				open := 0
				for f := range p.frames {
					switch f.Type {
					case http2.FrameHeaders:
						open++
						mu.Lock()
						most = max(most, open)
						mu.Unlock()
						end(p, f.StreamID, next)
					case http2.FrameRSTStream:
						open--
					case http2.FrameData:
						if f.Flags.Has(http2.FlagDataEndStream) {
							open--
						}
					}
				}
			}))
			for range requests {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				body, rest := io.Pipe() // a body without end
				mu.Lock()
				next = cancel
				mu.Unlock()
				resp, err := c.RoundTrip(newRequest(t, http.MethodPost, "/", body).WithContext(ctx))
				if err == nil {
					_ = resp.Body.Close()
				}
				_ = rest.Close()
				cancel()
			}
			mu.Lock()
			defer mu.Unlock()
			if most != 1 {
				t.Errorf("%d streams were open at the same time, want 1", most)
			}
		})
	}
}
