package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

func TestBufferedBodyIsResent(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"read first":            func(*Options) {},
		"kept while it is sent": func(o *Options) { o.MaxReplayTotal = 5 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			set := w.set(change)
			var seen atomic.Int64
			bodies := make(chan string, 10)
			address := w.raw("h2", func(c *tls.Conn) {
				f, ok := newFrames(c)
				if !ok {
					return
				}
				_ = f.WriteSettings()
				text := map[uint32]string{}
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					data, ok := frame.(*http2.DataFrame)
					if !ok {
						continue
					}
					id := data.StreamID
					text[id] += string(data.Data())
					switch {
					case !data.StreamEnded():
					case seen.Add(1) < 3:
						_ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
					default:
						if kept := set.KeptBodies(); kept != 5 {
							t.Errorf("bytes kept for retries during the request = %d, want 5", kept)
						}
						bodies <- text[id]
						f.header(id, true, ":status", "200")
					}
				}
			})
			b := w.backend(set, address)
			_, err := do(t, b, http.MethodPost, strings.NewReader("12345"))
			if err != nil || seen.Load() != 3 {
				t.Fatalf("POST to a backend that refuses streams made %d attempts with the error %v, want 3 and no error", seen.Load(), err)
			}
			if got := <-bodies; got != "12345" {
				t.Errorf("body of the third attempt = %q, want 12345", got)
			}
			if left := set.KeptBodies(); left != 0 {
				t.Errorf("bytes kept for retries after the request = %d, want 0", left)
			}
		})
	}
}

// stuck is a body whose Read blocks until come is closed, regardless of Close, like the body of a server's request over
// HTTP/1.1.
type stuck struct{ come chan struct{} }

func (s stuck) Read([]byte) (int, error) { <-s.come; return 0, io.ErrUnexpectedEOF }
func (s stuck) Close() error             { return nil }

func TestStalledRequestBodyFailsUnsent(t *testing.T) {
	w := newTestEnv(t)
	var asked atomic.Int64
	s := w.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	b := w.backend(w.set(), s.address)
	body := stuck{make(chan struct{})}
	defer close(body.come)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("too late"))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://x/", body)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 10
	_, err = b.RoundTrip(r)
	var failed *Error
	if !errors.As(err, &failed) || failed.Sent || failed.Attempts != 0 || !strings.Contains(err.Error(), "too late") {
		t.Errorf("POST with a body that stalls error = %#v, want too late after 0 attempts, not sent", err)
	}
	if asked.Load() != 0 || b.set.replays.used.Load() != 0 {
		t.Errorf("%d requests reached the backend and %d bytes are kept, want 0 and 0", asked.Load(), b.set.replays.used.Load())
	}
}

// here is a body that reports that it is buffered.
type here struct{ *strings.Reader }

func (h *here) Close() error          { return nil }
func (h *here) Buffered() (int, bool) { return h.Len(), true }

func TestShortRequestBodyFailsUnsent(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	b := w.backend(w.set(), s.address)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://x/", &here{strings.NewReader("abc")})
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 10
	_, err = b.RoundTrip(r)
	var failed *Error
	if !errors.As(err, &failed) || failed.Sent || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("POST with a short body error = %#v, want io.ErrUnexpectedEOF, not sent", err)
	}
	if state := b.Report().Endpoints[0].State; state != "well" {
		t.Errorf("state of the endpoint after a client's short body = %s, want well", state)
	}
}

// failing is a client's body whose Read returns an error.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the client went") }
func (failing) Close() error             { return nil }

func TestFailingRequestBodyDoesNotEjectEndpoint(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	b := w.backend(w.set(), s.address)
	for range 2 * softFailures {
		if _, err := do(t, b, http.MethodPost, failing{}); err == nil || !strings.Contains(err.Error(), "the client went") {
			t.Fatalf("POST with a failing body error = %v, want the client's error", err)
		}
	}
	if e := b.Report().Endpoints[0]; e.State != "well" || e.LastFailure != "" {
		t.Errorf("endpoint after failing bodies = %+v, want the state well without a failure", e)
	}
}
