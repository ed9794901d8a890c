package library

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// The caller of a slow response may read before the goroutine that fills the body has begun. The race detector checks that.
func TestHeldBodyIsReadWhileItFills(t *testing.T) {
	const text = "short"
	for range 100 {
		h := &heldBody{
			body:     &responseBody{exchange: &exchange{conn: &clientConn{}}, source: io.NopCloser(strings.NewReader(text))},
			response: &http.Response{ContentLength: int64(len(text))}, callerResponse: &http.Response{},
			finished: make(chan struct{}), arrived: make(chan struct{}, 1), data: make([]byte, 0, len(text)+1),
		}
		var reading sync.WaitGroup
		reading.Go(func() {
			if got, err := io.ReadAll(h); err != nil || string(got) != text {
				t.Errorf("ReadAll() = %q, error %v, want %q", got, err, text)
			}
		})
		reading.Go(h.fill)
		reading.Wait()
	}
}
