package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"portico.dev/internal/http2/client"
)

// allowance is what all requests together may keep of their bodies.
type allowance struct {
	limit int64
	used  atomic.Int64
}

func (a *allowance) take(n int64) bool {
	if a.used.Add(n) > a.limit {
		a.used.Add(-n)
		return false
	}
	return true
}

func (a *allowance) give(n int64) { a.used.Add(-n) }

// errWrongLength is a body that is not as long as its request says.
var errWrongLength = errors.New("it is not as long as its Content-Length")

var errCut = errors.New("another attempt took the request body over")

// replay is a request body that can be sent more than once. It keeps what was read of it, as long as that is little,
// and stops keeping when there will be no further attempt. A larger body can be sent again only while it is untouched.
//
// An attempt that failed may still be reading in a goroutine of the HTTP library. Its reader is cut off: its next read
// fails, and the bytes of a read under way are kept for the attempt that follows.
type replay struct {
	source io.ReadCloser
	length int64 // that the request says; 0 or less: it says none
	max    int64
	pool   *allowance

	waits atomic.Bool // a read of source is under way

	reading sync.Mutex // held around a read of source; never taken while mu is held

	mu      sync.Mutex // guards what follows
	got     int64      // bytes, of source
	kept    []byte
	charged int64
	lost    bool // bytes were read that are not kept
	done    bool // there will be no further attempt
	ended   error
	current *replayReader
}

func newReplay(body io.ReadCloser, length, limit int64, pool *allowance) *replay {
	return &replay{source: body, length: length, max: limit, pool: pool}
}

// newReader is the body for another attempt, or errBodyGone.
func (p *replay) newReader() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost || p.done {
		return nil, errBodyGone
	}
	p.current = &replayReader{p: p}
	return p.current, nil
}

// commit says that the attempt under way is the last one: its response headers are there.
func (p *replay) commit() {
	p.mu.Lock()
	p.done = true
	p.freeLocked()
	closed := p.current == nil || p.current.closed
	p.mu.Unlock()
	if closed {
		_ = p.source.Close() // a request body has no error worth telling once the answer is there
	}
}

// abort says that the request failed: the body must not be read any more.
func (p *replay) abort() {
	p.mu.Lock()
	p.done, p.current = true, nil
	p.freeLocked()
	p.mu.Unlock()
	_ = p.source.Close() // as above
}

// sourceError is why the source failed, nil when it did not.
func (p *replay) sourceError() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == io.EOF {
		return nil
	}
	return p.ended
}

// waiting reports whether a read of the source is under way.
func (p *replay) waiting() bool { return p != nil && p.waits.Load() }

// checkLocked counts what was read of the source, and is err unless that is not as long as it should be.
func (p *replay) checkLocked(n int, err error) error {
	p.got += int64(n)
	if p.length > 0 && (p.got > p.length || err == io.EOF && p.got < p.length) {
		return errWrongLength
	}
	return err
}

// freeLocked drops the kept bytes as soon as they are not needed.
func (p *replay) freeLocked() {
	if !p.done || p.current != nil && !p.current.closed && p.current.at < len(p.kept) {
		return
	}
	p.pool.give(p.charged)
	p.kept, p.charged = nil, 0
	if p.current != nil {
		p.current.at = 0
	}
}

// keepLocked keeps b for a later attempt, if there may be one and the bytes fit.
func (p *replay) keepLocked(b []byte) {
	if p.done || p.lost || len(b) == 0 {
		return
	}
	n := int64(len(b))
	if int64(len(p.kept))+n > p.max || !p.pool.take(n) {
		p.lost = true
		p.pool.give(p.charged)
		p.kept, p.charged = nil, 0
		return
	}
	p.charged += n
	p.kept = append(p.kept, b...)
}

// replayReader is the body as one attempt reads it.
type replayReader struct {
	p      *replay
	at     int  // how much of p.kept was passed on
	direct bool // everything kept was passed on before keeping ended
	closed bool
}

func (r *replayReader) Read(b []byte) (int, error) {
	if n, err, ok := r.fromKept(b); ok {
		return n, err
	}
	r.p.reading.Lock()
	defer r.p.reading.Unlock()
	// A reader that was cut off may have been in here and may have kept more in the meantime.
	if n, err, ok := r.fromKept(b); ok {
		return n, err
	}
	r.p.waits.Store(true)
	defer r.p.waits.Store(false) // after took, so that the result is there when it is false
	n, err := r.p.source.Read(b)
	return r.took(b[:n], err)
}

// fromKept serves a read without touching the source; ok is false when it has to be touched.
func (r *replayReader) fromKept(b []byte) (n int, err error, ok bool) { //nolint // err is the reader's, ok is ours
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.current != r || r.closed:
		return 0, errCut, true
	case r.at < len(p.kept):
		n = copy(b, p.kept[r.at:])
		r.at += n
		p.freeLocked()
		return n, nil, true
	case p.lost && !r.direct:
		return 0, errBodyGone, true
	case p.ended != nil:
		return 0, p.ended, true
	}
	return 0, nil, false
}

// took records what was read from the source.
func (r *replayReader) took(b []byte, err error) (int, error) {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if err = p.checkLocked(len(b), err); err != nil {
		p.ended = err
	}
	p.keepLocked(b)
	if p.current != r || r.closed {
		return 0, errCut
	}
	if p.lost || p.done {
		r.direct = true
	} else {
		r.at += len(b)
	}
	return len(b), err
}

// Close ends this attempt's reading. The source is closed with the last attempt.
func (r *replayReader) Close() error {
	p := r.p
	p.mu.Lock()
	r.closed = true
	last := p.done && p.current == r
	p.freeLocked()
	p.mu.Unlock()
	if last {
		return p.source.Close()
	}
	return nil
}

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
