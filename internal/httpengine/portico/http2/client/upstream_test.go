package client

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"portico.dev/internal/httpengine/engine"
)

// Cases of the tests of Go's HTTP libraries that no other Portico test covered (internal/httpengine/upstream-tests.md).

// The server receives no more bytes than announced: TestTransportBodyLargerThanSpecifiedContentLength of golang.org/x/net/http2.
func TestBodyBeyondContentLengthIsNotSent(t *testing.T) {
	for name, body := range map[string]io.Reader{
		"in one piece": strings.NewReader("123456"),
		"in two":       io.MultiReader(strings.NewReader("12"), strings.NewReader("3456")),
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, library(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				if err != nil || r.ContentLength != 3 {
					t.Errorf("request at the server: length = %d, error %v, want 3 and no error", r.ContentLength, err)
				}
				_, _ = w.Write(b)
			})))
			r := newRequest(t, http.MethodPost, "/", body)
			r.ContentLength = 3
			resp, err := c.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, resp); got != "123" {
				t.Errorf("body at the server = %q, want \"123\"", got)
			}
		})
	}
}

// unread is a body that must be closed and not read.
type unread struct{ read, closed atomic.Bool }

func (b *unread) Read([]byte) (int, error) { b.read.Store(true); return 0, errors.New("it was read") }
func (b *unread) Close() error             { b.closed.Store(true); return nil }

// The body of a request that is not sent is closed and not read: TestRoundTripDoesntConsumeRequestBodyEarly.
func TestBodyOfUnsentRequestIsNotRead(t *testing.T) {
	c := connect(t, serve(t, nil, func(p *peer) {
		_ = p.WriteGoAway(p.request(), http2.ErrCodeNo, nil)
		p.drain()
	}))
	first := send(c, newRequest(t, http.MethodGet, "/", nil))
	wait(t, "the server says GOAWAY", func() bool { return !c.Available() })
	body := &unread{}
	if _, err := c.RoundTrip(newRequest(t, http.MethodPost, "/", body)); kindOf(err) != engine.Unsent {
		t.Errorf("RoundTrip: error = %v, want Unsent", err)
	}
	if body.read.Load() || !body.closed.Load() {
		t.Errorf("body read = %v, closed = %v, want only closed", body.read.Load(), body.closed.Load())
	}
	c.Close()
	<-first.done
}
