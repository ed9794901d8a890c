package drill

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Parties of a drill: who a request was for.
const (
	Subject   = "subject"
	Bystander = "bystander"
	// OtherBackend is the second backend of the subject's APIRoute (Target.APIRoute).
	OtherBackend = "other backend"
	Local        = "local"
	Discovery    = "discovery"
	OpenAPI      = "openapi"
)

// Request is one request and what came of it.
type Request struct {
	Who, Verb string
	Start     time.Time
	Took      time.Duration
	// Code is the HTTP status, 0 when there was no answer.
	Code int
	// Reason and Message are those of the Status that was answered instead of what was asked for.
	Reason, Message string
	// Failure is why there was no answer, or only a part of one.
	Failure string
	// Saw is what the answer said, where a drill asks (discovery: how the subject stood in it).
	Saw string
}

// OK: the whole of what was asked for.
func (r Request) OK() bool { return r.Failure == "" && r.Code >= 200 && r.Code < 300 }

// Outcome is the request in one word.
func (r Request) Outcome() string {
	switch {
	case r.Code == 0:
		return "no answer"
	case r.Failure != "":
		return "broken off"
	}
	return codeText(r.Code)
}

// Observation is the Available condition of the subject as it was seen to change.
type Observation struct {
	At                      time.Time
	Status, Reason, Message string
}

// Available: the condition says so.
func (s Observation) Available() bool { return s.Status == "True" }

// Times are when the phases of a drill began. A zero time is a phase that was not reached.
type Times struct {
	// Broke is when the fault began to be brought about, and Broken when that was done: a request between the two may
	// have met it or not.
	Began, Broke, Broken, Mended, Ended time.Time
}

// History is everything that was seen in one drill, in order.
type History struct {
	Times
	// Group and APIService are the subject's.
	Group, APIService string
	Requests          []Request
	Observations      []Observation
	Measures          []Measure
	Commands          []Command
	Left              []string
	// Outage is a time in which the front door itself was down on purpose.
	Outage Span
	// Stalls are times in which this process did not get to run (pulse.go).
	Stalls []Span
}

// Span is from one moment to another.
type Span struct{ From, To time.Time }

// recorder collects a History from several goroutines.
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

// read calls f with what has been recorded so far.
func (r *recorder) read(f func(*History)) { r.change(f) }

// of are the requests of a component, by all verbs or by some.
func (h *History) of(who string, verbs ...string) []Request {
	var out []Request
	for _, r := range h.Requests {
		if r.Who == who && (len(verbs) == 0 || slices.Contains(verbs, r.Verb)) {
			out = append(out, r)
		}
	}
	return out
}

// duringFault are those that began when the fault was there and were over before it was mended.
func (h *History) duringFault(requests []Request) []Request {
	var out []Request
	for _, r := range requests {
		if !r.Start.Before(h.Broke) && !r.Start.Before(h.Broken) && (h.Mended.IsZero() || r.Start.Add(r.Took).Before(h.Mended)) {
			out = append(out, r)
		}
	}
	return out
}

// Detected is when the condition was first seen to say that the subject is not available.
func (h *History) Detected() (time.Time, bool) {
	for _, s := range h.Observations {
		if !h.Broke.IsZero() && s.At.After(h.Broke) && !s.Available() {
			return s.At, true
		}
	}
	return time.Time{}, false
}

// Recovered is when, after the mending, the condition was last seen to turn, if it turned to True. A condition that was
// True all along recovered at once.
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

// served is when the subject first answered a request that was made after the mending.
func (h *History) served() (time.Time, bool) {
	for _, r := range h.Requests {
		if r.Who == Subject && r.Verb != "watch" && r.OK() && !h.Mended.IsZero() && !r.Start.Before(h.Mended) {
			return r.Start.Add(r.Took), true
		}
	}
	return time.Time{}, false
}

// measure is a measure by its name.
func (h *History) measure(name string) (Measure, bool) {
	for _, m := range h.Measures {
		if m.Name == name {
			return m, true
		}
	}
	return Measure{}, false
}

// names reports whether a message says which APIService is to blame.
func (h *History) names(message string) bool { return strings.Contains(message, h.APIService) }

// phase is in which a moment was.
func (h *History) phase(at time.Time) string {
	switch {
	case h.Broke.IsZero() || at.Before(h.Broke):
		return "before"
	case h.Mended.IsZero() || at.Before(h.Mended):
		return "during"
	}
	return "after"
}

// planned reports that the request touched a time in which the front door was down on purpose.
func (h *History) planned(r Request) bool {
	return !h.Outage.From.IsZero() && r.Start.Before(h.Outage.To) && r.Start.Add(r.Took).After(h.Outage.From)
}
