package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"portico.dev/internal/http2/client"
)

const (
	// maxUnconsumed bounds attempts that provably did nothing. A backend that says GOAWAY after every few requests
	// needs many; each is preceded by a pause that grows.
	maxUnconsumed = 30
	// maxLost bounds repetitions of requests that a backend may have worked on: GET and HEAD without a body.
	maxLost = 2
	// firstPause and lastPause bound the pause before a repetition on the same endpoint.
	firstPause = 2 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	// connectPatience is how long a request waits for a connection to one endpoint while another is untried. The dial
	// goes on, and ejects the endpoint if it fails.
	connectPatience = 500 * time.Millisecond
)

// journey is one request on its way through attempts.
type journey struct {
	b        *Backend
	lane     func(*endpoint) *lane
	request  *http.Request
	body     *replay // nil without a body, and with a whole one
	whole    *client.Whole
	observer Observer
	tried    []*endpoint
	slow     *endpoint // the first that was passed over because it took long to connect
	attempts int
	sent     bool // an attempt may have been acted upon
	lost     int
	pause    time.Duration
}

func (b *Backend) roundTrip(r *http.Request, lane func(*endpoint) *lane) (*http.Response, error) {
	j := journey{b: b, lane: lane, request: r, observer: observerOf(r.Context())}
	b.budget.earn()
	if wholly(r, b.set.options.MaxReplayBytes) && b.set.replays.take(r.ContentLength) {
		defer b.set.replays.give(r.ContentLength)
		return j.withWhole()
	}
	if r.Body == nil || r.Body == http.NoBody {
		return j.travel()
	}
	j.body = newReplay(r.Body, r.ContentLength, b.set.options.MaxReplayBytes, &b.set.replays)
	resp, err := j.travel()
	if err != nil {
		j.body.abort()
	} else {
		j.body.commit()
	}
	return resp, err
}

// withWhole is travel with a body that was read first.
func (j *journey) withWhole() (*http.Response, error) {
	defer func() { _ = j.request.Body.Close() }() // it was read to its end, or nobody wants it
	var err error
	if j.whole, err = readWhole(j.request); err != nil {
		return nil, &Error{Class: ClassRequest, Op: OpRoundTrip, Err: fmt.Errorf("%w: %w", ErrRequestBody, err)}
	}
	return j.travel()
}

func (j *journey) travel() (*http.Response, error) {
	ctx := j.request.Context()
	for {
		e := j.b.pick(*j.b.members.Load(), j.tried)
		if e == nil {
			return nil, &Error{Op: OpPick, Err: ErrNoEndpoints, Attempts: j.attempts}
		}
		attempt, err := j.prepare(e)
		if err != nil {
			e.health.abandoned()
			return nil, j.fail(judge(ctx, err), e, err)
		}
		j.attempts++
		attempt = j.announce(e, attempt)
		start := time.Now()
		if j.lane(e) == e.requests {
			j.b.silence.asked(start)
		}
		resp, err := j.attempt(e, attempt)
		if err == nil {
			j.b.silence.heard()
			j.observer.Outcome(resp.StatusCode, nil)
			now := time.Now()
			e.health.answered(now)
			j.b.metrics.Answered(resp.StatusCode, now.Sub(start))
			if j.lane(e) == e.requests {
				j.b.vouch(now)
			}
			return resp, nil
		}
		j.observer.Outcome(0, err)
		f := judge(ctx, err)
		if why := j.body.broke(); why != nil { // whatever the connection made of it
			f, err = fate{op: OpRoundTrip, class: ClassRequest}, fmt.Errorf("%w: %w", ErrRequestBody, why)
		} else if f.class == ClassCanceled && j.body.awaited() {
			f.class, err = ClassRequest, fmt.Errorf("%w did not come in time: %w", ErrRequestBody, err)
		}
		if f.class == ClassRequest && j.lane(e) == e.requests {
			j.b.silence.withdrawn(start)
		}
		j.sent = j.sent || !f.unconsumed
		j.learn(ctx, e, f, err)
		if j.slow == nil && errors.Is(err, errSlow) {
			j.slow = e
		}
		if f.late {
			err = fmt.Errorf("%w: %w", ErrHeaderTimeout, err)
		}
		if ctx.Err() != nil || !j.again(e, f) {
			return nil, j.fail(f, e, err)
		}
		if !j.rest(ctx) {
			return nil, j.fail(f, e, context.Cause(ctx))
		}
	}
}

func (j *journey) fail(f fate, e *endpoint, err error) *Error {
	return &Error{Class: f.class, Op: f.op, Endpoint: e.address, Sent: j.sent, Protocol: f.protocol, Attempts: j.attempts, Err: err}
}

// prepare makes the request of one attempt: the caller's own when nothing has to be changed, since attempts only read.
func (j *journey) prepare(e *endpoint) (*http.Request, error) {
	if given := j.request; j.body == nil && j.whole == nil && given.Host != "" && given.URL.Scheme == "https" && given.URL.Host != "" {
		return given, nil
	}
	r := *j.request
	url := *j.request.URL
	url.Scheme, url.Host = "https", e.address
	r.URL = &url
	if r.Host == "" {
		r.Host = j.b.key.serverName
	}
	if j.whole != nil {
		r.Body = j.whole.Again()
		r.GetBody = func() (io.ReadCloser, error) { return j.whole.Again(), nil }
	}
	if j.body != nil {
		body, err := j.body.next()
		if err != nil {
			return nil, err
		}
		// The HTTP/1.1 transport repeats a request by itself when its pooled connection turns out dead before a
		// byte was written.
		r.Body, r.GetBody = body, j.body.next
	}
	return &r, nil
}

// attempt sends r to e and accounts for it until the response is over.
func (j *journey) attempt(e *endpoint, r *http.Request) (*http.Response, error) {
	lane := j.lane(e)
	counted := lane == e.requests
	if counted {
		e.inFlight.Add(1)
	}
	var patience time.Duration
	if len(j.tried)+1 < len(*j.b.members.Load()) {
		patience = connectPatience
	}
	resp, c, err := lane.roundTrip(r, patience)
	if err != nil {
		if counted {
			e.inFlight.Add(-1)
		}
		return nil, err
	}
	t := &tracked{
		ReadCloser: resp.Body, endpoint: e, lane: lane, conn: c, upload: uploadOf(r), counted: counted, ctx: r.Context(), sent: j.body,
	}
	if resp.Body == http.NoBody {
		t.finish()
		return resp, nil
	}
	resp.Body = t
	return resp, nil
}

// learn tells the endpoint's health what an attempt showed.
func (j *journey) learn(ctx context.Context, e *endpoint, f fate, err error) {
	switch {
	case ctx.Err() != nil:
		e.health.abandoned()
	case f.op != OpRoundTrip || f.class != ClassBackend: // the dial told
		e.health.abandoned()
	case f.connection:
		e.failed(err, true)
	case f.unconsumed: // refused or going away: neither is a failure
		e.health.abandoned()
	default:
		e.failed(err, false)
	}
	if ctx.Err() == nil && !f.late && f.class == ClassBackend && !unheard(err) {
		j.b.silence.heard() // that it failed is an answer of a kind
	}
	if f.class == ClassBackend || f.class == ClassCanceled && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		j.b.metrics.Failed(f.op)
	}
}

// again decides whether to try once more, and how.
func (j *journey) again(e *endpoint, f fate) bool {
	if j.attempts >= maxUnconsumed || f.class != ClassBackend {
		return false
	}
	alone := len(*j.b.members.Load()) == 1
	switch {
	case f.op != OpRoundTrip:
		// The same endpoint would fail the same way: once for each of them.
		if contains(j.tried, e) || alone {
			return false
		}
		j.tried = append(j.tried, e)
		return len(j.tried) < len(*j.b.members.Load()) || j.comeBack()
	case f.unconsumed && f.refused:
		j.pause = max(2*j.pause, firstPause)
		if alone {
			j.tried = nil
		} else {
			j.tried = append(j.tried, e)
		}
		return j.b.budget.spend()
	case f.unconsumed:
		if j.attempts > 2 {
			j.pause = max(2*j.pause, firstPause)
		}
		return true
	case f.lost && j.repeatable() && j.lost < maxLost:
		j.lost++
		j.tried = append(j.tried, e)
		return j.b.budget.spend()
	}
	return false
}

// comeBack takes the endpoint again whose connection was slow, unless that has failed meanwhile or the endpoint has left: when
// there is nobody else, its dial is worth waiting for.
func (j *journey) comeBack() bool {
	e := j.slow
	if e == nil {
		return false
	}
	j.slow = nil
	if well, _ := e.health.usable(time.Now()); !well {
		return false
	}
	if !slices.ContainsFunc(*j.b.members.Load(), func(m member) bool { return m.endpoint == e }) {
		return false
	}
	j.tried = slices.DeleteFunc(j.tried, func(o *endpoint) bool { return o == e })
	return true
}

// repeatable reports whether doing the request twice is like doing it once: RFC 9110 says so of more methods, but a
// DELETE that was done answers 404 the second time, and a client cannot tell the difference.
func (j *journey) repeatable() bool {
	return j.body == nil && j.whole == nil && (j.request.Method == http.MethodGet || j.request.Method == http.MethodHead)
}

// rest waits before the next attempt. It reports false when the request ended meanwhile.
func (j *journey) rest(ctx context.Context) bool {
	if j.pause == 0 {
		return ctx.Err() == nil
	}
	j.pause = min(j.pause, lastPause)
	timer := time.NewTimer(j.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tracked is a response body. When it is over, its places among the requests in flight are free again.
type tracked struct {
	io.ReadCloser
	done     atomic.Bool
	endpoint *endpoint
	lane     *lane
	conn     *conn // nil over HTTP/1.1
	upload   upload
	counted  bool
	ctx      context.Context // the request's
	sent     *replay         // the request's body, which may still be on its way; nil: there is none
}

func (t *tracked) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if n > 0 {
		t.endpoint.backend.silence.heard()
	}
	if err != nil {
		err = t.doubt(err)
		t.finish()
	}
	return n, err
}

// Ready reports whether a Read would not wait, as far as that is known.
func (t *tracked) Ready() bool {
	known, ok := t.ReadCloser.(interface{ Ready() bool })
	return ok && known.Ready()
}

// doubt tells the endpoint's health when a connection broke under a body, unless that is no failure of the backend's: its
// caller ended the request, or the request's own body failed, which ends an HTTP/1.1 connection and a stream of HTTP/2. Then it
// returns an Error that says so.
func (t *tracked) doubt(err error) error {
	if err == io.EOF || t.done.Load() {
		return err
	}
	f := judge(t.ctx, err)
	if why := t.sent.broke(); why != nil && f.class != ClassCanceled {
		f.class, err = ClassRequest, fmt.Errorf("%w: %w", ErrRequestBody, why)
	}
	switch {
	case f.class == ClassRequest:
		return &Error{Class: f.class, Op: OpRoundTrip, Endpoint: t.endpoint.address, Sent: true, Err: err}
	case f.class == ClassBackend && f.lost && f.connection:
		t.endpoint.failed(err, true)
	}
	return err
}

func (t *tracked) Close() error {
	err := t.ReadCloser.Close()
	t.finish()
	return err
}

func (t *tracked) finish() {
	if !t.done.CompareAndSwap(false, true) {
		return
	}
	if t.counted {
		t.endpoint.inFlight.Add(-1)
	}
	if t.conn != nil {
		t.lane.release(t.conn, t.upload)
	}
}
