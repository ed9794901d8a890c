package transport

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// One endpoint of several may be sick although its connections are alive: it answers nothing, or late, or with errors. Its
// own responses show that, compared with those of the other endpoints. Such an endpoint is ejected (endpoint.suspend). Other
// than an endpoint whose connections fail, it returns only after a check was answered: a connection to it proves nothing.

const (
	// slowResponse is the least time that a response may be called slow for, and slowRatio how many times as long as another
	// endpoint it must have taken for the same kind of request.
	slowResponse = 500 * time.Millisecond
	slowRatio    = 10
	// Within outlierWindow, outlierSigns responses must be slow, or errors, before the endpoint is ejected, and
	// outlierRatio times as many as at any other endpoint.
	outlierSigns  = 3
	outlierRatio  = 4
	outlierWindow = 10 * time.Second
	// doubtTime is how long an endpoint with a slow response is chosen only if no other endpoint is well.
	doubtTime = 3 * time.Second
	// recordInterval is the least time between two good responses that are recorded, while none is slow or an error.
	recordInterval = 20 * time.Millisecond
	// firstSuspension and lastSuspension bound how long an endpoint is left alone that answered late or with errors; it
	// doubles in between. One that behaved well for lastSuspension begins anew.
	firstSuspension = 5 * time.Second
	lastSuspension  = time.Minute
	// recheckAfter is the time until the next check of an endpoint that answered nothing.
	recheckAfter = 2 * time.Second
	// suspensionBlock is how long after an ejection requests fail that had been given to the endpoint.
	suspensionBlock = time.Second
	// checkTicks of checkTick are the time for a check. Ticks are counted, so that time in which this process did not run
	// counts little.
	checkTicks = 4
	checkTick  = 250 * time.Millisecond
	// retryErrorsWithin is how soon an error response must have come for the request to be sent to another endpoint.
	retryErrorsWithin = 2 * time.Second
)

// checkPath is what a check requests. Any response shows that the server lives, unless its status is 500 or above.
const checkPath = "/healthz"

// outlier is what was wrong with the responses of an endpoint lately.
type outlier struct {
	checking    chan struct{} // has room for one, who does a check: there is one at a time
	suspected   atomic.Bool   // a check for a slow response is going on, or waits for another check
	doubtedTill atomic.Int64  // Unix nanoseconds

	mu           sync.Mutex // guards what follows
	began        time.Time  // of the window
	slow, failed int        // responses in the window
}

// beginCheck reports whether no check is under way. If so, the caller does one, and ends it with endCheck.
func (o *outlier) beginCheck() bool {
	select {
	case o.checking <- struct{}{}:
		return true
	default:
		return false
	}
}

func (o *outlier) endCheck() { <-o.checking }

// count adds one to the slow responses, or to the errors, or 0, and returns how many there are in the window.
func (o *outlier) count(now time.Time, slow bool, one int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.began) > outlierWindow {
		o.began, o.slow, o.failed = now, 0, 0
	}
	if slow {
		o.slow += one
		return o.slow
	}
	o.failed += one
	return o.failed
}

// comparison is what endpoints answered lately to some kinds of requests. All good responses are recorded for outlierWindow
// after one that was slow or an error, and a sample of them otherwise.
type comparison struct {
	sign     atomic.Int64 // when such a response came last, in Unix nanoseconds
	recorded atomic.Int64 // when a response was recorded last, likewise

	mu   sync.Mutex // guards what follows
	seed maphash.Seed
	good []goodResponses // by the hash of the kind of request; nil until one is recorded: few backends have several endpoints
}

// comparedKinds is how many kinds of requests are compared at once.
const comparedKinds = 64

// goodResponses are the latest one to a kind of request, and the latest one of another endpoint than that.
type goodResponses struct{ latest, other goodResponse }

type goodResponse struct {
	kind     uint64
	endpoint *endpoint
	at       time.Time
	took     time.Duration
}

// wanted reports whether a good response is to be recorded.
func (c *comparison) wanted(now time.Time) bool {
	at := now.UnixNano()
	if at-c.recorded.Load() < int64(recordInterval) && at-c.sign.Load() >= int64(outlierWindow) {
		return false
	}
	c.recorded.Store(at)
	return true
}

// record records a good response.
func (c *comparison) record(r *http.Request, good goodResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	good.kind = c.kindOf(r)
	if c.good == nil {
		c.good = make([]goodResponses, comparedKinds)
	}
	at := &c.good[good.kind%uint64(len(c.good))]
	if at.latest.endpoint != good.endpoint {
		at.other = at.latest
	}
	at.latest = good
}

// elsewhere returns the latest good response of another endpoint to the same kind of request.
func (c *comparison) elsewhere(r *http.Request, e *endpoint, now time.Time) (goodResponse, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.good == nil {
		return goodResponse{}, false
	}
	kind := c.kindOf(r)
	both := &c.good[kind%uint64(len(c.good))]
	for _, found := range []goodResponse{both.latest, both.other} {
		if found.kind == kind && found.endpoint != nil && found.endpoint != e && now.Sub(found.at) < outlierWindow {
			return found, true
		}
	}
	return goodResponse{}, false
}

// kindOf is a hash that is the same for requests that should take equally long: for one object of a resource whatever its
// name is, and for lists with the same URL. Called with mu held.
func (c *comparison) kindOf(r *http.Request) uint64 {
	if c.seed == (maphash.Seed{}) {
		c.seed = maphash.MakeSeed()
	}
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(r.Method)
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	at := 3 // of the resource: /apis/GROUP/VERSION/RESOURCE
	if len(parts) > 5 && parts[3] == "namespaces" {
		at = 5
	}
	if len(parts) > at+1 {
		for _, part := range slices.Concat(parts[:3], parts[at:at+1], parts[at+2:]) {
			_, _ = h.WriteString(part + "/")
		}
		return h.Sum64()
	}
	_, _ = h.WriteString(r.URL.Path + "?" + r.URL.RawQuery)
	return h.Sum64()
}

// failedStatus reports the codes by which a server says that it cannot serve at present.
func failedStatus(code int) bool {
	switch code {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// responded compares a response with those of the other endpoints.
func (e *endpoint) responded(r *http.Request, now time.Time, code int, took time.Duration) {
	b := e.backend
	if len(*b.candidates.Load()) < 2 {
		return
	}
	failed := failedStatus(code)
	if took < slowResponse && !failed {
		if b.comparison.wanted(now) {
			b.comparison.record(r, goodResponse{endpoint: e, at: now, took: took})
		}
		return
	}
	b.comparison.sign.Store(now.UnixNano())
	other, known := b.comparison.elsewhere(r, e, now)
	switch {
	case !known:
	case failed:
		e.recordSign(now, false, fmt.Errorf("responses have status %d, and not at other endpoints", code))
	case took >= slowRatio*other.took:
		why := fmt.Errorf("responses take %s, and %s at other endpoints", round(took), round(other.took))
		e.recordSign(now, true, why)
		e.suspectSlow(why)
	}
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return max(d.Round(time.Millisecond), time.Millisecond)
}

// recordSign ejects the endpoint if its responses are worse than those of all others.
func (e *endpoint) recordSign(now time.Time, slow bool, why error) {
	if slow {
		e.outlier.doubtedTill.Store(now.Add(doubtTime).UnixNano())
	}
	n := e.outlier.count(now, slow, 1)
	if n < outlierSigns && !e.health.onTrial() {
		return
	}
	for _, m := range *e.backend.candidates.Load() {
		if m.endpoint != e && n < outlierRatio*m.outlier.count(now, slow, 0) {
			return
		}
	}
	e.suspend(why, slow, false)
}

// suspend ejects the endpoint, unless too few would be left. With waiting, requests that wait there and may be repeated are
// sent to other endpoints. held is until Reinstate; else the endpoint is checked after a while.
func (e *endpoint) suspend(why error, waiting, held bool) bool {
	b := e.backend
	b.suspending.Lock()
	defer b.suspending.Unlock()
	if !b.maySuspend(e) || !e.health.suspend(time.Now(), why.Error(), held) {
		return false
	}
	b.metrics.Ejected()
	b.set.options.Logger.Warn("endpoint ejected", zap.String("backend", b.Name()), zap.String("endpoint", e.address), zap.Error(why))
	if waiting {
		e.requests.block(unresponsive(why), time.Now().Add(suspensionBlock), true)
	}
	b.notify(why)
	return true
}

// maySuspend reports whether at least half of the endpoints remain, and one of them can be used. Called with suspending held.
func (b *Backend) maySuspend(e *endpoint) bool {
	members := *b.candidates.Load()
	suspended, usable, found := 1, false, false
	now := time.Now()
	for _, m := range members {
		if m.endpoint == e {
			found = true
			continue
		}
		if m.health.suspended() {
			suspended++
		} else if ok, _ := m.health.usable(now); ok {
			usable = true
		}
	}
	return found && usable && suspended <= len(members)/2
}

// overdue is called when a request has waited at the endpoint for a second, and nothing was received from it.
func (e *endpoint) overdue() {
	e.requests.start(e.checkSilent)
}

// checkSilent ejects an endpoint that answers not even a check, while another one does.
func (e *endpoint) checkSilent() {
	if !e.outlier.beginCheck() {
		return
	}
	defer e.outlier.endCheck()
	since := e.silence.since.Load()
	failed := e.failsCheckAlone()
	still := e.silence.since.CompareAndSwap(since, 0) // a request that waits further begins another silence
	if still && failed {
		e.suspend(errNoAnswers, true, false)
	}
}

// suspectSlow has an endpoint with a slow response checked in the background, and ejected if the check is slow too: then more
// slow responses need not be waited for.
func (e *endpoint) suspectSlow(why error) {
	if !e.outlier.suspected.CompareAndSwap(false, true) {
		return
	}
	e.requests.start(func() {
		defer e.outlier.suspected.Store(false)
		select {
		case e.outlier.checking <- struct{}{}:
		case <-e.requests.ctx.Done():
			return
		}
		defer e.outlier.endCheck()
		if ok, _ := e.health.usable(time.Now()); ok && e.failsCheckAlone() {
			e.suspend(why, true, false)
		}
	})
}

// failsCheckAlone checks the endpoint and another one at the same time, and reports whether only the other one's check was
// answered in time. If neither is, it is for the verdict on the backend. Called by who does a check.
func (e *endpoint) failsCheckAlone() bool {
	ctx := e.requests.ctx
	now := time.Now()
	members := *e.backend.candidates.Load()
	at := slices.IndexFunc(members, func(m candidate) bool {
		ok, _ := m.health.usable(now)
		return ok && m.endpoint != e
	})
	if at < 0 {
		return false
	}
	other := make(chan error, 1)
	go func() { other <- members[at].check(ctx) }()
	err := e.check(ctx)
	answered := <-other == nil
	return err != nil && answered && ctx.Err() == nil
}

// errNoAnswers is an endpoint that accepts requests and answers none.
var errNoAnswers = errors.New("requests are accepted and none is answered")

// check sends a request of our own, and returns nil if it was answered soon.
func (e *endpoint) check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	left := checkTicks
	var timer *time.Timer
	var mu sync.Mutex // the timer is set before its function runs
	mu.Lock()
	timer = time.AfterFunc(checkTick, func() {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			cancel()
			return
		}
		timer.Reset(checkTick)
	})
	mu.Unlock()
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		left = 0 // it may be about to reset the timer
		timer.Stop()
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+e.address+checkPath, nil)
	if err != nil {
		return err
	}
	r.Host = e.backend.key.serverName
	u := uploadOf(r)
	start := time.Now()
	resp, conn, err := e.probes.roundTrip(r, 0)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that an HTTP/1.1 connection may be used again
	_ = resp.Body.Close()                         // the status is all that counts
	if conn != nil {
		e.probes.release(conn, u)
	}
	switch took := time.Since(start); {
	case failedStatus(resp.StatusCode):
		return fmt.Errorf("%s has status %d", checkPath, resp.StatusCode)
	case took > slowResponse:
		return fmt.Errorf("%s took %s", checkPath, round(took))
	}
	return nil
}

// recheck checks an ejected endpoint in the background. If the check is answered, one request may try it.
func (e *endpoint) recheck() {
	if !e.outlier.beginCheck() {
		return
	}
	p := e.requests
	started := p.start(func() {
		defer e.outlier.endCheck()
		if err := e.check(p.ctx); err != nil {
			e.health.checkFailed(time.Now(), err.Error())
			return
		}
		e.health.connected()
	})
	if !started {
		e.outlier.endCheck()
	}
}

// Suspend ejects an endpoint until Reinstate, for a reason that its responses do not show. It returns false if the endpoint
// is ejected for that reason already, is unknown, or if less than half of the endpoints would be left.
func (b *Backend) Suspend(address string, why error) bool {
	e := b.endpoint(address)
	return e != nil && e.suspend(why, false, true)
}

// Reinstate takes back Suspend.
func (b *Backend) Reinstate(address string) {
	if e := b.endpoint(address); e != nil {
		e.health.reinstate()
	}
}

func (b *Backend) endpoint(address string) *endpoint {
	for _, m := range *b.candidates.Load() {
		if m.address == address {
			return m.endpoint
		}
	}
	return nil
}

// ProbeEndpoint is Probe for one endpoint, whatever its health. A probe of an endpoint that is unknown fails with
// ErrNoEndpoints.
func (b *Backend) ProbeEndpoint(address string) http.RoundTripper {
	return endpointProbe{b, address}
}

type endpointProbe struct {
	b       *Backend
	address string
}

func (p endpointProbe) RoundTrip(r *http.Request) (*http.Response, error) {
	e := p.b.endpoint(p.address)
	if e == nil {
		return nil, &Error{Op: OpPick, Err: ErrNoEndpoints}
	}
	a := attempts{b: p.b, pool: (*endpoint).probePool, request: r, observer: observerOf(r.Context()), count: 1}
	out, err := a.prepare(e)
	if err == nil {
		var resp *http.Response
		if resp, err = a.send(e, out); err == nil {
			return resp, nil
		}
	}
	return nil, a.fail(classify(r.Context(), err), e, err)
}

// Ejection is an endpoint that is not used, and why.
type Ejection struct {
	Address string
	Reason  string
}

// Ejected lists the endpoints that have not been used for some time, in the order of the addresses, and has those checked
// whose time has come.
func (b *Backend) Ejected() []Ejection {
	now := time.Now()
	var list []Ejection
	for _, m := range *b.candidates.Load() {
		why, out := m.health.out()
		if !out {
			continue
		}
		list = append(list, Ejection{Address: m.address, Reason: why})
		b.rank(m, now)
	}
	b.metrics.SetEjected(len(list))
	slices.SortFunc(list, func(a, b Ejection) int { return strings.Compare(a.Address, b.Address) })
	return list
}

// retryElsewhere decides whether an error response is dropped and the request sent to another endpoint: if it may be
// repeated, came soon, and another endpoint works.
func (a *attempts) retryElsewhere(e *endpoint, code int, took time.Duration) bool {
	members := *a.b.candidates.Load()
	if len(members) < 2 || !failedStatus(code) || took > retryErrorsWithin || !a.idempotent() || slices.Contains(a.tried, e) {
		return false
	}
	now := time.Now()
	usable := func(m candidate) bool {
		ok, _ := m.health.usable(now)
		return ok && m.endpoint != e && !slices.Contains(a.tried, m.endpoint)
	}
	if !slices.ContainsFunc(members, usable) || !a.b.budget.spend() {
		return false
	}
	a.tried = append(a.tried, e)
	return true
}
