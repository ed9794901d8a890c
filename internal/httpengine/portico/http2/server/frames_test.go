package server

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine/portico/http2/http2test"
)

// FuzzFrames sends arbitrary frames to a server after the preface and SETTINGS. The server must not panic, must keep no goroutine and
// no connection, and must allocate a bounded amount of memory. It must end the connection when the client closes it, or after a
// timeout if the client sends nothing more.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 1, 5, 0, 0, 0, 1, 0x82}, false, true)
	f.Add([]byte("\x00\x00\x0d\x01\x04\x00\x00\x00\x01\x83\x84\x87\x41\x08example.\x00\x00\x03\x00\x01\x00\x00\x00\x01abc"), false, true)
	f.Add([]byte("\x00\x00\x04\x01\x05\x00\x00\x00\x01\x82\x84\x87\x10\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08"), true, false)
	f.Add([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x03\x01\x05\x00\x00\x00\x01\x82\x84\x87\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x01"), true, true)
	f.Add([]byte("\x00\x00\x00\x01\x07infinfin\x07d"), false, true) // TestIssue53 of golang.org/x/net/http2
	for _, seed := range append(http2test.ClientSeeds(), http2test.ClientAttacks()...) {
		f.Add(seed, true, false)
		f.Add(seed, true, true)
	}
	// stays is set if the client stays connected. made is set if frames are built from the input.
	f.Fuzz(func(t *testing.T, input []byte, made, stays bool) {
		said := [][]byte{input}
		if made {
			said = said[:0]
			for _, step := range http2test.FromClient(input) {
				said = append(said, step.Bytes)
			}
		}
		before := http2test.Allocated()
		synctest.Test(t, func(t *testing.T) { sayAll(t, said, stays) })
		total := 0
		for _, p := range said {
			total += len(p)
		}
		if got := http2test.Allocated() - before; got > http2test.MaxAllocated(total) {
			t.Errorf("%d bytes allocated for an input of %d bytes, want at most http2test.MaxAllocated", got, total)
		}
	})
}

// sayAll sends everything at once and does not wait.
func sayAll(t *testing.T, said [][]byte, stays bool) {
	s := New(Config{MaxConcurrentStreams: 3, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-r.Context().Done()
		}
		_, _ = io.Copy(w, r.Body)
		w.Header().Set(http.TrailerPrefix+"X", "y")
	})})
	ours, theirs := net.Pipe()
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.begin(ours, ours, nil)()
	}()
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
	preface := []byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	for _, part := range append([][]byte{preface}, said...) {
		if _, err := theirs.Write(part); err != nil {
			break
		}
	}
	if !stays {
		_ = theirs.Close()
	}
	select {
	case <-over:
	case <-time.After(time.Hour): // in the bubble: longer than all timeouts
		t.Error("connection did not end within an hour, want an end")
		_ = theirs.Close()
		<-over
	}
	_ = theirs.Close()
	reading.Wait()
	if len(s.conns) > 0 {
		t.Errorf("server keeps %d connections after the end, want 0", len(s.conns))
	}
	s.pool.close()
}
