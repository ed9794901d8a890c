package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/portico/http2/http2test"
)

// FuzzFrames sends arbitrary frames to a client with two requests. The client must not panic, must keep no goroutine and must allocate
// a bounded amount of memory. Every request must end, with the connection or by the owner's checks if the server sends nothing more.
func FuzzFrames(f *testing.F) {
	for i, seed := range append(http2test.ServerSeeds(), http2test.ServerAttacks()...) {
		f.Add(seed, uint8(i), true, i%2 == 0)
	}
	f.Add([]byte("\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"), uint8(0), false, true)
	f.Add([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x00abcdefgh"), uint8(1), false, false)
	f.Fuzz(func(t *testing.T, input []byte, kind uint8, made, stays bool) {
		said := [][]byte{input}
		if made {
			said = said[:0]
			for _, step := range http2test.FromServer(input) {
				said = append(said, step.Bytes)
			}
		}
		before := http2test.Allocated()
		synctest.Test(t, func(t *testing.T) { hearAll(t, said, kind, stays) })
		total := 0
		for _, p := range said {
			total += len(p)
		}
		if got := http2test.Allocated() - before; got > http2test.MaxAllocated(total) {
			t.Errorf("%d bytes allocated for an input of %d bytes, want at most http2test.MaxAllocated", got, total)
		}
	})
}

// hearAll sends all frames of a server at once.
func hearAll(t *testing.T, said [][]byte, kind uint8, stays bool) {
	ours, theirs := net.Pipe()
	var all sync.WaitGroup
	all.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
	asked := make(chan struct{})
	all.Go(func() {
		for i, part := range append([][]byte{[]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00")}, said...) {
			if _, err := theirs.Write(part); err != nil {
				return
			}
			if i == 0 {
				<-asked
			}
		}
		if !stays {
			_ = theirs.Close()
		}
	})
	c, err := New(context.Background(), ours, engine.ClientConfig{
		MaxHeaderBytes: 64 << 10, CheckInterval: time.Second, PingAfter: 30 * time.Second, PingTimeout: 15 * time.Second,
		HeaderTimeout: time.Minute, ProtocolTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err) // SETTINGS arrived
	}
	over := make(chan struct{})
	all.Go(func() { // like an owner
		for ticks := time.NewTicker(time.Second); ; {
			select {
			case <-ticks.C:
				c.Check(true)
			case <-over:
				ticks.Stop()
				return
			}
		}
	})
	var asking sync.WaitGroup
	for _, method := range methods[kind%byte(len(methods))] {
		asking.Go(func() { askAll(c, method) })
	}
	synctest.Wait()
	close(asked)
	ended := make(chan struct{})
	go func() {
		asking.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Hour): // in the bubble: longer than all timeouts
		t.Error("request did not end within an hour, want an end")
	}
	c.Close()
	c.Wait()
	_ = theirs.Close()
	<-ended
	close(over)
	all.Wait()
}

// askAll sends a request and reads the response.
func askAll(c *Conn, method string) {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(strings.Repeat("x", 100_000))
	}
	r, err := http.NewRequestWithContext(context.Background(), method, "https://example.com/", body)
	if err != nil {
		panic(err)
	}
	res, err := c.RoundTrip(r)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, res.Body) // The content is not compared.
	_ = res.Body.Close()
}
