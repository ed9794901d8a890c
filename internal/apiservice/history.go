package apiservice

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// outcome is what one probe heard.
type outcome struct {
	at   time.Time
	took time.Duration
	// failure is nil when the probe passed.
	failure *failure
	// certificateExpires is the end of the serving certificate's life, zero when none was seen.
	certificateExpires time.Time
	// said is a hash of what the backend answered, of which nothing else is kept; 0 when it is not known.
	said uint64
}

// failure is why a probe did not pass.
type failure struct {
	// status is the HTTP status of an answer that was not 2xx; 0 when there was no answer.
	status int
	// cause is why there was none. The same fault gives the same words, see describe.
	cause string
	// slow failures may be a moment's load: an answer that did not come in time, a 503. The others say something that
	// will not be different a second later: nobody listens, the certificate is wrong, the path is not there.
	slow bool
	// silent is a backend that said nothing to anybody, which is certain until it says something: see suspicion.
	silent bool
	// forbidden is a backend that must not be dialled at all.
	forbidden bool
	// unreachable failures happened before the request was answered and so hold for every group-version of the backend.
	unreachable bool
}

// history is what is known of one group-version at a backend. The zero history is one that was never asked for.
type history struct {
	last outcome
	// up is the conclusion; it means nothing while last is zero.
	up bool
	// failures is how many probes in a row did not pass.
	failures int
}

// histories are those of the group-versions of one backend, in no particular order. There are one or two of them as a rule, for
// which a map is ten times as large.
type histories []struct {
	of schema.GroupVersion
	history
}

// get returns where the history of a group-version is, nil when there is none.
func (hs histories) get(gv schema.GroupVersion) *history {
	for i := range hs {
		if hs[i].of == gv {
			return &hs[i].history
		}
	}
	return nil
}

func (h history) asked() bool { return !h.last.at.IsZero() }

// good reports that there is nothing to find out in a hurry.
func (h history) good() bool { return h.asked() && h.last.failure == nil }

// refuted is what is left of a verdict that rested on silence when somebody got an answer: a probe that was too slow.
func (h history) refuted() history {
	if h.up || h.last.failure == nil || !h.last.failure.silent || h.failures > 1 {
		return h
	}
	was := *h.last.failure
	was.silent, was.slow = false, true
	h.last.failure, h.up = &was, true
	return h
}

// slowFailuresToFall is how many slow answers in a row take a group-version down that was up.
const slowFailuresToFall = 2

// record adds an outcome. What was up falls at once for a failure that is certain and after two for one that is slow;
// what was down rises at the first success, because the cost of a mistake is one request that fails with the truth.
func (h history) record(o outcome) history {
	if o.said == 0 {
		o.said = h.last.said
	}
	if o.failure == nil {
		return history{last: o, up: true}
	}
	if o.certificateExpires.IsZero() {
		o.certificateExpires = h.last.certificateExpires
	}
	failures := h.failures + 1
	return history{
		last:     o,
		up:       h.up && o.failure.slow && failures < slowFailuresToFall,
		failures: failures,
	}
}
