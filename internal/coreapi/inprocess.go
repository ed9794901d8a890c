package coreapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
)

// pipeBuffer is how much of an answer waits for its reader between flushes. Small answers need one hand-over.
const pipeBuffer = 8 << 10

// InProcess is a transport that calls h where others would dial: no socket, no TLS, no HTTP framing. The answer
// streams: what h flushes can be read at once, and closing the body cancels the context of the request.
//
// h is called with the request as a server would see it, on a goroutine that ends with it. Nothing is put into the
// context of the request; who the caller is, is for the handler to find out or to know.
func InProcess(h http.Handler) http.RoundTripper { return inProcess{h} }

type inProcess struct {
	handler http.Handler
}

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	request := r.Clone(ctx)
	if request.Body == nil {
		request.Body = http.NoBody
	}
	request.RequestURI = r.URL.RequestURI()
	request.Proto, request.ProtoMajor, request.ProtoMinor = "HTTP/2.0", 2, 0
	if request.Host == "" {
		request.Host = r.URL.Host
	}
	reader, writer := io.Pipe()
	answer := &pipeAnswer{
		header: http.Header{}, pipe: writer, buffer: bufio.NewWriterSize(writer, pipeBuffer), started: make(chan struct{}),
	}
	go func() {
		defer cancel()
		defer func() { _ = request.Body.Close() }() // RoundTrip owns the body
		answer.serve(t.handler, request)
	}()

	select {
	case <-answer.started:
	case <-ctx.Done():
		// The answer may have begun at the same moment; the caller has given up either way.
		_ = reader.CloseWithError(ctx.Err())
		return nil, ctx.Err()
	}
	if answer.failure != nil {
		return nil, answer.failure
	}
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", answer.code, http.StatusText(answer.code)),
		StatusCode: answer.code,
		Proto:      request.Proto, ProtoMajor: request.ProtoMajor, ProtoMinor: request.ProtoMinor,
		Header:        answer.sent,
		Body:          newPipeBody(r.Context(), reader, cancel),
		ContentLength: -1,
		Request:       r,
	}, nil
}

// pipeBody is the reader's end. Closing it tells the handler that nobody reads any more.
type pipeBody struct {
	*io.PipeReader
	cancel   context.CancelFunc
	unfollow func() bool
}

// newPipeBody ends with the caller's context too: a reader that waits is woken, and so is a handler that writes.
func newPipeBody(caller context.Context, reader *io.PipeReader, cancel context.CancelFunc) *pipeBody {
	unfollow := context.AfterFunc(caller, func() { _ = reader.CloseWithError(caller.Err()) })
	return &pipeBody{reader, cancel, unfollow}
}

func (b *pipeBody) Close() error {
	b.unfollow()
	b.cancel()
	return b.PipeReader.Close()
}

// pipeAnswer is the handler's end: an http.ResponseWriter over a pipe.
type pipeAnswer struct {
	header http.Header
	pipe   *io.PipeWriter

	// The handler's goroutines write; started orders what they set before the reader's first look.
	mu      sync.Mutex // guards buffer and the beginning
	buffer  *bufio.Writer
	begun   bool
	started chan struct{} // closed when code and sent are set, or failure
	code    int
	sent    http.Header // header as it was when the answer began
	failure error
}

var _ http.Flusher = (*pipeAnswer)(nil)

func (a *pipeAnswer) Header() http.Header { return a.header }

func (a *pipeAnswer) WriteHeader(code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(code)
}

// begin is called with mu held.
func (a *pipeAnswer) begin(code int) {
	if a.begun || code < 200 { // an informational answer is not the answer
		return
	}
	a.begun, a.code, a.sent = true, code, a.header.Clone()
	close(a.started)
}

func (a *pipeAnswer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK)
	return a.buffer.Write(p)
}

func (a *pipeAnswer) Flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK)
	_ = a.buffer.Flush() // an error stays in the buffer and fails the next Write
}

// serve runs the handler and ends the answer. A panic ends the request, not the process: over a socket net/http would
// do the same.
func (a *pipeAnswer) serve(h http.Handler, r *http.Request) {
	defer func() {
		if reason := recover(); reason != nil {
			err := fmt.Errorf("in-process request panicked: %v\n%s", reason, debug.Stack())
			if reason == http.ErrAbortHandler {
				err = fmt.Errorf("in-process request aborted: %w", io.ErrUnexpectedEOF)
			}
			a.fail(err)
		}
	}()
	h.ServeHTTP(a, r)
	a.mu.Lock()
	a.begin(http.StatusOK)
	err := a.buffer.Flush()
	a.mu.Unlock()
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		_ = a.pipe.CloseWithError(err)
		return
	}
	_ = a.pipe.Close()
}

func (a *pipeAnswer) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.begun {
		a.begun, a.failure = true, err
		close(a.started)
	}
	_ = a.pipe.CloseWithError(err)
}
