package coreapi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

const (
	// requestTimeout limits in-process requests other than watches, like the deadline of the outer chain.
	requestTimeout = time.Minute
	// readyTimeout limits how long an in-process request waits for readiness. Controllers start before the server is ready.
	readyTimeout = 30 * time.Second
)

// ClientConfig returns a config for clients that act as u inside the process, without authorization. It is only for the
// server's controllers and must not be exposed further. Typed clients use protobuf, dynamic and metadata clients use JSON.
// Requests wait for readiness and have no client-side rate limit.
func (s *Server) ClientConfig(u user.Info) *rest.Config {
	return inProcessConfig(asUser(u, s.Handler(), s.awaitReady))
}

func inProcessConfig(h http.Handler) *rest.Config {
	return &rest.Config{
		Host:      "http://in-process.invalid", // never resolved
		Transport: InProcess(h),
		QPS:       -1,
	}
}

// asUser returns the handler chain of in-process requests. It provides the context values that the package documentation
// requires. await may block; if it returns an error, the request fails with that error.
func asUser(u user.Info, handler http.Handler, await func(context.Context) error) http.Handler {
	resolver := request.NewResolver()
	handler = filters.WithWarningRecorder(handler)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := resolver.Info(r)
		if err != nil {
			respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
			return
		}
		ctx := r.Context()
		if !request.LongRunning(info) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, requestTimeout)
			defer cancel()
		}
		if err := await(ctx); err != nil {
			respond.Error(w, r, err)
			return
		}
		ctx = audit.WithAuditContext(ctx)
		ctx = apirequest.WithRequestInfo(ctx, info)
		ctx = apirequest.WithUser(ctx, u)
		ctx = apirequest.WithReceivedTimestamp(ctx, time.Now())
		ctx = apirequest.WithLatencyTrackers(ctx)
		w.Header().Set("Cache-Control", "no-cache, private")
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// awaitReady returns early if the server stops. The error has no Retry-After: client-go would retry ten times and delay the
// shutdown.
func (s *Server) awaitReady(ctx context.Context) error {
	gone := apierrors.NewServiceUnavailable("the local API groups are not being served any more")
	if s.stop.Err() != nil {
		return gone
	}
	timer := time.NewTimer(readyTimeout)
	defer timer.Stop()
	select {
	case <-s.ready:
		return nil
	case <-s.stop.Done():
		return gone
	case <-timer.C:
		return apierrors.NewServiceUnavailable("the local API groups did not become ready within " + readyTimeout.String())
	case <-ctx.Done():
		return apierrors.NewTimeoutError(ctx.Err().Error(), 0)
	}
}

// pipeBuffer is the size of the response buffer between flushes. A small response needs a single write to the pipe.
const pipeBuffer = 8 << 10

// InProcess returns a transport that calls h instead of dialing: no socket, no TLS, no HTTP framing. The response streams:
// flushed data is readable at once, and closing the body cancels the context of the request.
//
// h receives the request as a server would, on a goroutine that ends with it. InProcess adds nothing to the context of the
// request; h must determine the user.
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
	request.Host = cmp.Or(request.Host, r.URL.Host)
	reader, writer := io.Pipe()
	answer := &pipeResponse{
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
		// The response may have begun at the same moment, but the caller has given up in either case.
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

// pipeBody is the reader's end of the pipe. Close cancels the handler's context.
type pipeBody struct {
	*io.PipeReader
	cancel   context.CancelFunc
	unfollow func() bool
}

// newPipeBody returns a body that also closes when the caller's context ends, which unblocks a waiting reader and a writing
// handler.
func newPipeBody(caller context.Context, reader *io.PipeReader, cancel context.CancelFunc) *pipeBody {
	unfollow := context.AfterFunc(caller, func() { _ = reader.CloseWithError(caller.Err()) })
	return &pipeBody{reader, cancel, unfollow}
}

func (b *pipeBody) Close() error {
	b.unfollow()
	b.cancel()
	return b.PipeReader.Close()
}

// pipeResponse is the handler's end: an http.ResponseWriter over a pipe.
type pipeResponse struct {
	header http.Header
	pipe   *io.PipeWriter

	// The handler's goroutines write code, sent and failure; closing started publishes them to the reader.
	mu      sync.Mutex // guards buffer and begun
	buffer  *bufio.Writer
	begun   bool
	started chan struct{} // closed when code and sent, or failure, are set
	code    int
	sent    http.Header // snapshot of header when the response began
	failure error
}

var _ http.Flusher = (*pipeResponse)(nil)

func (a *pipeResponse) Header() http.Header { return a.header }

func (a *pipeResponse) WriteHeader(code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(code)
}

// begin requires mu.
func (a *pipeResponse) begin(code int) {
	if a.begun || code < 200 { // ignore informational responses
		return
	}
	a.begun, a.code, a.sent = true, code, a.header.Clone()
	close(a.started)
}

func (a *pipeResponse) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK)
	return a.buffer.Write(p)
}

func (a *pipeResponse) Flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK)
	_ = a.buffer.Flush() // an error stays in the buffer and fails the next Write
}

// serve runs the handler and completes the response. A panic ends the request, not the process, as with net/http's server.
func (a *pipeResponse) serve(h http.Handler, r *http.Request) {
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

func (a *pipeResponse) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.begun {
		a.begun, a.failure = true, err
		close(a.started)
	}
	_ = a.pipe.CloseWithError(err)
}
