package server

import (
	"net/http"
	"sync"
	"time"

	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

// slowClients tracks responses that wait for their clients: the kernel accepts no more data, or the client's HTTP/2
// windows are closed. The only cost for a request is a list entry while it writes.
//
//   - A response that waits in two consecutive checks releases its seat among the requests in flight, and its slot of its
//     backend, so that only its own client waits.
//   - The memory of such responses is limited in total, and no user can use all of it. Beyond the limit, a response keeps
//     its seat while its client reads some of it, and ends when the client does not.
//   - A response of this server ends at the request's deadline, or half the time limit after it was first found waiting if
//     that is later. A response of a backend only has to make progress: the engines end responses without progress
//     (serve.Config.StallTimeout and stallConn). They do the same when the rest of a response is in their buffers.
type slowClients struct {
	budget      int64         // bytes
	lateTimeout time.Duration // time in which a client must read a late response
	used        transport.Shares

	mu       sync.Mutex // guards the fields below, and the slowResponse of each response
	first    *response
	timer    *time.Timer
	timerSet bool  // whether a check is scheduled
	checks   int64 // number of checks so far
}

const (
	// slowCheckInterval is the time between two checks, while there are writes.
	slowCheckInterval = 125 * time.Millisecond
	// slowBudget limits the memory of responses that have released their seats.
	slowBudget = 256 << 20
	// slowResponseBytes is the memory that each response holds in addition to the data being written.
	// slowProxiedBytes is the additional memory of a backend's response: the window of the backend.
	slowResponseBytes = 64 << 10
	slowProxiedBytes  = 512 << 10
	// fastClientBytes is the number of bytes that a client must read between two checks to count as fast.
	fastClientBytes = 256 << 10
	// slowTimeout and slowWatchTimeout are how long a client may read nothing when no memory is left for its
	// response.
	slowTimeout, slowWatchTimeout = time.Second, 10 * time.Second
)

// newSlowClients is for requests with the given time limit. budget is in bytes.
func newSlowClients(limit time.Duration, budget int64) *slowClients {
	return &slowClients{budget: budget, lateTimeout: requestLimit(limit) / 2}
}

// ShareSlowClients makes the chains that are built from copies of c share the memory for slow clients.
func (c *ChainConfig) ShareSlowClients() { c.slowClients = c.newSlowClients() }

func (c *ChainConfig) slowClientsOfChain() *slowClients {
	if c.slowClients != nil {
		return c.slowClients
	}
	return c.newSlowClients()
}

func (c *ChainConfig) newSlowClients() *slowClients {
	s := newSlowClients(c.RequestTimeout, c.Memory.Share(slowBudget, 8))
	c.Buffered.Add(metrics.BufferedSlowClients, s.used.Total)
	return s
}

// slowResponse is the state of one response in slowClients.
type slowResponse struct {
	previous, next *response
	writers        int       // goroutines that write; the response is listed while there are any
	size           int       // bytes being written
	lastCheck      int64     // number of the last check that found it writing
	taken          int64     // bytes read by the client at that check
	blockedSince   time.Time // when it was first found waiting; zero if it was not
	lastProgress   time.Time // when the client last read data
	user           string    // user to charge
	charged        int64     // bytes of the budget
	ended          bool
}

// writing is called before w writes size bytes.
func (c *slowClients) writing(w *response, size int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.slow == nil {
		w.slow = &slowResponse{}
		w.listed.Store(true)
	}
	a := w.slow
	a.size = size
	if a.writers++; a.writers > 1 {
		return
	}
	if a.next = c.first; a.next != nil {
		a.next.slow.previous = w
	}
	c.first = w
	if !c.timerSet {
		c.startTimer()
	}
}

// written is called after the write.
func (c *slowClients) written(w *response) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := w.slow
	if a.writers--; a.writers > 0 {
		return
	}
	if a.previous != nil {
		a.previous.slow.next = a.next
	} else {
		c.first = a.next
	}
	if a.next != nil {
		a.next.slow.previous = a.previous
	}
	a.previous, a.next = nil, nil
}

// forget is called after the request of w has been served.
func (c *slowClients) forget(w *response) {
	if c == nil || !w.listed.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := w.slow; a.charged > 0 {
		c.used.Give(a.user, a.charged)
		w.chargeMemory(-a.charged)
		a.charged = 0
	}
}

// startTimer must be called with mu held.
func (c *slowClients) startTimer() {
	c.timerSet = true
	if c.timer == nil {
		c.timer = time.AfterFunc(slowCheckInterval, c.check)
	} else {
		c.timer.Reset(slowCheckInterval)
	}
}

// check must not block: writers wait for mu.
func (c *slowClients) check() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks++
	for w := c.first; w != nil; w = w.slow.next {
		c.checkResponse(w, now)
	}
	if c.timerSet = c.first != nil; c.timerSet {
		c.startTimer()
	}
}

// checkResponse must be called with mu held.
func (c *slowClients) checkResponse(w *response, now time.Time) {
	a := w.slow
	before, since := a.lastCheck, a.taken
	a.lastCheck, a.taken = c.checks, w.takenBytes()
	if before != c.checks-1 || a.ended || a.taken-since >= fastClientBytes {
		return
	}
	if a.blockedSince.IsZero() {
		a.blockedSince, a.lastProgress = now, now
	}
	if a.taken > since {
		a.lastProgress = now
	}
	s := w.ctx
	if at, ok := s.Deadline(); ok && !s.record.Proxied && now.After(at) && now.Sub(a.blockedSince) >= c.lateTimeout {
		c.end(w, now, "the client did not take the answer before the deadline")
		return
	}
	if c.release(w) {
		return
	}
	patience := slowTimeout
	if s.record.IsLongRunning || request.LongRunning(s.Info) {
		patience = slowWatchTimeout
	}
	if now.Sub(a.lastProgress) >= patience {
		c.end(w, now, "the client did not take the answer, and too many of its user's wait")
	}
}

// release releases the seat and the slot of w. It returns false if the memory is used up, or the slot cannot be
// released. It must be called with mu held.
func (c *slowClients) release(w *response) bool {
	a, s := w.slow, w.ctx
	holds := int64(a.size) + slowResponseBytes
	if s.record.Proxied {
		holds += slowProxiedBytes
	}
	if more := holds - a.charged; more > 0 {
		if a.charged == 0 {
			a.user = s.payer()
		}
		if ok, _ := c.used.Take(a.user, more, c.budget); !ok {
			return false
		}
		w.chargeMemory(more)
		a.charged = holds
	}
	s.record.ReleaseSeat()
	return s.record.BackendSlot == nil || s.record.BackendSlot.Stall()
}

// end aborts the response: a pending write fails at once. It must be called with mu held.
func (c *slowClients) end(w *response, now time.Time, why string) {
	w.slow.ended = true
	w.ctx.record.Failure = why
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now) // fails only for a writer without a connection
}

// payer returns the user to charge for the request, or the client's address before authentication.
func (c *requestContext) payer() string {
	if c.User != nil {
		return c.User.GetName()
	}
	return c.RemoteAddr
}

// takenBytes returns the number of bytes that the client has read, as far as the writer can determine it.
func (w *response) takenBytes() int64 {
	if w.engine != nil {
		return w.engine.BytesWritten()
	}
	return 0
}

// chargeMemory reports to the engine that the request holds n more bytes.
func (w *response) chargeMemory(n int64) {
	if w.engine != nil {
		w.engine.ChargeMemory(n)
	}
}

// SetLongRunning allows the client to read the response at any pace, because it is a watch or similar.
func (w *response) SetLongRunning() {
	if w.engine != nil {
		w.engine.LongRunning()
	}
}
