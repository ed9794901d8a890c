package proxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"portico.dev/internal/transport"
)

// The bytes of a response are forwarded although no further bytes follow, also over HTTP/2 to the backend.
func TestPausedResponseIsFlushed(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	next := make(chan struct{})
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/pause") {
			_, _ = io.WriteString(rw, r.Proto)
			return
		}
		for range 3 {
			_, _ = io.WriteString(rw, r.Proto+"\n")
			_ = http.NewResponseController(rw).Flush()
			<-next
		}
	})))
	c := w.client()
	resp, err := c.Do(w.request(http.MethodGet, resource+"/pause", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	line := make([]byte, len("HTTP/2.0\n"))
	for range 3 {
		if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != "HTTP/2.0\n" {
			t.Fatalf("read of a line = %q, error %v, want %q", line, err, "HTTP/2.0\n")
		}
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("rest of the body = %q, error %v, want none", rest, err)
	}
}

// The beginning of a body of known length is forwarded too, when the rest does not arrive. An API server as client would
// otherwise answer 504, because it had not received a response.
func TestBeginningOfStalledResponseIsFlushed(t *testing.T) {
	for _, proto := range []string{"h2", "http/1.1"} {
		t.Run(proto, func(t *testing.T) {
			w := newTestEnv(t, Config{}, transport.Options{})
			rest := make(chan struct{})
			w.backend(w.serveProtos(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/pause") {
					return
				}
				rw.Header().Set("Content-Length", "8")
				_, _ = io.WriteString(rw, "half")
				_ = http.NewResponseController(rw).Flush()
				<-rest
				_, _ = io.WriteString(rw, "rest")
			}), proto))
			defer close(rest)
			resp, err := w.client().Do(w.request(http.MethodGet, resource+"/pause", nil))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			half := make([]byte, 4)
			if _, err := io.ReadFull(resp.Body, half); err != nil || string(half) != "half" || resp.ContentLength != 8 {
				t.Fatalf("read = %q of %d bytes, error %v, want %q of 8 bytes", half, resp.ContentLength, err, "half")
			}
			rest <- struct{}{}
			if all, err := io.ReadAll(resp.Body); string(all) != "rest" || err != nil {
				t.Errorf("rest of the body = %q, error %v, want %q", all, err, "rest")
			}
		})
	}
}

func TestUpstreamContextCallsAfterFunc(t *testing.T) {
	l := &upstreamContext{Context: t.Context(), client: t.Context()}
	called := make(chan string, 3)
	stopped := l.AfterFunc(func() { called <- "stopped" })
	if !stopped() || stopped() {
		t.Error("results of two calls of stop differ from true and false, want true and false")
	}
	first := l.AfterFunc(func() { called <- "first" })
	if stopped() {
		t.Error("stop of an ended AfterFunc = true, want false and the later function registered")
	}
	context.AfterFunc(l, func() { called <- "second" })
	var wait sync.WaitGroup
	wait.Go(func() { <-l.Done() })
	l.mu.Lock()
	l.endLocked(errClientGone)
	l.mu.Unlock()
	wait.Wait()
	if got := map[string]bool{<-called: true, <-called: true}; !got["first"] || !got["second"] {
		t.Errorf("called functions = %v, want first and second", got)
	}
	if first() {
		t.Error("stop of a called function = true, want false")
	}
	l.AfterFunc(func() { called <- "late" })
	if <-called != "late" {
		t.Error("AfterFunc after the end called another function, want late")
	}
}
