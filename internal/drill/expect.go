package drill

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Expectation is a sentence, and how to tell from a history whether it holds. The check returns nil when it does, and
// otherwise what was seen instead. It looks at nothing but the history.
type Expectation struct {
	Text  string
	check func(*History) error
}

// judge holds a history against expectations.
func judge(h *History, expected []Expectation) []Finding {
	findings := make([]Finding, 0, len(expected))
	for _, e := range expected {
		f := Finding{Expected: e.Text, Holds: true}
		if err := e.check(h); err != nil {
			f.Holds, f.Seen = false, err.Error()
		}
		findings = append(findings, f)
	}
	return findings
}

// discoveryLimit is how long discovery may take at most. It is answered from memory, so this is a busy machine's
// scheduling; the incumbent's stall behind a hung backend is 5 s.
const discoveryLimit = 2 * time.Second

// Expected is everything that is expected of a drill.
func Expected(d Drill) []Expectation { return append(always(d), d.Expect...) }

// always is expected of every drill.
func always(d Drill) []Expectation {
	out := []Expectation{ranTraffic(), discoveryNeverWaits(), othersUnaffected(Local)}
	if !d.AllFail {
		out = append(out, othersUnaffected(Bystander))
	}
	return append(out, nothingCutShort(), nothingLeft())
}

// ranTraffic guards all others: of no request, everything is true.
func ranTraffic() Expectation {
	return Expectation{"traffic runs before, during and after", func(h *History) error {
		count := map[string]int{}
		for _, r := range h.Requests {
			count[h.phase(r.Start)]++
		}
		for _, phase := range phaseOrder {
			if count[phase] < 5 {
				return fmt.Errorf("%d requests %s the fault", count[phase], phase)
			}
		}
		return nil
	}}
}

// unharmed: no request of a component that has nothing to do with the fault fails.
func othersUnaffected(who string) Expectation {
	return Expectation{fmt.Sprintf("no request to the %s fails", componentName(who)), func(h *History) error {
		requests := h.of(who)
		if len(requests) == 0 {
			return errors.New("no request was made")
		}
		return noneFails(h, requests)
	}}
}

func componentName(who string) string {
	switch who {
	case Bystander:
		return "other extension server"
	case Local:
		return "front door's own groups"
	}
	return who
}

func noneFails(h *History, requests []Request) error {
	failed, first := 0, Request{}
	for _, r := range requests {
		if r.OK() || h.excused(r) {
			continue
		}
		if failed++; failed == 1 {
			first = r
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed, the first a %s after %s: %s", failed, len(requests), first.Verb,
			first.Took.Round(time.Millisecond), first.describe())
	}
	return nil
}

func (r Request) describe() string {
	text := r.Outcome()
	for _, part := range []string{r.Reason, r.Message, r.Failure} {
		if part != "" {
			text += ", " + part
		}
	}
	return text
}

func discoveryNeverWaits() Expectation {
	return Expectation{fmt.Sprintf("discovery always answers, within %s", discoveryLimit), func(h *History) error {
		requests := h.of(Discovery)
		if len(requests) == 0 {
			return errors.New("no request was made")
		}
		for _, r := range requests {
			if r.Took > discoveryLimit && !h.excused(r) {
				return fmt.Errorf("one answer took %s", r.Took.Round(time.Millisecond))
			}
		}
		return noneFails(h, requests)
	}}
}

// nothingCutShort: an answer that looks complete is complete.
func nothingCutShort() Expectation {
	return Expectation{"no answer that is cut short looks complete", func(h *History) error {
		for _, r := range h.Requests {
			if r.Failure == cutShort {
				return fmt.Errorf("a %s of the %s ended with half of a document and no error", r.Verb, r.Who)
			}
		}
		return nil
	}}
}

func nothingLeft() Expectation {
	return Expectation{"nothing of the drill is left behind", func(h *History) error {
		if len(h.Left) > 0 {
			return errors.New(strings.Join(h.Left, ", "))
		}
		return nil
	}}
}

// discoveryShows: in every discovery document the subject's group-version is one of these.
func discoveryShows(text string, allowed ...string) Expectation {
	return Expectation{text, func(h *History) error {
		for _, r := range h.of(Discovery) {
			if r.OK() && h.phase(r.Start) == "during" && !h.planned(r) && !slices.Contains(allowed, r.Saw) {
				return fmt.Errorf("%s after the fault it was %s", r.Start.Sub(h.Broke).Round(time.Millisecond), r.Saw)
			}
		}
		return nil
	}}
}

// within: a measure of the drill's own is there and small enough.
func within(limit time.Duration, name, text string) Expectation {
	return Expectation{fmt.Sprintf("%s, within %s", text, limit), func(h *History) error {
		m, measured := h.measure(name)
		switch {
		case !measured:
			return errors.New("it was not measured")
		case m.Never:
			return fmt.Errorf("not in %s", m.Seconds)
		case time.Duration(m.Seconds) > limit:
			return fmt.Errorf("it took %s", m.Seconds)
		}
		return nil
	}}
}

// stays: what must not come about did not, for as long as the drill watched.
func stays(name, text string) Expectation {
	return Expectation{text, func(h *History) error {
		m, measured := h.measure(name)
		switch {
		case !measured:
			return errors.New("it was not measured")
		case !m.Never:
			return fmt.Errorf("it came about after %s", m.Seconds)
		}
		return nil
	}}
}

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
