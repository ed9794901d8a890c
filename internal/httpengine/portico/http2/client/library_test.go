package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"portico.dev/internal/httpengine/engine"
)

// config has short timeouts, which take effect at each check.
func config() engine.ClientConfig {
	return engine.ClientConfig{
		MaxHeaderBytes: 64 << 10, CheckInterval: 10 * time.Millisecond, PingAfter: 20 * time.Millisecond, PingTimeout: 30 * time.Second,
		HeaderTimeout: 30 * time.Second, ProtocolTimeout: 10 * time.Second,
	}
}

// listen lets handle serve each connection until the test ends.
func listen(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, nc)
			mu.Unlock()
			wg.Go(func() {
				defer func() { _ = nc.Close() }()
				handle(nc)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// connect returns a Conn that is closed with the test.
func connect(t *testing.T, address string, change ...func(*engine.ClientConfig)) *Conn {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config()
	for _, f := range change {
		f(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := New(ctx, nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); c.Wait() })
	return c
}

// library starts net/http's server.
func library(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	s.Protocols.SetUnencryptedHTTP2(true)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { _ = s.Close(); wg.Wait() })
	return l.Addr().String()
}

func newRequest(t *testing.T, method, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://backend.example"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return string(b)
}

func TestRequestsAndResponsesAreComplete(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<16) // twice a stream's window
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("early") != "" {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Add("X-Two", "a")
		w.Header().Add("X-Two", "b")
		w.Header().Set("X-Length", fmt.Sprint(r.ContentLength))
		w.Header().Set("X-Seen", fmt.Sprint(r.Host, " ", r.RequestURI, " ", r.UserAgent(), " ", r.Trailer.Get("X-Of-Request")))
		_, _ = w.Write(b)
		w.Header().Set("X-Sum", fmt.Sprint(len(b)))
	})
	c := connect(t, library(t, echo))
	for _, test := range []struct {
		name   string
		body   io.Reader
		length string
		want   string
	}{
		{"none", nil, "0", ""},
		{"whole", engine.NewBytesBody([]byte("whole")), "5", "whole"},
		{"whole and larger than any window", engine.NewBytesBody([]byte(large)), fmt.Sprint(len(large)), large},
		{"of known length", strings.NewReader("known"), "5", "known"},
		{"of known length and large", strings.NewReader(large), fmt.Sprint(len(large)), large},
		{"of unknown length", io.MultiReader(strings.NewReader("un"), strings.NewReader("known")), "-1", "unknown"},
		{"of unknown length and large", io.MultiReader(strings.NewReader(large), strings.NewReader("!")), "-1", large + "!"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRequest(t, http.MethodPost, "/a%2Fb?q=1", test.body)
			r.Header.Set("User-Agent", "agent")
			resp, err := c.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := readAll(t, resp); got != test.want {
				t.Errorf("body = %d bytes, want %d", len(got), len(test.want))
			}
			h := resp.Header
			if resp.StatusCode != 200 || resp.Status != "200 OK" || resp.Proto != "HTTP/2.0" || resp.ProtoMajor != 2 || len(h["X-Two"]) != 2 ||
				h.Get("X-Length") != test.length || resp.Trailer.Get("X-Sum") != fmt.Sprint(len(test.want)) ||
				h.Get("X-Seen") != "backend.example /a%2Fb?q=1 agent " {
				t.Errorf("response = %+v, want 200 with the headers and the trailer of the server", resp)
			}
		})
	}
	t.Run("a body with trailers", func(t *testing.T) {
		r := newRequest(t, http.MethodPost, "/", io.MultiReader(strings.NewReader("x")))
		r.Trailer = http.Header{"X-Of-Request": {"yes"}}
		resp, err := c.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp); got != "x" || !strings.HasSuffix(resp.Header.Get("X-Seen"), " yes") {
			t.Errorf("body = %q, header %v, want \"x\" and a value of X-Seen that ends with yes", got, resp.Header)
		}
	})
	t.Run("answered before the body came", func(t *testing.T) {
		reader, writer := io.Pipe()
		defer func() { _ = writer.Close() }()
		resp, err := c.RoundTrip(newRequest(t, http.MethodPut, "/?early=1", reader))
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, resp); got != "no\n" || resp.StatusCode != http.StatusTeapot {
			t.Errorf("response = %d %q, want 418 \"no\\n\"", resp.StatusCode, got)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for j := range 50 {
					want := bytes.Repeat([]byte{byte(i)}, i*j*8)
					resp, err := c.RoundTrip(newRequest(t, http.MethodPost, "/", engine.NewBytesBody(want)))
					if err != nil {
						t.Error(err)
						return
					}
					if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, want) {
						t.Errorf("body = %d bytes, error %v, want %d bytes and no error", len(got), err, len(want))
						return
					}
				}
			})
		}
		wg.Wait()
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) != 0 {
		t.Errorf("%d streams are open after all requests, want 0", len(c.streams))
	}
}

func TestCanceledContextEndsRequest(t *testing.T) {
	gone := make(chan struct{}, 1)
	c := connect(t, library(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		gone <- struct{}{}
	})))
	why := errors.New("the caller left")
	for _, path := range []string{"/head", "/body"} {
		ctx, leave := context.WithCancelCause(t.Context())
		r := newRequest(t, http.MethodGet, path, nil).WithContext(ctx)
		var err error
		if path == "/head" {
			time.AfterFunc(20*time.Millisecond, func() { leave(why) })
			_, err = c.RoundTrip(r)
		} else {
			resp, failed := c.RoundTrip(r)
			if failed != nil {
				t.Fatal(failed)
			}
			time.AfterFunc(20*time.Millisecond, func() { leave(why) })
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		var e *engine.Error
		if !errors.As(err, &e) || e.Kind != engine.Canceled || !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error = %v, want Canceled with the cause", path, err)
		}
		leave(nil)
		<-gone
	}
}
