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

// Cases of the Go library's own tests that no other test of ours had (docs/http-engines-tests.md).

// Who leaves before there is a connection waits for none: TestTransportCancelRequestInDial and TestTransportCancelRequestBeforeDo of
// net/http.
func TestCallersLeaveBeforeThereIsAConnection(t *testing.T) {
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
			all.Go(func() { <-release; _ = c.Close() }) // it says nothing
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
				t.Errorf("%s: %v", when, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the caller waits for a connection that it does not want any more", when)
		}
		go func() {
			_, err := b.RoundTrip(r)
			done <- err
		}()
	}
	<-done
}
