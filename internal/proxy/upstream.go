package proxy

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

var (
	errClientGone = errors.New("the client left")
	errTooLate    = errors.New("no response headers before the deadline")
	errSilent     = errors.New("the response stopped in the middle")
	errStalled    = errors.New("the client did not take the response")
	errGivenUp    = errors.New("there was an answer after the request was given up")
)

type clientKey struct{}

// WithClient marks ctx as what ends when the client is gone. The filter that gives requests a deadline calls it first:
// a response that outlives the deadline is then still ended when nobody reads it any more.
func WithClient(ctx context.Context) context.Context { return EndsWith(ctx, ctx) }

// EndsWith marks ctx, whose own end may be a deadline, as one whose client is gone when client ends.
func EndsWith(ctx, client context.Context) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// AsksForClient reports whether a context that is asked for key is asked for what WithClient marked. Contexts that know
// it by themselves answer with it.
func AsksForClient(key any) bool { return key == clientKey{} }

// ClientOf is what WithClient or EndsWith marked ctx with, and ctx itself when neither did.
func ClientOf(ctx context.Context) context.Context {
	if client, ok := ctx.Value(clientKey{}).(context.Context); ok {
		return client
	}
	return ctx
}

// leash is the context of the request to the backend. It has the values of the client's request and ends for one of
// three reasons: the client left, the deadline for response headers passed, or a body of known length stopped.
//
// It is a context of its own because those of the standard library cannot take a deadline back.
type leash struct {
	context.Context           // for its values: Done, Err and Deadline are the leash's own
	exchange        *exchange // observes the attempts
	client          context.Context
	writer          http.ResponseWriter // the client's

	listed         bool   // by the vigil, which guards it and the neighbours
	previous, next *leash // in the vigil

	mu       sync.Mutex    // guards what follows
	done     chan struct{} // nil until somebody waits
	watching bool          // it has what is next
	unwatch  func() bool
	timer    *time.Timer
	due      time.Time // when the timer looks; zero: it does not
	expires  time.Time // it ends then, if expiry says why
	expiry   error     // nil: nothing happens any more at expires
	started  bool      // response headers were written
	err      error     // why it ended
	ended    *waiter   // called when it ends; nil: nobody waits
	cut      func()    // likewise
}

// hold makes the leash of x. Without a deadline in the request, patience bounds the wait for response headers.
func (x *exchange) hold(patience time.Duration) *leash {
	ctx := x.r.Context()
	l := &x.leash
	l.Context, l.exchange, l.expiry = ctx, x, errTooLate
	now := time.Now()
	// The chain gives deadlines before it is known who serves the request, and an APIService may say that it has none.
	if deadline, ok := ctx.Deadline(); ok && !x.target.LongRunning {
		patience = deadline.Sub(now)
	}
	l.writer = x.w
	l.client = ClientOf(ctx)
	l.expires = now.Add(patience)
	if x.proxy == nil || patience <= vigilLook {
		l.watch()
	} else {
		x.proxy.vigil.add(l)
	}
	return l
}

// watch begins to wait for what ends the leash.
func (l *leash) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchLocked()
}

func (l *leash) watchLocked() {
	if l.watching || l.err != nil {
		return
	}
	l.watching = true
	l.unwatch = context.AfterFunc(l.client, l.clientEnded)
	l.schedule()
}

// schedule has the timer look at the leash no later than it expires. A timer that looks too early sets itself again: an
// expiry that moves with every part of a body costs the write of a time.
func (l *leash) schedule() {
	if !l.watching || l.expiry == nil || !l.due.IsZero() && !l.expires.Before(l.due) {
		return
	}
	l.due = l.expires
	if wait := time.Until(l.due); l.timer == nil {
		l.timer = time.AfterFunc(wait, l.expire)
	} else {
		l.timer.Reset(wait)
	}
}

// expireIn says what happens after d, with mu held.
func (l *leash) expireIn(d time.Duration, why error) {
	l.expiry, l.expires = why, time.Now().Add(d)
	l.schedule()
}

// Done, Err and Deadline are context.Context's.
func (l *leash) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchLocked()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Attempt implements transport.AttemptObserver.
func (l *leash) Attempt(endpoint string, number int, header http.Header) http.Header {
	x := l.exchange
	x.target.Witness.Attempted(endpoint, number)
	return x.beginSpan(endpoint, number, header)
}

// Outcome implements transport.AttemptObserver.
func (l *leash) Outcome(code int, err error) { l.exchange.endSpan(code, err) }

func (l *leash) Deadline() (time.Time, bool) { return time.Time{}, false }

func (l *leash) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !l.watching && l.client.Err() != nil {
		l.clientEndedLocked()
	}
	switch l.err {
	case nil:
		return nil
	case errTooLate:
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// because is the reason behind err when the leash ended the request, and err otherwise.
func (l *leash) because(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return &ended{reason: l.err, err: err}
	}
	return err
}

// over is why an answer comes too late, and nil when it does not. A backend that hears of being given up may end its answer
// there and then, as if it were whole, and net/http passes on what comes while it closes the connection.
func (l *leash) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return nil
	}
	return &ended{reason: l.err, err: errGivenUp}
}

// answered takes the deadline back: headers are written. A response that must keep moving has idle for each step;
// 0 means that it need not.
func (l *leash) answered(idle time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = true
	l.expiry = nil
	if idle > 0 {
		l.expireIn(idle, errSilent)
	}
}

// writing begins a write that may take limit, unless that is 0, and wrote ends it. A client that stops reading over
// HTTP/2 keeps its connection alive, so that nothing else would end a write that waits for its window, and the request
// would keep its places (attack row D5).
func (l *leash) writing(limit time.Duration) {
	if limit > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.expireIn(limit, errStalled)
	}
}

func (l *leash) wrote(limit time.Duration) {
	if limit > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.expiry = nil
	}
}

// moved grants another idle period.
func (l *leash) moved(idle time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireIn(idle, l.expiry)
}

// letGo ends the leash with the exchange.
func (l *leash) letGo() {
	if p := l.exchange.proxy; p != nil {
		p.vigil.remove(l)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watching {
		l.unwatch()
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.expiry = nil
	l.endLocked(context.Canceled)
}

func (l *leash) expire() {
	l.mu.Lock() // until the end, since the writer is not to be touched after letGo
	defer l.mu.Unlock()
	l.due = time.Time{}
	if l.expiry == nil {
		return
	}
	if time.Now().Before(l.expires) {
		l.schedule()
		return
	}
	l.endLocked(l.expiry)
	if l.started {
		// The end of a context ends no write to the client. A writer that has no deadlines is not a connection.
		_ = http.NewResponseController(l.writer).SetWriteDeadline(time.Now())
	}
}

func (l *leash) clientEnded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clientEndedLocked()
}

func (l *leash) clientEndedLocked() {
	switch {
	case !errors.Is(l.client.Err(), context.DeadlineExceeded):
		l.endLocked(errClientGone)
	case !l.started: // the same deadline as the timer's, seen from here first
		l.endLocked(errTooLate)
	}
}

func (l *leash) endLocked(reason error) {
	if l.err == nil {
		l.err = reason
		if l.done != nil {
			close(l.done)
		}
		if l.ended != nil {
			go l.ended.f()
			l.ended = nil
		}
		if l.cut != nil {
			go l.cut()
			l.cut = nil
		}
	}
}

// left reports whether the client is gone, or the house told a long-running request to end.
func (l *leash) left() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Is(l.err, errClientGone)
}

// ended is an error that the leash caused.
type ended struct{ reason, err error }

func (e *ended) Error() string   { return e.reason.Error() + ": " + e.err.Error() }
func (e *ended) Unwrap() []error { return []error{e.reason, e.err} }

var _ context.Context = (*leash)(nil)
