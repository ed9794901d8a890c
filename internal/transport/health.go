package transport

import (
	"sync"
	"time"
)

const (
	// softFailures in a row eject an endpoint: resets and timeouts may be one request's own fault.
	softFailures = 3
	// firstEjection and lastEjection bound how long an endpoint is left alone. It doubles in between. The last is
	// short because a return costs no request: a connection is made in the background first.
	firstEjection = 250 * time.Millisecond
	lastEjection  = 2 * time.Second
)

// health is what an endpoint's recent past says about using it.
//
//	well     -> ejected    on a failed or lost connection, or after softFailures in a row
//	ejected  -> half open  when the ejection is over and a connection was made in the background
//	half open-> well       when one trial request got an answer
//	half open-> ejected    when it did not, for twice as long
type health struct {
	mu       sync.Mutex
	state    healthState
	until    time.Time     // end of the ejection
	span     time.Duration // length of the last ejection
	soft     int           // soft failures in a row
	trial    bool          // half open: a trial is under way
	ejected  int           // how often, ever
	last     string        // last failure, for the report
	lastAt   time.Time
	lastGood time.Time

	isSuspended bool          // ejected for its responses, not its connections
	held        bool          // stays ejected until reinstate
	suspension  time.Duration // length of the last suspension
	returned    time.Time     // when it was used again after that
}

type healthState int

const (
	healthy healthState = iota
	ejected
	halfOpen
)

func (s healthState) String() string {
	return [...]string{"well", "ejected", "half-open"}[s]
}

// usable reports whether a request may be sent now; a half-open endpoint takes one at a time. due is whether the
// ejection is over and a connection should be tried in the background.
func (h *health) usable(now time.Time) (ok, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.state {
	case ejected:
		return false, !h.held && !now.Before(h.until)
	case halfOpen:
		return !h.trial, false
	}
	return true, false
}

// chosen is called when a request is about to be sent.
func (h *health) chosen() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == halfOpen {
		h.trial = true
	}
}

// abandoned is called when a chosen request ended without saying anything about the endpoint: its caller left.
func (h *health) abandoned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trial = false
}

// connected is called when a background connection was made: an ejected endpoint may try one request.
func (h *health) connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == ejected && !h.held {
		h.state, h.trial = halfOpen, false
	}
}

// answered is called when response headers arrived, with any status.
func (h *health) answered(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastGood = now
	if h.state == ejected && h.isSuspended {
		return // a response that came late, or the like of those that it was ejected for
	}
	if h.isSuspended {
		h.isSuspended, h.returned = false, now
	}
	h.state, h.trial, h.soft, h.span = healthy, false, 0, 0
}

// failed is called for a failure; hard ones eject at once. It reports whether this one ejected the endpoint.
func (h *health) failed(now time.Time, hard bool, cause string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.lastAt = cause, now
	h.soft++
	if h.state == ejected && now.Before(h.until) {
		return false
	}
	if h.state == healthy && !hard && h.soft < softFailures {
		return false
	}
	h.span = min(max(2*h.span, firstEjection), lastEjection)
	h.state, h.until, h.trial, h.soft = ejected, now.Add(h.span), false, 0
	h.ejected++
	return true
}

// relapsed reports whether the present ejection followed another without an answer between them.
func (h *health) relapsed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.span > firstEjection
}

// suspend ejects an endpoint whose connections are well, and reports whether it was not ejected for that before.
func (h *health) suspend(now time.Time, cause string, held bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isSuspended && h.state == ejected && (h.held || !held) {
		return false
	}
	if h.suspension == 0 || now.Sub(h.returned) > lastSuspension {
		h.suspension = firstSuspension
	} else {
		h.suspension = min(2*h.suspension, lastSuspension)
	}
	h.last, h.lastAt = cause, now
	h.state, h.until, h.trial, h.soft = ejected, now.Add(h.suspension), false, 0
	h.isSuspended, h.held = true, held
	h.ejected++
	return true
}

// checkFailed is called when a check of a suspended endpoint was not answered well.
func (h *health) checkFailed(now time.Time, cause string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isSuspended && h.state == ejected {
		h.last, h.lastAt, h.until = cause, now, now.Add(recheckAfter)
	}
}

// reinstate ends a suspension that is held. One request then tries the endpoint.
func (h *health) reinstate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		h.held, h.state, h.trial = false, halfOpen, false
	}
}

// suspended reports whether the endpoint is out of use for its responses.
func (h *health) suspended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isSuspended && h.state == ejected
}

// onTrial reports whether one request tries the endpoint after a suspension.
func (h *health) onTrial() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isSuspended && h.state == halfOpen
}

// out reports whether the endpoint is not used, and not only for the moment, and why.
func (h *health) out() (why string, out bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.state != healthy && (h.isSuspended || h.span > firstEjection)
}
