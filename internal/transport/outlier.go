package transport

import (
	"cmp"
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

// One of several endpoints may be unhealthy although its connections work: it does not answer, answers late, or
// answers with errors. This is detected by comparing its responses with those from other endpoints. Such an endpoint
// is ejected (endpoint.suspend). Unlike an endpoint with failing connections, it returns only after a successful
// check, because a working connection proves nothing.

const (
	// A response is slow if it took at least slowResponse, and slowRatio times as long as another endpoint for the
	// same kind of request.
	slowResponse = 500 * time.Millisecond
	slowRatio    = 10
	// An endpoint is ejected after outlierSigns slow or error responses within outlierWindow, if these are at least
	// outlierRatio times as many as at any other endpoint.
	outlierSigns  = 3
	outlierRatio  = 4
	outlierWindow = 10 * time.Second
	// doubtTime is how long an endpoint with a slow response is used only if no other endpoint is healthy.
	doubtTime = 3 * time.Second
	// recordInterval is the minimum interval between recorded good responses while there are no slow or error
	// responses.
	recordInterval = 20 * time.Millisecond
	// firstSuspension and lastSuspension limit the length of a suspension for late or error responses, which doubles
	// from the first to the last. It starts over after an endpoint was healthy for lastSuspension.
	firstSuspension = 5 * time.Second
	lastSuspension  = time.Minute
	// recheckAfter is the interval between checks of an endpoint that does not answer.
	recheckAfter = 2 * time.Second
	// suspensionBlock is how long requests that were assigned to an endpoint fail after its ejection.
	suspensionBlock = time.Second
	// A check may take checkTicks times checkTick. Ticks are counted so that suspensions of this process count
	// little.
	checkTicks = 4
	checkTick  = 250 * time.Millisecond
	// retryErrorsWithin is the maximum duration of a request with an error response that is retried on another
	// endpoint.
	retryErrorsWithin = 2 * time.Second
)

// checkPath is the path requested by a check. Any timely response shows that the server works, unless its status is 500, 502, 503
// or 504.
const checkPath = "/healthz"

// outlier tracks recent slow and error responses of an endpoint.
type outlier struct {
	checking    chan struct{} // holds an element during a check, so that there is one at a time
	suspected   atomic.Bool   // a check for a slow response is running or waiting
	doubtedTill atomic.Int64  // Unix nanoseconds

	mu           sync.Mutex // guards the fields below
	began        time.Time  // start of the window
	slow, failed int        // responses in the window
}

// beginCheck reports whether the caller may perform a check. If so, it must call endCheck afterwards.
func (o *outlier) beginCheck() bool {
	select {
	case o.checking <- struct{}{}:
		return true
	default:
		return false
	}
}

func (o *outlier) endCheck() { <-o.checking }

// count adds one (0 or 1) to the slow or to the error responses, and returns their number in the window.
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

// comparison holds recent responses of the endpoints to some kinds of requests. All good responses are recorded for
// outlierWindow after a slow or error response, and otherwise a sample.
type comparison struct {
	sign     atomic.Int64 // time of the last slow or error response, Unix nanoseconds
	recorded atomic.Int64 // time of the last recorded response, Unix nanoseconds

	mu   sync.Mutex // guards the fields below
	seed maphash.Seed
	good []goodResponses // by the hash of the kind of request; nil until a response is recorded, because few backends have several endpoints
}

// comparedKinds is the number of kinds of requests that are compared.
const comparedKinds = 64

// goodResponses holds the latest response to a kind of request, and the latest one from a different endpoint.
type goodResponses struct{ latest, other goodResponse }

type goodResponse struct {
	kind     uint64
	endpoint *endpoint
	at       time.Time
	took     time.Duration
}

// wanted reports whether a good response should be recorded.
func (c *comparison) wanted(now time.Time) bool {
	at := now.UnixNano()
	if at-c.recorded.Load() < int64(recordInterval) && at-c.sign.Load() >= int64(outlierWindow) {
		return false
	}
	c.recorded.Store(at)
	return true
}

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

// responseOfAnother returns the latest good response of another endpoint to the same kind of request.
func (c *comparison) responseOfAnother(r *http.Request, e *endpoint, now time.Time) (goodResponse, bool) {
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

// kindOf returns a hash that is equal for requests that should take equally long: requests for single objects of a
// resource with any name, and lists with the same URL. It is called with mu held.
func (c *comparison) kindOf(r *http.Request) uint64 {
	if c.seed == (maphash.Seed{}) {
		c.seed = maphash.MakeSeed()
	}
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(r.Method)
	path := cmp.Or(r.URL.Path, r.URL.Opaque) // the proxy sends the path as its client spelled it
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	at := 3 // index of the resource in /apis/GROUP/VERSION/RESOURCE
	if len(parts) > 5 && parts[3] == "namespaces" {
		at = 5
	}
	if len(parts) > at+1 {
		for _, part := range slices.Concat(parts[:3], parts[at:at+1], parts[at+2:]) {
			_, _ = h.WriteString(part + "/")
		}
		return h.Sum64()
	}
	_, _ = h.WriteString(path + "?" + r.URL.RawQuery)
	return h.Sum64()
}

// failedStatus reports whether a status code means that the server cannot serve the request at present.
func failedStatus(code int) bool {
	switch code {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// responded compares a response with the responses of other endpoints.
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
	other, known := b.comparison.responseOfAnother(r, e, now)
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

// recordSign ejects the endpoint if its responses are worse than those from all other endpoints.
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

// suspend ejects the endpoint, unless too few would remain. With waiting, repeatable requests that wait at the
// endpoint are sent to other endpoints. With held, the ejection lasts until Reinstate; otherwise the endpoint is
// checked after a while.
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

// maySuspend reports whether at least half of the endpoints would remain, including a usable one. It is called with
// suspending held.
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

// overdue is called when a request has waited for a second and nothing was received from the endpoint.
func (e *endpoint) overdue() {
	e.requests.start(e.checkSilent)
}

// checkSilent ejects an endpoint that does not answer a check while another endpoint does.
func (e *endpoint) checkSilent() {
	if !e.outlier.beginCheck() {
		return
	}
	defer e.outlier.endCheck()
	since := e.silence.start.Load()
	failed := e.failsCheckAlone()
	still := e.silence.start.CompareAndSwap(since, 0) // a request that still waits begins another silence
	if still && failed {
		e.suspend(errNoAnswers, true, false)
	}
}

// suspectSlow checks an endpoint with a slow response in the background, and ejects it if the check is slow too,
// without waiting for further slow responses.
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

// failsCheckAlone checks the endpoint and another one concurrently, and reports whether only the check of the other
// one succeeded. If both fail, the backend as a whole may be unavailable, which is not decided here. It is called
// between beginCheck and endCheck.
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

// errNoAnswers means that an endpoint accepts requests but does not answer them.
var errNoAnswers = errors.New("requests are accepted and none is answered")

// check sends a request and returns nil if a good response arrives soon.
func (e *endpoint) check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	left := checkTicks
	var timer *time.Timer
	var mu sync.Mutex // the function must not run before timer is set
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
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // makes an HTTP/1.1 connection reusable
	_ = resp.Body.Close()                         // only the status matters
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

// recheck checks an ejected endpoint in the background. If the check succeeds, the next request is a trial.
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

// Suspend ejects an endpoint until Reinstate, for a reason that is not visible in its responses. It returns false if
// the endpoint is already suspended this way, is unknown, or if less than half of the endpoints would remain.
func (b *Backend) Suspend(address string, why error) bool {
	e := b.endpoint(address)
	return e != nil && e.suspend(why, false, true)
}

// Reinstate reverts Suspend.
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

// ProbeEndpoint is like Probe for one endpoint, regardless of its health. Probes of an unknown endpoint fail with
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

// Ejection describes an endpoint that is out of use.
type Ejection struct {
	Address string
	Reason  string
}

// Ejected returns the endpoints that have been out of use for some time, sorted by address. It starts due checks of
// these endpoints.
func (b *Backend) Ejected() []Ejection {
	now := time.Now()
	var list []Ejection
	for _, m := range *b.candidates.Load() {
		why, out := m.health.outOfUse()
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

// retryElsewhere reports whether to discard an error response and retry the request on another endpoint. The request
// must be repeatable, its response must have arrived soon, and another endpoint must be usable.
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
