package drill

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

func detectedWithin(limit time.Duration) Expectation {
	return Expectation{fmt.Sprintf("the condition turns within %s", limit), func(h *History) error {
		at, came := h.Detected()
		switch {
		case !came:
			return fmt.Errorf("it did not, in %s", h.Mended.Sub(h.Broke).Round(time.Second))
		case at.Sub(h.Broke) > limit:
			return fmt.Errorf("it took %s", at.Sub(h.Broke).Round(time.Millisecond))
		}
		return nil
	}}
}

// conditionSays: what is wrong can be read in the condition.
func conditionSays(words ...string) Expectation {
	return Expectation{fmt.Sprintf("the condition says %q", strings.Join(words, " or ")), func(h *History) error {
		said := "it never turned"
		for _, s := range h.Observations {
			if s.Available() || s.At.Before(h.Broke) {
				continue
			}
			for _, w := range words {
				if strings.Contains(s.Message, w) {
					return nil
				}
			}
			said = fmt.Sprintf("%s: %s", s.Reason, s.Message)
		}
		return errors.New(said)
	}}
}

// staysAvailable: the fault is no reason to send nobody there any more.
func staysAvailable() Expectation {
	return Expectation{"the APIService stays available", func(h *History) error {
		if at, came := h.Detected(); came {
			return fmt.Errorf("it was not %s after the fault", at.Sub(h.Broke).Round(time.Millisecond))
		}
		return nil
	}}
}

func recoversWithin(limit time.Duration) Expectation {
	return Expectation{fmt.Sprintf("within %s of the mending it is available and serves", limit), func(h *History) error {
		at, came := h.Recovered()
		if !came {
			return fmt.Errorf("it was not available again %s later", h.Ended.Sub(h.Mended).Round(time.Second))
		}
		first, servedAgain := h.served()
		if !servedAgain {
			return errors.New("it did not serve again")
		}
		if took := max(at.Sub(h.Mended), first.Sub(h.Mended)); took > limit {
			return fmt.Errorf("it took %s", took.Round(time.Millisecond))
		}
		return nil
	}}
}

// transitionsAtMost bounds how often the condition changes: every change is a write, and an event for every watcher.
func transitionsAtMost(n int) Expectation {
	return Expectation{fmt.Sprintf("the condition turns %d times at most", n), func(h *History) error {
		turns := 0
		for i := 1; i < len(h.Observations); i++ {
			if h.Observations[i].Available() != h.Observations[i-1].Available() {
				turns++
			}
		}
		if turns > n {
			return fmt.Errorf("it turned %d times", turns)
		}
		return nil
	}}
}

// failsWith: what the subject's clients see is a failure, and one of these.
func failsWith(outcomes ...string) Expectation {
	return Expectation{"its clients see only: " + strings.Join(outcomes, ", "), func(h *History) error {
		seen := h.duringFault(h.of(Subject, "get", "list", "create", "delete"))
		if len(seen) == 0 {
			return errors.New("no request of its clients was over before the mending")
		}
		for _, r := range seen {
			if !slices.Contains(outcomes, r.Outcome()) {
				return fmt.Errorf("a %s: %s", r.Verb, r.describe())
			}
		}
		return nil
	}}
}

// namesTheGuilty: a client that is refused learns whose fault it is. A front door that is being restarted is at fault itself.
func namesTheFailed() Expectation {
	return Expectation{"every 502, 503 and 504 is a Status that names the APIService", func(h *History) error {
		for _, r := range h.of(Subject) {
			if r.Code >= 502 && r.Code <= 504 && !h.names(r.Message) && !h.planned(r) {
				return fmt.Errorf("a %s: %s", r.Verb, r.describe())
			}
		}
		return nil
	}}
}

// failsFast: once it is known, nobody waits.
func failsFast(limit time.Duration) Expectation {
	return Expectation{fmt.Sprintf("once the condition has turned, clients wait at most %s for an answer", limit), func(h *History) error {
		at, came := h.Detected()
		if !came {
			return nil // another expectation says so
		}
		for _, r := range h.duringFault(h.of(Subject, "get", "list", "create", "delete")) {
			if r.Start.After(at) && r.Took > limit && !h.excused(r) {
				return fmt.Errorf("a %s took %s", r.Verb, r.Took.Round(time.Millisecond))
			}
		}
		return nil
	}}
}

// subjectUnharmed: the front door makes up for the fault.
func subjectUnaffected(verbs ...string) Expectation {
	return Expectation{"not one request of its clients fails (" + strings.Join(verbs, ", ") + ")", func(h *History) error {
		return noneFails(h, h.of(Subject, verbs...))
	}}
}
