package transport

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap/zapcore"

	"portico.dev/internal/logging"
)

const (
	// softFailures is the number of consecutive soft failures, such as resets and timeouts, that eject an endpoint. A
	// single one may be the fault of a request.
	softFailures = 3
	// firstEjection and lastEjection limit the length of an ejection, which doubles from the first to the last. The
	// maximum is short because a retry does not cost a request: a connection is established in the background first.
	firstEjection = 250 * time.Millisecond
	lastEjection  = 2 * time.Second
)

// health is the state of an endpoint derived from recent requests.
//
//	well     -> ejected    on a failed or lost connection, or after softFailures in a row
//	ejected  -> half open  after the ejection, when a background connection was established
//	half open-> well       when a trial request got a response, with any status
//	half open-> ejected    when it failed, for twice as long
type health struct {
	// well means that the endpoint is healthy and a response changes nothing. It is written with mu held, and read without, so that
	// requests to a healthy endpoint do not wait for each other.
	well     atomic.Bool
	lastGood atomic.Int64 // time of a recent response, Unix nanoseconds; others may have come within goodPrecision after it

	mu      sync.Mutex // guards the fields below
	state   healthState
	until   time.Time     // end of the ejection
	span    time.Duration // length of the last ejection
	soft    int           // consecutive soft failures
	trial   bool          // half open: a trial request is in flight
	ejected int           // total number of ejections
	last    string        // last failure, for reports
	lastAt  time.Time
	startup logging.Startup

	isSuspended bool          // ejected because of its responses, not its connections
	held        bool          // ejected until reinstate is called
	suspension  time.Duration // length of the last suspension
	returned    time.Time     // end of the last suspension
}

const goodPrecision = time.Millisecond

type healthState int

const (
	healthy healthState = iota
	ejected
	halfOpen
)

func (s healthState) String() string {
	return [...]string{"well", "ejected", "half-open"}[s]
}

// usable reports whether a request may be sent now. A half-open endpoint accepts one request at a time. due reports
// whether the ejection has ended and a background connection should be tried.
func (h *health) usable(now time.Time) (ok, due bool) {
	if h.well.Load() {
		return true, false
	}
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

// chosen is called before a request is sent.
func (h *health) chosen() {
	if h.well.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == halfOpen {
		h.trial = true
	}
}

// abandoned is called when a chosen request ended without a result for the endpoint, for example because its caller
// canceled it.
func (h *health) abandoned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trial = false
}

// connected is called when a background connection was established. An ejected endpoint may then try one request.
func (h *health) connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == ejected && !h.held {
		h.state, h.trial = halfOpen, false
	}
}

// answered is called when response headers were received, with any status.
func (h *health) answered(now time.Time) {
	if at := now.UnixNano(); at-h.lastGood.Load() >= int64(goodPrecision) {
		h.lastGood.Store(at)
	}
	if h.well.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.startup.Succeeded()
	if h.state == ejected && h.isSuspended {
		return // a late response, or one like those that caused the suspension
	}
	if h.isSuspended {
		h.isSuspended, h.returned = false, now
	}
	h.state, h.trial, h.soft, h.span = healthy, false, 0, 0
	h.well.Store(true)
}

// failed is called for a failure. Hard failures eject immediately. It reports whether this failure ejected the
// endpoint.
func (h *health) failed(now time.Time, hard bool, cause string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.lastAt = cause, now
	h.well.Store(false)
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

// ejectionLevel returns the level of the log line about an ejection that failed has just reported. It is debug if the
// ejection followed another one without a response in between, which avoids a line every two seconds.
func (h *health) ejectionLevel(now time.Time) zapcore.Level {
	h.mu.Lock()
	defer h.mu.Unlock()
	level, overdue := h.startup.Failed(now)
	if h.span > firstEjection && !overdue {
		return zapcore.DebugLevel
	}
	return level
}

// suspend ejects an endpoint with working connections. It reports whether this changed its state.
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
	h.well.Store(false)
	h.state, h.until, h.trial, h.soft = ejected, now.Add(h.suspension), false, 0
	h.isSuspended, h.held = true, held
	h.ejected++
	return true
}

// checkFailed is called when a check of a suspended endpoint failed.
func (h *health) checkFailed(now time.Time, cause string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isSuspended && h.state == ejected {
		h.last, h.lastAt, h.until = cause, now, now.Add(recheckAfter)
	}
}

// reinstate ends a held suspension. The next request is a trial.
func (h *health) reinstate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		h.held, h.state, h.trial = false, halfOpen, false
	}
}

// suspended reports whether the endpoint is ejected because of its responses.
func (h *health) suspended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isSuspended && h.state == ejected
}

// onTrial reports whether the endpoint is half open after a suspension.
func (h *health) onTrial() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isSuspended && h.state == halfOpen
}

// outOfUse reports whether the endpoint is out of use for more than a moment, and the last failure.
func (h *health) outOfUse() (why string, out bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.state != healthy && (h.isSuspended || h.span > firstEjection)
}
