package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico.dev/internal/httpengine/enginetest"
)

// reads is a handler that reads the request body, except for /unread, until the test ends.
func reads(end <-chan struct{}, unread *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/unread" {
			unread.Add(1)
			select {
			case <-end:
			case <-r.Context().Done():
			}
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			_, _ = w.Write([]byte(strings.Repeat("x", min(int(n), 10))))
		}
	})
}

// endless is a body that never ends, and counts the bytes that were read.
type endless struct {
	n    atomic.Int64
	stop <-chan struct{}
}

func (e *endless) Read(p []byte) (int, error) {
	select {
	case <-e.stop:
		return 0, io.EOF
	default:
	}
	e.n.Add(int64(len(p)))
	return len(p), nil
}

// post sends a body to a path, and returns the body of the response.
func post(ctx context.Context, b *Backend, path string, body io.Reader, length int64) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://x"+path, body)
	if err != nil {
		return "", err
	}
	r.ContentLength = length
	resp, err := b.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// Uploads that a backend does not read use up the windows of their connections, but block no other upload, short or long.
func TestD17UnreadUploadsDoNotBlockOtherUploads(t *testing.T) {
	w := newTestEnv(t)
	end := make(chan struct{})
	var unread atomic.Int64
	s := w.serve(reads(end, &unread))
	b := w.backend(w.set(), s.address)
	ctx, cancel := context.WithCancel(t.Context())
	const stalled = 12
	var bodies [stalled]endless
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer close(end)
	for i := range bodies {
		bodies[i].stop = ctx.Done()
		all.Go(func() { _, _ = post(ctx, b, "/unread", &bodies[i], -1) })
	}
	eventually(t, time.Minute, "none of them goes on", func() bool {
		if unread.Load() < stalled {
			return false
		}
		var before, after int64
		for i := range bodies {
			before += bodies[i].n.Load()
		}
		<-time.After(100 * time.Millisecond)
		for i := range bodies {
			after += bodies[i].n.Load()
		}
		return after == before
	})
	for name, size := range map[string]int{"short": 10, "that goes along with its head": 20 << 10, "long": 3 << 20} {
		for range 5 {
			within, stop := context.WithTimeout(t.Context(), time.Minute)
			body := bytes.Repeat([]byte("y"), size)
			got, err := post(within, b, "/read", bytes.NewReader(body), int64(size))
			if err == nil && got != "xxxxxxxxxx" {
				err = errors.New("answered " + got)
			}
			if err != nil {
				t.Errorf("upload %s failed: %v, want a response", name, err)
			}
			got, err = post(within, b, "/read", io.MultiReader(bytes.NewReader(body)), -1)
			if err == nil && got != "xxxxxxxxxx" {
				err = errors.New("answered " + got)
			}
			if err != nil {
				t.Errorf("upload %s of unknown length failed: %v, want a response", name, err)
			}
			stop()
		}
	}
	if n := s.openConns(); n > 2*stalled {
		t.Errorf("%d connections for %d unread uploads, want at most %d", n, stalled, 2*stalled)
	}
	if state := b.Report().Endpoints[0]; state.State != "well" {
		t.Errorf("endpoint during unread uploads = %+v, want the state well", state)
	}
}

// The number of connections is limited for any number of uploads, and short uploads that are read share one connection.
func TestD17UploadConnectionsAreLimited(t *testing.T) {
	w := newTestEnv(t)
	end := make(chan struct{})
	var unread atomic.Int64
	s := w.serve(reads(end, &unread))
	b := w.backend(w.set(func(o *Options) { o.MaxConns = 4 }), s.address)
	for range 50 {
		if _, err := post(t.Context(), b, "/read", strings.NewReader("short"), 5); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.openConns(); n != 1 {
		t.Errorf("%d connections for sequential short uploads, want 1", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	const stalled = 40
	var bodies [stalled]endless
	var all sync.WaitGroup
	for i := range bodies {
		bodies[i].stop = ctx.Done()
		all.Go(func() { _, _ = post(ctx, b, "/unread", &bodies[i], -1) })
	}
	eventually(t, time.Minute, "all have begun", func() bool { return unread.Load() == stalled })
	if n := s.openConns(); n > 4 {
		t.Errorf("%d connections for %d unread uploads, want at most 4", n, stalled)
	}
	if _, err := get(t, b); err != nil {
		t.Errorf("GET during unread uploads failed: %v, want no error", err)
	}
	close(end)
	cancel()
	all.Wait()
}

// A backend that floods its connection loses it, and the endpoint is ejected, with or without a request in flight.
func TestD16FloodingEndpointIsEjected(t *testing.T) {
	enginetest.NotOnLibraryBackend(t, "floods of frames that carry nothing")
	for _, busy := range []bool{true, false} {
		w := newTestEnv(t)
		asked := make(chan struct{}, 10)
		b := w.backend(w.set(), w.raw("h2", func(c *tls.Conn) {
			f, ok := newFrames(c)
			if !ok {
				return
			}
			_ = f.WriteSettings()
			f.each(func(stream uint32) bool {
				if !busy {
					f.header(stream, true, ":status", "200")
				}
				asked <- struct{}{}
				for range 100_000 {
					if f.WritePing(true, [8]byte{}) != nil {
						return false
					}
				}
				return true
			})
		}))
		_, err := get(t, b)
		var failed *Error
		if busy && (!errors.As(err, &failed) || !failed.Protocol) {
			t.Errorf("GET from a flooding backend error = %#v (%v), want a protocol error", err, err)
		}
		if !busy && err != nil {
			t.Errorf("GET before the flood failed: %v, want no error", err)
		}
		<-asked
		eventually(t, time.Minute, "the endpoint is ejected for a flood", func() bool {
			r := b.Report().Endpoints[0]
			return r.Ejections > 0 && strings.Contains(r.LastFailure, "ENHANCE_YOUR_CALM")
		})
	}
}
