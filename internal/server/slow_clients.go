package server

import (
	"net/http"
	"sync"
	"time"

	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

// slowClients tracks responses that wait for their clients: the kernel takes no more of them, or the client's HTTP/2
// windows are closed. It costs a request nothing but a list entry while it writes.
//
//   - A response that two checks in a row found waiting gives back its seat among the requests in flight, and its slot of
//     its backend, so that only its client is kept waiting.
//   - What such responses hold in memory is bounded over all of them, and no user can have all of that. Beyond it a
//     response keeps its seat while its client reads something of it, and ends when it does not.
//   - A response that is made here ends with the request's deadline, or half as long after it was first found waiting if
//     that is later. One that a backend makes only has to make progress: the engines end those that do not
//     (serve.Config.StallTimeout and stallConn), as they do when nothing of a response is left but what they have.
type slowClients struct {
	budget      int64         // bytes
	lateTimeout time.Duration // how long the client of an answer that came late has for it
	used        transport.Shares

	mu       sync.Mutex // guards what follows, and the slowResponse of each response
	first    *response
	timer    *time.Timer
	timerSet bool  // for the timer
	checks   int64 // so far
}

const (
	// slowCheckInterval is the time between two checks, while there are writes.
	slowCheckInterval = 125 * time.Millisecond
	// slowBudget bounds what answers that gave their seats back hold in memory.
	slowBudget = 256 << 20
	// slowResponseBytes is what any answer holds besides what is being written, and slowProxiedBytes what that of a backend may: the window
	// that the backend has.
	slowResponseBytes = 64 << 10
	slowProxiedBytes  = 512 << 10
	// fastClientBytes is how much a client that is not slow reads of a response between two checks.
	fastClientBytes = 256 << 10
	// slowTimeout and slowWatchTimeout are how long a client may take nothing at all when there is no memory left for its
	// answer.
	slowTimeout, slowWatchTimeout = time.Second, 10 * time.Second
)

// newSlowClients is for requests that may take limit. budget is in bytes.
func newSlowClients(limit time.Duration, budget int64) *slowClients {
	return &slowClients{budget: budget, lateTimeout: requestLimit(limit) / 2}
}

// slowResponse is what slowClients knows of a response.
type slowResponse struct {
	previous, next *response
	writers        int       // goroutines that write; the answer is listed while there are any
	size           int       // of what is being written
	lastCheck      int64     // the last check that found it writing
	taken          int64     // by the client, then
	blockedSince   time.Time // when it was first found waiting; zero: it was not
	lastProgress   time.Time // when the client last took something
	user           string    // who is charged
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

// written is called after it.
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

// forget is called when the request of w has been served.
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

// startTimer is called with mu held.
func (c *slowClients) startTimer() {
	c.timerSet = true
	if c.timer == nil {
		c.timer = time.AfterFunc(slowCheckInterval, c.check)
	} else {
		c.timer.Reset(slowCheckInterval)
	}
}

// check waits for nothing: those who write wait for it to end.
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

// checkResponse is called with mu held.
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

// release gives back the seat and the slot of w, and reports whether there is memory for what it holds. Called with mu
// held.
func (c *slowClients) release(w *response) bool {
	a, s := w.slow, w.ctx
	holds := int64(a.size) + slowResponseBytes
	if s.record.Proxied {
		holds += slowProxiedBytes
	}
	if more := holds - a.charged; more > 0 {
		if a.charged == 0 {
			a.user = s.who()
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

// end breaks the response off. Called with mu held; the writer does not wait.
func (c *slowClients) end(w *response, now time.Time, why string) {
	w.slow.ended = true
	w.ctx.record.Failure = why
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now) // what has no deadlines is no connection
}

// who is charged for the request: its user, or its address while none is known.
func (c *requestContext) who() string {
	if c.User != nil {
		return c.User.GetName()
	}
	return c.RemoteAddr
}

// takenBytes is how much the client has read, as far as the writer knows.
func (w *response) takenBytes() int64 {
	if t, ok := w.ResponseWriter.(interface{ BytesWritten() int64 }); ok {
		return t.BytesWritten()
	}
	return 0
}

// chargeMemory tells the engine that n more bytes are held because of the request.
func (w *response) chargeMemory(n int64) {
	if h, ok := w.ResponseWriter.(interface{ ChargeMemory(n int64) }); ok {
		h.ChargeMemory(n)
	}
}

// SetLongRunning lets the client read the response whenever it likes: it is a watch, or the like.
func (w *response) SetLongRunning() {
	if l, ok := w.ResponseWriter.(interface{ LongRunning() }); ok {
		l.LongRunning()
	}
}
