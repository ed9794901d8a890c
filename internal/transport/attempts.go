package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/engine"
)

const (
	// maxUnprocessed is the maximum number of attempts if all previous ones were provably not processed. A backend
	// that sends GOAWAY after every few requests needs many. The pause between them grows.
	maxUnprocessed = 30
	// maxLost is the maximum number of repetitions of requests that a backend may have processed: GET and HEAD
	// without a body.
	maxLost = 2
	// firstPause and lastPause limit the pause before a repetition on the same endpoint.
	firstPause = 2 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// connectPatience is how long a request waits for a connection to one endpoint while another endpoint is untried.
	// The dial continues, and ejects the endpoint if it fails.
	connectPatience = 500 * time.Millisecond
)

// attempts sends a request to endpoints of its backend, one attempt after another.
type attempts struct {
	b         *Backend
	pool      func(*endpoint) *connPool
	request   *http.Request
	body      *replay // nil without a body, or with a buffered one
	buffered  *engine.BytesBody
	observer  AttemptObserver
	tried     []*endpoint
	slow      *endpoint // the first endpoint that was skipped because its connection took too long
	count     int
	sent      bool // an attempt may have been processed
	lostCount int
	pause     time.Duration
}

func (b *Backend) roundTrip(r *http.Request, pool func(*endpoint) *connPool) (*http.Response, error) {
	a := attempts{b: b, pool: pool, request: r, observer: observerOf(r.Context())}
	b.budget.earn()
	if fitsBuffer(r, b.set.options.MaxReplayBytes) && b.set.replays.take(r.ContentLength) {
		defer b.set.replays.give(r.ContentLength)
		return a.runBuffered()
	}
	if r.Body == nil || r.Body == http.NoBody {
		return a.run()
	}
	a.body = newReplay(r.Body, r.ContentLength, b.set.options.MaxReplayBytes, b.set.replays)
	resp, err := a.run()
	if err != nil {
		a.body.abort()
	} else {
		a.body.commit()
	}
	return resp, err
}

// runBuffered buffers the request's body and then calls run.
func (a *attempts) runBuffered() (*http.Response, error) {
	defer func() { _ = a.request.Body.Close() }() // it was read completely or is not needed
	var err error
	if a.buffered, err = bufferBody(a.request); err != nil {
		return nil, &Error{Class: ClassRequest, Op: OpRoundTrip, Err: fmt.Errorf("%w: %w", ErrRequestBody, err)}
	}
	return a.run()
}

// run sends the request until there is a response or an error that must not be retried.
func (a *attempts) run() (*http.Response, error) {
	ctx := a.request.Context()
	for {
		e := a.b.pick(*a.b.candidates.Load(), a.tried)
		if e == nil {
			return nil, &Error{Op: OpPick, Err: ErrNoEndpoints, Attempts: a.count}
		}
		request, err := a.prepare(e)
		if err != nil {
			e.health.abandoned()
			return nil, a.fail(classify(ctx, err), e, err)
		}
		a.count++
		request = a.notifyObserver(e, request)
		start := time.Now()
		if a.pool(e) == e.requests {
			a.b.silence.requestSent(start)
			if len(*a.b.candidates.Load()) > 1 {
				e.silence.requestSent(start)
			}
		}
		resp, err := a.send(e, request)
		if err == nil {
			e.received()
			a.observer.Outcome(resp.StatusCode, nil)
			now := time.Now()
			took := now.Sub(start)
			a.b.metrics.Answered(resp.StatusCode, took)
			if a.pool(e) == e.requests {
				e.responded(request, now, resp.StatusCode, took)
				a.b.reportSuccess(now)
			}
			e.health.answered(now)
			if a.pool(e) == e.requests && a.retryElsewhere(e, resp.StatusCode, took) {
				_ = resp.Body.Close() // another response replaces it
				continue
			}
			return resp, nil
		}
		a.observer.Outcome(0, err)
		f := classify(ctx, err)
		if why := a.body.sourceError(); why != nil { // takes precedence over the connection's error
			f, err = failure{op: OpRoundTrip, class: ClassRequest}, fmt.Errorf("%w: %w", ErrRequestBody, why)
		} else if f.class == ClassCanceled && a.body.waiting() {
			f.class, err = ClassRequest, fmt.Errorf("%w did not come in time: %w", ErrRequestBody, err)
		}
		if f.class == ClassRequest && a.pool(e) == e.requests {
			a.b.silence.requestWithdrawn(start)
			e.silence.requestWithdrawn(start)
		}
		a.sent = a.sent || !f.unprocessed
		a.updateHealth(ctx, e, f, err)
		if a.slow == nil && errors.Is(err, errSlow) {
			a.slow = e
		}
		if f.headerTimeout {
			err = fmt.Errorf("%w: %w", ErrHeaderTimeout, err)
		}
		if ctx.Err() != nil || !a.shouldRetry(e, f) {
			return nil, a.fail(f, e, err)
		}
		if !a.backoff(ctx) {
			return nil, a.fail(f, e, context.Cause(ctx))
		}
	}
}

func (a *attempts) fail(f failure, e *endpoint, err error) *Error {
	return &Error{Class: f.class, Op: f.op, Endpoint: e.address, Sent: a.sent, Protocol: f.protocol, Attempts: a.count, Err: err}
}

// prepare returns the request for an attempt. It returns the caller's request if no changes are needed, because
// attempts only read it.
func (a *attempts) prepare(e *endpoint) (*http.Request, error) {
	if given := a.request; a.body == nil && a.buffered == nil && given.Host != "" && given.URL.Scheme == "https" && given.URL.Host != "" {
		return given, nil
	}
	r := *a.request
	url := *a.request.URL
	url.Scheme, url.Host = "https", e.address
	r.URL = &url
	r.Host = cmp.Or(r.Host, a.b.key.serverName)
	if a.buffered != nil {
		r.Body = a.buffered.Clone()
		r.GetBody = func() (io.ReadCloser, error) { return a.buffered.Clone(), nil }
	}
	if a.body != nil {
		body, err := a.body.newReader()
		if err != nil {
			return nil, err
		}
		// net/http's HTTP/1.1 transport repeats a request if its pooled connection turns out to be dead before a byte
		// was written.
		r.Body, r.GetBody = body, a.body.newReader
	}
	return &r, nil
}

// send sends r to e. The request counts as in flight until the response body is closed.
func (a *attempts) send(e *endpoint, r *http.Request) (*http.Response, error) {
	pool := a.pool(e)
	counted := pool == e.requests
	if counted {
		e.inFlight.Add(1)
	}
	var patience time.Duration
	if len(a.tried)+1 < len(*a.b.candidates.Load()) {
		patience = connectPatience
	}
	resp, c, err := pool.roundTrip(r, patience)
	if err != nil {
		if counted {
			e.inFlight.Add(-1)
		}
		return nil, err
	}
	t := &responseBody{
		ReadCloser: resp.Body, endpoint: e, pool: pool, conn: c, upload: uploadOf(r), counted: counted, ctx: r.Context(), requestBody: a.body,
	}
	if resp.Body == http.NoBody {
		t.release()
		return resp, nil
	}
	resp.Body = t
	return resp, nil
}

// updateHealth updates the endpoint's health after a failed attempt.
func (a *attempts) updateHealth(ctx context.Context, e *endpoint, f failure, err error) {
	switch {
	case ctx.Err() != nil:
		e.health.abandoned()
	case f.op != OpRoundTrip || f.class != ClassBackend || f.abandoned: // already updated by the dial or by the code that abandoned the attempt
		e.health.abandoned()
	case f.connection:
		e.failed(err, true)
	case f.unprocessed: // refused or going away, which are not failures
		e.health.abandoned()
	default:
		e.failed(err, false)
	}
	if ctx.Err() == nil && !f.headerTimeout && f.class == ClassBackend && !noResponse(err) && !errors.Is(err, ErrUnresponsive) {
		e.received() // the failure itself proves that the endpoint responds
	}
	if f.class == ClassBackend || f.class == ClassCanceled && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		a.b.metrics.Failed(f.op)
	}
}

// shouldRetry reports whether to try again, and updates the set of tried endpoints.
func (a *attempts) shouldRetry(e *endpoint, f failure) bool {
	if a.count >= maxUnprocessed || f.class != ClassBackend {
		return false
	}
	alone := len(*a.b.candidates.Load()) == 1
	switch {
	case f.op != OpRoundTrip:
		// The same endpoint would fail again, so try each endpoint once.
		if slices.Contains(a.tried, e) || alone {
			return false
		}
		a.tried = append(a.tried, e)
		return len(a.tried) < len(*a.b.candidates.Load()) || a.retrySlowEndpoint()
	case f.unprocessed && f.refused:
		a.pause = max(2*a.pause, firstPause)
		if alone {
			a.tried = nil
		} else {
			a.tried = append(a.tried, e)
		}
		return a.b.budget.spend()
	case f.unprocessed:
		if a.count > 2 {
			a.pause = max(2*a.pause, firstPause)
		}
		return true
	case f.lost && a.idempotent() && a.lostCount < maxLost:
		a.lostCount++
		a.tried = append(a.tried, e)
		return a.b.budget.spend()
	}
	return false
}

// retrySlowEndpoint makes the endpoint with the slow connection available again, unless it has failed or been
// removed. After all other endpoints were tried, its dial is worth waiting for.
func (a *attempts) retrySlowEndpoint() bool {
	e := a.slow
	if e == nil {
		return false
	}
	a.slow = nil
	if well, _ := e.health.usable(time.Now()); !well {
		return false
	}
	if !slices.ContainsFunc(*a.b.candidates.Load(), func(m candidate) bool { return m.endpoint == e }) {
		return false
	}
	a.tried = slices.DeleteFunc(a.tried, func(o *endpoint) bool { return o == e })
	return true
}

// idempotent reports whether the request can safely be sent twice. RFC 9110 defines more methods as idempotent, but a
// repeated DELETE is answered with 404, which a client cannot distinguish from a missing object.
func (a *attempts) idempotent() bool {
	return a.body == nil && a.buffered == nil && (a.request.Method == http.MethodGet || a.request.Method == http.MethodHead)
}

// backoff waits before the next attempt. It returns false if the request ended in the meantime.
func (a *attempts) backoff(ctx context.Context) bool {
	if a.pause == 0 {
		return ctx.Err() == nil
	}
	a.pause = min(a.pause, lastPause)
	timer := time.NewTimer(a.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// responseBody is the body of a response. The request counts as in flight until the body is read to its end or
// closed.
type responseBody struct {
	io.ReadCloser
	done        atomic.Bool
	endpoint    *endpoint
	pool        *connPool
	conn        *http2Conn // nil for HTTP/1.1
	upload      upload
	counted     bool
	ctx         context.Context // the context of the request
	requestBody *replay         // the request's body, which may still be in transfer; nil without a body
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		// The endpoint's own silence is not reset: a watch may deliver events while the endpoint no longer answers
		// requests.
		b.endpoint.backend.silence.responseReceived()
	}
	if err != nil {
		err = b.classifyError(err)
		b.release()
	}
	return n, err
}

// Ready reports whether a Read would not block, as far as known.
func (b *responseBody) Ready() bool {
	known, ok := b.ReadCloser.(engine.ResponseBody)
	return ok && known.Ready()
}

// classifyError records a broken connection in the endpoint's health, unless the backend is not the cause: the caller
// canceled the request, or the request's own body failed, which ends an HTTP/1.1 connection and an HTTP/2 stream. For
// a failed body it returns an Error of ClassRequest.
func (b *responseBody) classifyError(err error) error {
	if err == io.EOF || b.done.Load() {
		return err
	}
	f := classify(b.ctx, err)
	if why := b.requestBody.sourceError(); why != nil && f.class != ClassCanceled {
		f.class, err = ClassRequest, fmt.Errorf("%w: %w", ErrRequestBody, why)
	}
	switch {
	case f.class == ClassRequest:
		return &Error{Class: f.class, Op: OpRoundTrip, Endpoint: b.endpoint.address, Sent: true, Err: err}
	case f.class == ClassBackend && f.lost && f.connection:
		b.endpoint.failed(err, true)
	}
	return err
}

func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.release()
	return err
}

func (b *responseBody) release() {
	if !b.done.CompareAndSwap(false, true) {
		return
	}
	if b.counted {
		b.endpoint.inFlight.Add(-1)
	}
	if b.conn != nil {
		b.pool.release(b.conn, b.upload)
	}
}

// AttemptObserver observes the attempts of a request in order, on the goroutine that sends the request. A context
// that implements it observes the requests sent with it.
type AttemptObserver interface {
	// Attempt is called before an attempt with the endpoint and the number of the attempt, starting at 1. header is
	// the header to be sent. Attempt may return a modified copy to send instead, or nil.
	Attempt(endpoint string, number int, header http.Header) http.Header
	// Outcome is called with the result of the attempt: the status code of the response, or 0 and the error.
	Outcome(code int, err error)
}

// noObserver is used for contexts that do not implement AttemptObserver.
type noObserver struct{}

func (noObserver) Attempt(string, int, http.Header) http.Header { return nil }
func (noObserver) Outcome(int, error)                           {}

func observerOf(ctx context.Context) AttemptObserver {
	if o, ok := ctx.(AttemptObserver); ok {
		return o
	}
	return noObserver{}
}

// notifyObserver calls the observer and returns the request to send.
func (a *attempts) notifyObserver(e *endpoint, r *http.Request) *http.Request {
	header := a.observer.Attempt(e.address, a.count, r.Header)
	if header == nil {
		return r
	}
	changed := *r
	changed.Header = header
	return &changed
}

// requestsPerRetry is the number of requests to a backend that earn a repetition. It limits the additional load to a fifth.
const requestsPerRetry = 5

// budget limits repetitions of requests that a backend may have processed or that it refused. Requests that were
// never processed cost the backend nothing; only the number of attempts limits them. A full budget is only read by requests.
type budget struct {
	earned atomic.Int64 // requests; requestsPerRetry of them pay a repetition
	limit  int64
}

// newBudget returns a full budget. burst is the number of requests that may be in flight, because one lost connection
// can affect all of them.
func newBudget(burst int) *budget {
	b := &budget{limit: requestsPerRetry * int64(burst)}
	b.earned.Store(b.limit)
	return b
}

// earn counts a request.
func (b *budget) earn() {
	for {
		n := b.earned.Load()
		if n >= b.limit || b.earned.CompareAndSwap(n, n+1) {
			return
		}
	}
}

// spend pays a repetition. It returns false if too few requests were earned.
func (b *budget) spend() bool {
	for {
		n := b.earned.Load()
		if n < requestsPerRetry {
			return false
		}
		if b.earned.CompareAndSwap(n, n-requestsPerRetry) {
			return true
		}
	}
}
