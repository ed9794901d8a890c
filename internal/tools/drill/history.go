package drill

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Components of a drill that requests are sent to.
const (
	Subject   = "subject"
	Bystander = "bystander"
	// OtherBackend is the second backend of the subject's APIRoute (Target.APIRoute).
	OtherBackend = "other backend"
	// OtherCluster is the bystander of a Cluster.
	OtherCluster = "other cluster"
	Local        = "local"
	Discovery    = "discovery"
	OpenAPI      = "openapi"
	// Documents are discovery and OpenAPI of the subject, which is a Cluster.
	Documents = "its documents"
	// Informers keep copies of the objects of the subject, which is a Cluster.
	Informers = "informers"
)

// Request is a request with its outcome.
type Request struct {
	Who, Verb string
	Start     time.Time
	Took      time.Duration
	// Code is the HTTP status, or 0 if there was no response.
	Code int
	// Reason and Message are the fields of the Status in an error response.
	Reason, Message string
	// Failure is the reason why there was no response, or a truncated one.
	Failure string
	// Saw is the relevant content of the response. For discovery it is the state of the subject in the document.
	Saw string
}

// OK reports whether the response was complete and successful.
func (r Request) OK() bool { return r.Failure == "" && r.Code >= 200 && r.Code < 300 }

// Outcome returns a one-word summary of the request.
func (r Request) Outcome() string {
	switch {
	case r.Code == 0:
		return "no answer"
	case r.Failure != "":
		return "broken off"
	}
	return codeText(r.Code)
}

// Observation is an observed change of the subject's Available condition.
type Observation struct {
	At                      time.Time
	Status, Reason, Message string
}

// Available reports whether the condition is True.
func (s Observation) Available() bool { return s.Status == "True" }

// Times holds the start of each phase of a drill. A zero time is a phase that was not reached.
type Times struct {
	// Broke is when the injection of the fault began, and Broken when it was complete: a request between the two may
	// or may not meet the fault.
	Began, Broke, Broken, Mended, Ended time.Time
}

// History is the ordered record of one drill.
type History struct {
	Times
	// Group is the API group of the subject, and Registration the name of its APIService or Cluster.
	Group, Registration string
	Requests            []Request
	Observations        []Observation
	Measures            []Measure
	Commands            []Command
	Left                []string
	// Outage is the planned downtime of the front door.
	Outage Span
	// Stalls lists the intervals in which this process did not run (pulse.go).
	Stalls []Span

	// excuses contains the requests that violate an expectation and do not count, because of a stall. judge fills it.
	excuses map[Request]struct{}
}

// Span is an interval of time.
type Span struct{ From, To time.Time }

// recorder collects a History. It is safe for concurrent use.
type recorder struct {
	mu      sync.Mutex // guards history
	history History
}

func (r *recorder) add(q Request) { r.change(func(h *History) { h.Requests = append(h.Requests, q) }) }
func (r *recorder) observed(s Observation) {
	r.change(func(h *History) { h.Observations = append(h.Observations, s) })
}
func (r *recorder) measured(m Measure) {
	r.change(func(h *History) { h.Measures = append(h.Measures, m) })
}
func (r *recorder) mark(at func(*Times)) { r.change(func(h *History) { at(&h.Times) }) }

func (r *recorder) change(f func(*History)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.history)
}

// read calls f with the history recorded so far.
func (r *recorder) read(f func(*History)) { r.change(f) }

// requestsTo returns the requests to a component, limited to the verbs if there are any.
func (h *History) requestsTo(who string, verbs ...string) []Request {
	var out []Request
	for _, r := range h.Requests {
		if r.Who == who && (len(verbs) == 0 || slices.Contains(verbs, r.Verb)) {
			out = append(out, r)
		}
	}
	return out
}

// duringFault returns the requests that started after the fault was in place and ended before it was repaired.
func (h *History) duringFault(requests []Request) []Request {
	var out []Request
	for _, r := range requests {
		if !r.Start.Before(h.Broke) && !r.Start.Before(h.Broken) && (h.Mended.IsZero() || r.Start.Add(r.Took).Before(h.Mended)) {
			out = append(out, r)
		}
	}
	return out
}

// Detected returns when the condition first showed the subject as unavailable.
func (h *History) Detected() (time.Time, bool) {
	for _, s := range h.Observations {
		if !h.Broke.IsZero() && s.At.After(h.Broke) && !s.Available() {
			return s.At, true
		}
	}
	return time.Time{}, false
}

// Recovered returns the time of the last change of the condition after the repair, if that change was to True. A
// condition that stayed True throughout recovered at the time of the repair.
func (h *History) Recovered() (time.Time, bool) {
	if h.Mended.IsZero() || len(h.Observations) == 0 {
		return time.Time{}, false
	}
	last := h.Observations[len(h.Observations)-1]
	switch {
	case !last.Available():
		return time.Time{}, false
	case last.At.Before(h.Mended):
		return h.Mended, true
	}
	return last.At, true
}

// served returns when the first request sent to the subject after the repair succeeded.
func (h *History) served() (time.Time, bool) {
	for _, r := range h.Requests {
		if r.Who == Subject && r.Verb != "watch" && r.OK() && !h.Mended.IsZero() && !r.Start.Before(h.Mended) {
			return r.Start.Add(r.Took), true
		}
	}
	return time.Time{}, false
}

// measure returns the measure with the given name.
func (h *History) measure(name string) (Measure, bool) {
	for _, m := range h.Measures {
		if m.Name == name {
			return m, true
		}
	}
	return Measure{}, false
}

// names reports whether message names the APIService or Cluster that failed.
func (h *History) names(message string) bool { return strings.Contains(message, h.Registration) }

// phase returns the phase of a moment.
func (h *History) phase(at time.Time) string {
	switch {
	case h.Broke.IsZero() || at.Before(h.Broke):
		return "before"
	case h.Mended.IsZero() || at.Before(h.Mended):
		return "during"
	}
	return "after"
}

// planned reports whether the request overlaps the planned downtime of the front door.
func (h *History) planned(r Request) bool {
	return !h.Outage.From.IsZero() && r.Start.Before(h.Outage.To) && r.Start.Add(r.Took).After(h.Outage.From)
}
