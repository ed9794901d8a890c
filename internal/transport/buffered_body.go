package transport

import (
	"context"
	"io"
	"net/http"

	"portico.dev/internal/http2/client"
)

// maxBufferedBody is the longest request body that is buffered before anything is sent: it is sent together with the
// request's headers, and as often as need be.
const maxBufferedBody = 32 << 10

// fitsBuffer reports whether r has a body that is to be buffered first. limit is what may be kept of one.
func fitsBuffer(r *http.Request, limit int64) bool {
	return r.ContentLength > 0 && r.ContentLength <= min(maxBufferedBody, limit) && r.Body != nil && r.Body != http.NoBody && len(r.Trailer) == 0
}

// buffered is a body that knows how many bytes of it are there, and whether that is all.
type buffered interface{ Buffered() (n int, ended bool) }

// bufferBody reads the body of r, for as long as its context lets it.
func bufferBody(r *http.Request) (*client.BytesBody, error) {
	data := make([]byte, r.ContentLength)
	if b, ok := r.Body.(buffered); ok {
		if n, ended := b.Buffered(); ended || n >= len(data) {
			_, err := io.ReadFull(r.Body, data)
			return client.NewBytesBody(data), err
		}
	}
	if err := runUntilDone(r.Context(), func() error { _, err := io.ReadFull(r.Body, data); return err }); err != nil {
		return nil, err
	}
	return client.NewBytesBody(data), nil
}

// runUntilDone runs f, and leaves it alone when ctx ends. A client's body that does not come ends when its request has
// been answered; nothing else ends a read of it.
func runUntilDone(ctx context.Context, f func() error) error {
	done, left := make(chan error, 1), make(chan struct{}, 1)
	defer afterFunc(ctx, func() { left <- struct{}{} })()
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-left:
		return context.Cause(ctx)
	}
}

func afterFunc(ctx context.Context, f func()) (off func() bool) {
	if e, ok := ctx.(client.EndNotifier); ok {
		e.OnEnd(f)
		return e.OffEnd
	}
	return context.AfterFunc(ctx, f)
}
