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

// What a backend sends is handed on when nothing comes behind it, over HTTP/2 to the backend too.
func TestAPausingAnswerIsHandedOn(t *testing.T) {
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
			t.Fatalf("%q, %v", line, err)
		}
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// The beginning of a body that has a length is handed on too, when the rest does not come. A client that is an API server would answer 504
// by itself if it did not know of any response.
func TestTheBeginningOfAnAnswerIsHandedOn(t *testing.T) {
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
				t.Fatalf("%q of %d, %v", half, resp.ContentLength, err)
			}
			rest <- struct{}{}
			if all, err := io.ReadAll(resp.Body); string(all) != "rest" || err != nil {
				t.Errorf("%q, %v", all, err)
			}
		})
	}
}

func TestUpstreamContextCallsAfterFunc(t *testing.T) {
	l := &upstreamContext{Context: t.Context(), client: t.Context()}
	called := make(chan string, 3)
	stopped := l.AfterFunc(func() { called <- "stopped" })
	if !stopped() || stopped() {
		t.Error("stopped once, and no more")
	}
	first := l.AfterFunc(func() { called <- "first" })
	if stopped() {
		t.Error("an old stop stops what came after it")
	}
	context.AfterFunc(l, func() { called <- "second" })
	var wait sync.WaitGroup
	wait.Go(func() { <-l.Done() })
	l.mu.Lock()
	l.endLocked(errClientGone)
	l.mu.Unlock()
	wait.Wait()
	if got := map[string]bool{<-called: true, <-called: true}; !got["first"] || !got["second"] {
		t.Error(got)
	}
	if first() {
		t.Error("stopped what was called")
	}
	l.AfterFunc(func() { called <- "late" })
	if <-called != "late" {
		t.Error("who comes late is not called")
	}
}
