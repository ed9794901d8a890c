package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// These cases are from the Go library's tests and have no other equivalent in Portico (internal/httpengine/upstream-tests.md).

// A caller that cancels before there is a connection does not wait for one: TestTransportCancelRequestInDial and TestTransportCancelRequestBeforeDo of
// net/http.
func TestCanceledCallerDoesNotWaitForConnection(t *testing.T) {
	w := newTestEnv(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer l.Close()
	accepted, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	var once sync.Once
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			once.Do(func() { close(accepted) })
			all.Go(func() { <-release; _ = c.Close() }) // sends no data
		}
	})
	b := w.backend(w.set(func(o *Options) { o.DialTimeout = time.Minute }), l.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := b.RoundTrip(r)
		done <- err
	}()
	<-accepted
	cancel()
	for _, when := range []string{"while we dial", "before"} {
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("RoundTrip canceled %s error = %v, want context.Canceled", when, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("RoundTrip canceled %s still waits after 20 seconds, want context.Canceled", when)
		}
		go func() {
			_, err := b.RoundTrip(r)
			done <- err
		}()
	}
	<-done
}
