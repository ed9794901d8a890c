package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"portico.dev/internal/httpengine/engine"
)

// allowance limits the bodies kept for all requests together.
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

// errWrongLength means that a body does not have the length given by its request.
var errWrongLength = errors.New("it is not as long as its Content-Length")

var errCut = errors.New("another attempt took the request body over")

// replay is a request body that can be sent more than once. It keeps the data that was read, up to a limit, until no
// further attempt is possible. A larger body can be resent only while nothing of it was read.
//
// A failed attempt may still be reading in a goroutine of the HTTP client. Its reader is then cut off: its next read
// fails, and the data of a read in progress is kept for the next attempt.
type replay struct {
	source io.ReadCloser
	length int64 // Content-Length of the request; 0 or less if unknown
	max    int64
	pool   *allowance

	waits atomic.Bool // a read of source is in progress

	reading sync.Mutex // held during a read of source; never acquired with mu held

	mu      sync.Mutex // guards the fields below
	got     int64      // bytes read from source
	kept    []byte
	charged int64
	lost    bool // data was read that is not kept
	done    bool // no further attempt is possible
	ended   error
	current *replayReader
}

func newReplay(body io.ReadCloser, length, limit int64, pool *allowance) *replay {
	return &replay{source: body, length: length, max: limit, pool: pool}
}

// newReader returns the body for the next attempt, or errBodyGone.
func (p *replay) newReader() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost || p.done {
		return nil, errBodyGone
	}
	p.current = &replayReader{p: p}
	return p.current, nil
}

// commit marks the current attempt as the last one, because its response headers were received.
func (p *replay) commit() {
	p.mu.Lock()
	p.done = true
	p.freeLocked()
	closed := p.current == nil || p.current.closed
	p.mu.Unlock()
	if closed {
		_ = p.source.Close() // irrelevant once the response was received
	}
}

// abort ends the request after a failure. The body must not be read any more.
func (p *replay) abort() {
	p.mu.Lock()
	p.done, p.current = true, nil
	p.freeLocked()
	p.mu.Unlock()
	_ = p.source.Close() // irrelevant, as in commit
}

// sourceError returns the error of the source, or nil.
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

// waiting reports whether a read of the source is in progress.
func (p *replay) waiting() bool { return p != nil && p.waits.Load() }

// checkLocked counts data read from the source. It returns errWrongLength if the length is wrong, and otherwise err.
func (p *replay) checkLocked(n int, err error) error {
	p.got += int64(n)
	if p.length > 0 && (p.got > p.length || err == io.EOF && p.got < p.length) {
		return errWrongLength
	}
	return err
}

// freeLocked frees the kept data when it is no longer needed.
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

// keepLocked keeps b for the next attempt, if one is possible and the limits permit.
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

// replayReader is the body of one attempt.
type replayReader struct {
	p      *replay
	at     int  // bytes of p.kept that were returned
	direct bool // everything kept was returned before keeping ended
	closed bool
}

func (r *replayReader) Read(b []byte) (int, error) {
	if n, err, ok := r.fromKept(b); ok {
		return n, err
	}
	r.p.reading.Lock()
	defer r.p.reading.Unlock()
	// A reader that was cut off may have held the lock and kept more data.
	if n, err, ok := r.fromKept(b); ok {
		return n, err
	}
	r.p.waits.Store(true)
	defer r.p.waits.Store(false) // after took, so that the result is available when it is false
	n, err := r.p.source.Read(b)
	return r.took(b[:n], err)
}

// fromKept serves a read from the kept data. ok is false if the source must be read.
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

// took records data that was read from the source.
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

// Close ends this attempt's reads. The source is closed with the last attempt.
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

// maxBufferedBody is the maximum length of a request body that is buffered before the request is sent. A buffered
// body is sent together with the request's headers and can be resent.
const maxBufferedBody = 32 << 10

// fitsBuffer reports whether the body of r should be buffered. limit is the maximum that may be kept of a body.
func fitsBuffer(r *http.Request, limit int64) bool {
	return r.ContentLength > 0 && r.ContentLength <= min(maxBufferedBody, limit) && r.Body != nil && r.Body != http.NoBody && len(r.Trailer) == 0
}

// bufferBody reads the body of r, until the end of its context.
func bufferBody(r *http.Request) (*engine.BytesBody, error) {
	data := make([]byte, r.ContentLength)
	if b, ok := r.Body.(engine.RequestBody); ok {
		if n, ended := b.Buffered(); ended || n >= len(data) {
			_, err := io.ReadFull(r.Body, data)
			return engine.NewBytesBody(data), err
		}
	}
	if err := runUntilDone(r.Context(), func() error { _, err := io.ReadFull(r.Body, data); return err }); err != nil {
		return nil, err
	}
	return engine.NewBytesBody(data), nil
}

// runUntilDone runs f, and returns without waiting for it when ctx ends. A blocked read of a client's body ends only
// when the response to the request has been sent.
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
	if e, ok := ctx.(engine.EndNotifier); ok {
		e.OnEnd(f)
		return e.OffEnd
	}
	return context.AfterFunc(ctx, f)
}
