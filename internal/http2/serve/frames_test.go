package serve

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// Whatever frames come, the connection ends when its client does, and nothing of it is left.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 1, 5, 0, 0, 0, 1, 0x82})
	f.Add([]byte("\x00\x00\x0d\x01\x04\x00\x00\x00\x01\x83\x84\x87\x41\x08example.\x00\x00\x03\x00\x01\x00\x00\x00\x01abc"))
	f.Add([]byte("\x00\x00\x04\x01\x05\x00\x00\x00\x01\x82\x84\x87\x10\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08"))
	f.Add([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x03\x01\x05\x00\x00\x00\x01\x82\x84\x87\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x01"))
	f.Add([]byte("\x00\x00\x00\x01\x07infinfin\x07d")) // TestIssue53 of golang.org/x/net/http2
	f.Fuzz(func(t *testing.T, frames []byte) {
		s := New(Config{GoAwayGrace: 10 * time.Millisecond, MaxConcurrentStreams: 3, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
			w.Header().Set(http.TrailerPrefix+"X", "y")
		})})
		ours, theirs := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.serve(ours, ours, nil)
		}()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		for _, part := range [][]byte{[]byte(http2.ClientPreface), make([]byte, 9), frames} {
			if len(part) == 9 && part[3] == 0 {
				part[3] = byte(http2.FrameSettings)
			}
			if _, err := theirs.Write(part); err != nil {
				break
			}
		}
		_ = theirs.Close()
		select {
		case <-over:
		case <-time.After(30 * time.Second):
			t.Fatal("the connection has not ended")
		}
		if len(s.conns) > 0 {
			t.Error("the connection is still known")
		}
		s.pool.close()
	})
}
