package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"portico.dev/internal/run"
)

var (
	errClientGone    = errors.New("the client left")
	errHeaderTimeout = errors.New("no response headers before the deadline")
	errBodyIdle      = errors.New("the response stopped in the middle")
	errClientStalled = errors.New("the client did not take the response")
	errAnsweredLate  = errors.New("there was an answer after the request was given up")
)

// upstreamContext is the context of the request to the backend. It has the values of the client's request and ends for one
// of three reasons: the client disconnected, the deadline for response headers passed, or a body of known length stopped.
// It implements context.Context because the deadline of a standard context cannot be removed.
type upstreamContext struct {
	context.Context           // for its values; Done, Err and Deadline are implemented here
	exchange        *exchange // records the attempts
	client          context.Context
	writer          http.ResponseWriter // of the client's response
	limit           time.Duration       // of the wait for response headers

	unwatched run.Delayed[*upstreamContext] // the entry in Proxy.unwatched

	mu        sync.Mutex    // guards the fields below
	done      chan struct{} // nil until Done is called
	watching  bool          // the client and the timer are being watched
	unwatch   func() bool
	timer     *time.Timer
	due       time.Time // when the timer fires; zero if it is not set
	expires   time.Time // when the context ends with the error expiry
	expiry    error     // nil if the context does not expire
	started   bool      // response headers were written
	err       error     // why the context ended
	afterFunc *callback // called when the context ends; nil if not registered
	onEnd     func()    // called when the context ends; nil if not registered
}

const (
	// watchDelay is the latest time after which an upstreamContext is watched, and watchSlack is the tolerance of that
	// time.
	//
	// Most requests are answered within a few milliseconds. A timer and a registration for the client's disconnect cost
	// more than the rest of the proxy's work for such a request. A request is therefore watched only if it takes longer
	// than watchDelay, or if a caller waits for its end. Until then a disconnect of the client is not detected.
	watchDelay = 200 * time.Millisecond
	watchSlack = 50 * time.Millisecond
)

// beginUpstream begins the upstreamContext of x. If the request has no deadline, patience limits the wait for response
// headers.
func (x *exchange) beginUpstream(patience time.Duration) *upstreamContext {
	ctx := x.r.Context()
	c := &x.upstream
	c.Context, c.exchange, c.expiry = ctx, x, errHeaderTimeout
	now := time.Now()
	// The chain sets deadlines before the backend is known, and an APIService may be exempt from them.
	if deadline, ok := ctx.Deadline(); ok && !x.dest.LongRunning {
		patience = deadline.Sub(now)
	}
	c.writer, c.limit = x.w, patience
	c.client = x.request.Connected
	c.expires = now.Add(patience)
	if x.proxy == nil || patience <= watchDelay {
		c.watch()
	} else {
		x.proxy.unwatched.Add(&c.unwatched, c, now)
	}
	return c
}

// watch starts to watch for the events that end the context.
func (c *upstreamContext) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchLocked()
}

func (c *upstreamContext) watchLocked() {
	if c.watching || c.err != nil {
		return
	}
	c.watching = true
	c.unwatch = context.AfterFunc(c.client, c.clientEnded)
	c.schedule()
}

// schedule makes the timer fire no later than the context expires. A timer that fires too early resets itself, so that an
// expiry which moves with every part of a body costs only the assignment of a time.
func (c *upstreamContext) schedule() {
	if !c.watching || c.expiry == nil || !c.due.IsZero() && !c.expires.Before(c.due) {
		return
	}
	c.due = c.expires
	if wait := time.Until(c.due); c.timer == nil {
		c.timer = time.AfterFunc(wait, c.expire)
	} else {
		c.timer.Reset(wait)
	}
}

// expireAfter ends the context after d with the given error. The caller must hold mu.
func (c *upstreamContext) expireAfter(d time.Duration, why error) {
	c.expiry, c.expires = why, time.Now().Add(d)
	c.schedule()
}

// Done implements context.Context.
func (c *upstreamContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchLocked()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Attempt implements transport.AttemptObserver.
func (c *upstreamContext) Attempt(endpoint string, number int, header http.Header) http.Header {
	x := c.exchange
	x.request.Record.Attempted(endpoint, number)
	return x.beginSpan(endpoint, number, header)
}

// Outcome implements transport.AttemptObserver.
func (c *upstreamContext) Outcome(code int, err error) { c.exchange.endSpan(code, err) }

func (c *upstreamContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *upstreamContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.watching && c.client.Err() != nil {
		c.clientEndedLocked()
	}
	switch c.err {
	case nil:
		return nil
	case errHeaderTimeout:
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// wrap returns err with the reason why the context ended, if it has ended, and err otherwise.
func (c *upstreamContext) wrap(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return &upstreamError{reason: c.err, err: err}
	}
	return err
}

// checkEnded returns an error if a response arrives after the context has ended. A backend that detects the cancellation
// may end its response there as if it were complete, and net/http forwards data that arrives while it closes the
// connection.
func (c *upstreamContext) checkEnded() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return &upstreamError{reason: c.err, err: errAnsweredLate}
}

// headersWritten removes the deadline, because response headers have been written. idle is the time limit for each step of
// a response that must make progress; 0 means that there is no limit.
func (c *upstreamContext) headersWritten(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = true
	c.expiry = nil
	if idle > 0 {
		c.expireAfter(idle, errBodyIdle)
	}
}

// writing begins a write that may take limit, unless that is 0; wrote ends it. A client that stops reading over HTTP/2
// keeps its connection alive. Without the limit, a write that waits for its window would never end, and the request would
// keep its concurrency slot (attack row D5).
func (c *upstreamContext) writing(limit time.Duration) {
	if limit > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.expireAfter(limit, errClientStalled)
	}
}

func (c *upstreamContext) wrote(limit time.Duration) {
	if limit > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.expiry = nil
	}
}

// eventBegun limits the time for the rest of a watch event, which is held as a whole. eventRead removes the limit.
func (c *upstreamContext) eventBegun(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireAfter(limit, errBodyIdle)
}

func (c *upstreamContext) eventRead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expiry = nil
}

// progressed grants another idle period.
func (c *upstreamContext) progressed(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireAfter(idle, c.expiry)
}

// release ends the context together with the exchange.
func (c *upstreamContext) release() {
	if p := c.exchange.proxy; p != nil {
		p.unwatched.Remove(&c.unwatched)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watching {
		c.unwatch()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.expiry = nil
	c.endLocked(context.Canceled)
}

func (c *upstreamContext) expire() {
	c.mu.Lock() // until the end, because the writer must not be used after release
	defer c.mu.Unlock()
	c.due = time.Time{}
	if c.expiry == nil {
		return
	}
	if time.Now().Before(c.expires) {
		c.schedule()
		return
	}
	c.endLocked(c.expiry)
	if c.started {
		// The end of a context does not end a write to the client. A writer without deadlines is not a connection.
		_ = http.NewResponseController(c.writer).SetWriteDeadline(time.Now())
	}
}

func (c *upstreamContext) clientEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clientEndedLocked()
}

func (c *upstreamContext) clientEndedLocked() {
	switch {
	case !errors.Is(c.client.Err(), context.DeadlineExceeded):
		c.endLocked(errClientGone)
	case !c.started: // the deadline of the client's context is also the timer's
		c.endLocked(errHeaderTimeout)
	}
}

func (c *upstreamContext) endLocked(reason error) {
	if c.err == nil {
		c.err = reason
		if c.done != nil {
			close(c.done)
		}
		if c.afterFunc != nil {
			go c.afterFunc.f()
			c.afterFunc = nil
		}
		if c.onEnd != nil {
			go c.onEnd()
			c.onEnd = nil
		}
	}
}

// clientLeft reports whether the client disconnected, or the server ended a long-running request because it drains.
func (c *upstreamContext) clientLeft() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(c.err, errClientGone)
}

// upstreamError is an error caused by the end of the upstreamContext.
type upstreamError struct{ reason, err error }

func (e *upstreamError) Error() string   { return e.reason.Error() + ": " + e.err.Error() }
func (e *upstreamError) Unwrap() []error { return []error{e.reason, e.err} }

var _ context.Context = (*upstreamContext)(nil)

// OnEnd is like AfterFunc, for a request to a backend (http2/client.Ender), but cheaper: a client that disconnects early is
// detected only once the request is watched.
func (c *upstreamContext) OnEnd(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return
	}
	c.onEnd = f
}

// OffEnd removes the function passed to OnEnd, and reports whether it was not called.
func (c *upstreamContext) OffEnd() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.onEnd != nil
	c.onEnd = nil
	return waiting
}

// AfterFunc is the method that context.AfterFunc uses if a context has it. Without it, each use would cost a goroutine. It
// stores one f at a time. f must not block.
func (c *upstreamContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	c.watchLocked()
	if c.err != nil {
		c.mu.Unlock()
		go f()
		return func() bool { return false }
	}
	if c.afterFunc != nil {
		c.mu.Unlock() // required by context.AfterFunc, which calls Done and Err
		return context.AfterFunc(contextOnly{c}, f)
	}
	defer c.mu.Unlock()
	w := &callback{f: f}
	c.afterFunc = w
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		waiting := c.afterFunc == w
		if waiting {
			c.afterFunc = nil
		}
		return waiting
	}
}

// callback is a function passed to AfterFunc.
type callback struct{ f func() }

// contextOnly hides the AfterFunc method of an upstreamContext, which supports a single caller, from a second caller.
type contextOnly struct{ context.Context }
