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
	// requestTimeout ends in-process requests that are not watches, like the deadline of the outer chain.
	requestTimeout = time.Minute
	// readyTimeout is how long an in-process request waits for the server to serve. Controllers start before it does.
	readyTimeout = 30 * time.Second
)

// ClientConfig makes clients that act as u without leaving the process and without being authorized: the server's own
// controllers use it, and it must not be handed to anybody else. Typed clients speak protobuf through it, the dynamic
// and the metadata client JSON. Requests wait for readiness; there is no client-side rate limit.
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

// asUser is the chain of in-process requests: what the package documentation says the handler expects. A request is
// refused with the error of await, which may wait.
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

// awaitReady returns early when there is nothing to wait for any more. It names no time to come back: client-go would
// come back ten times, and hold up whoever is stopping.
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

// pipeBuffer is how much of a response waits for its reader between flushes. A small response is handed over once.
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
type pipeResponse struct {
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

var _ http.Flusher = (*pipeResponse)(nil)

func (a *pipeResponse) Header() http.Header { return a.header }

func (a *pipeResponse) WriteHeader(code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(code)
}

// begin is called with mu held.
func (a *pipeResponse) begin(code int) {
	if a.begun || code < 200 { // an informational answer is not the answer
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

// serve runs the handler and ends the answer. A panic ends the request, not the process: over a socket net/http would
// do the same.
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
