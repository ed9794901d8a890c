package http1

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// Cases of the tests of Go's HTTP libraries that no other Portico test covered (internal/httpengine/upstream-tests.md).

// A handler may suppress the length that the server would send: TestDisableContentLength of net/http.
func TestHandlerCanSuppressContentLength(t *testing.T) {
	handler := probed(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Length"] = nil
		say(w, "hello")
	})
	lib, our := implementations[0].open(t, rules{}, handler), implementations[1].open(t, rules{}, handler)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) { answeredAlike(t, lib, our, v.method, v.head, nil, v.name) })
	}
}

// Some handlers still use CloseNotify to detect a disconnect: TestCloseNotifier of net/http.
func TestCloseNotifyReportsDisconnect(t *testing.T) {
	for _, p := range implementations {
		t.Run(p.name, func(t *testing.T) {
			begun, told := make(chan struct{}), make(chan bool, 1)
			a := p.open(t, rules{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				gone := w.(interface{ CloseNotify() <-chan bool }).CloseNotify() // which some programs still use
				close(begun)
				ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 20*time.Second)
				defer cancel()
				select {
				case <-gone:
					told <- true
				case <-ctx.Done():
					told <- false
				}
			}))
			conn := a.dial(t)
			if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			<-begun
			_ = conn.Close()
			if !<-told {
				t.Error("CloseNotify sent false after the client disconnected, want true")
			}
		})
	}
}
