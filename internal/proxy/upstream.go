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

// upstreamContext is the context of the request to the backend. It has the values of the client's request and ends for
// one of three reasons: the client left, the deadline for response headers passed, or a body of known length stopped.
// It is a context of its own because those of the standard library cannot take a deadline back.
type upstreamContext struct {
	context.Context           // for its values: Done, Err and Deadline are implemented here
	exchange        *exchange // which is told of the attempts
	client          context.Context
	writer          http.ResponseWriter // the client's
	limit           time.Duration       // of the wait for response headers

	unwatched run.Delayed[*upstreamContext] // its entry in Proxy.unwatched

	mu        sync.Mutex    // guards what follows
	done      chan struct{} // nil until Done is called
	watching  bool          // it has what is next
	unwatch   func() bool
	timer     *time.Timer
	due       time.Time // when the timer fires; zero: it is not set
	expires   time.Time // it ends then, if expiry says why
	expiry    error     // nil: it does not expire any more
	started   bool      // response headers were written
	err       error     // why it ended
	afterFunc *callback // called when it ends; nil: nobody waits
	onEnd     func()    // likewise
}

const (
	// watchDelay is after how long an upstreamContext is watched at the latest, and watchSlack by how much that may
	// vary.
	//
	// Most requests are answered within a few milliseconds; a timer and a registration for the client's end cost more
	// than the proxy's own part of such a request. So a request gets them when it takes longer than that, or when
	// somebody waits for its end. Until then a client that leaves is noticed late.
	watchDelay = 200 * time.Millisecond
	watchSlack = 50 * time.Millisecond
)

// beginUpstream begins the upstreamContext of x. Without a deadline in the request, patience bounds the wait for
// response headers.
func (x *exchange) beginUpstream(patience time.Duration) *upstreamContext {
	ctx := x.r.Context()
	c := &x.upstream
	c.Context, c.exchange, c.expiry = ctx, x, errHeaderTimeout
	now := time.Now()
	// The chain gives deadlines before it is known who serves the request, and an APIService may say that it has none.
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

// watch begins to wait for what ends the context.
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

// schedule makes the timer fire no later than the context expires. A timer that fires too early sets itself again, so
// that an expiry which moves with every part of a body costs the write of a time.
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

// expireAfter ends the context after d for that reason, with mu held.
func (c *upstreamContext) expireAfter(d time.Duration, why error) {
	c.expiry, c.expires = why, time.Now().Add(d)
	c.schedule()
}

// Done, Err and Deadline are context.Context's.
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

// wrap is the reason behind err when the end of the context caused it, and err otherwise.
func (c *upstreamContext) wrap(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return &upstreamError{reason: c.err, err: err}
	}
	return err
}

// checkEnded is why a response comes too late, and nil when it does not. A backend that notices the cancellation may
// end its response there and then, as if it were whole, and net/http passes on what comes while it closes the
// connection.
func (c *upstreamContext) checkEnded() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return &upstreamError{reason: c.err, err: errAnsweredLate}
}

// headersWritten takes the deadline back: response headers are written. A response that must make progress has idle for
// each step; 0 means that it need not.
func (c *upstreamContext) headersWritten(idle time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = true
	c.expiry = nil
	if idle > 0 {
		c.expireAfter(idle, errBodyIdle)
	}
}

// writing begins a write that may take limit, unless that is 0, and wrote ends it. A client that stops reading over
// HTTP/2 keeps its connection alive, so that nothing else would end a write that waits for its window, and the request
// would keep its concurrency slot (attack row D5).
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

// eventBegun bounds the rest of an event of a watch, which is held as a whole. eventRead ends the bound.
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

// release ends the context with the exchange.
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
	c.mu.Lock() // until the end, since the writer is not to be touched after release
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
		// The end of a context ends no write to the client. A writer that has no deadlines is not a connection.
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
	case !c.started: // the same deadline as the timer's, seen from here first
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

// clientLeft reports whether the client is gone, or the server ended a long-running request because it drains.
func (c *upstreamContext) clientLeft() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(c.err, errClientGone)
}

// upstreamError is an error that the end of the upstreamContext caused.
type upstreamError struct{ reason, err error }

func (e *upstreamError) Error() string   { return e.reason.Error() + ": " + e.err.Error() }
func (e *upstreamError) Unwrap() []error { return []error{e.reason, e.err} }

var _ context.Context = (*upstreamContext)(nil)

// OnEnd is AfterFunc for a request to a backend (http2/client.Ender), without its costs: a client that leaves soon
// after it asked is noticed when the request is watched.
func (c *upstreamContext) OnEnd(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return
	}
	c.onEnd = f
}

// OffEnd takes back what OnEnd was given, and reports whether it was not called.
func (c *upstreamContext) OffEnd() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.onEnd != nil
	c.onEnd = nil
	return waiting
}

// AfterFunc is what context.AfterFunc asks a context for: without it each use would cost a goroutine. One f at a time; f
// must not block.
func (c *upstreamContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	c.watchLocked()
	if c.err != nil {
		c.mu.Unlock()
		go f()
		return func() bool { return false }
	}
	if c.afterFunc != nil {
		c.mu.Unlock() // which Done and Err take
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

// callback is what AfterFunc was given.
type callback struct{ f func() }

// contextOnly hides AfterFunc of an upstreamContext, which serves one caller, from a second one.
type contextOnly struct{ context.Context }
