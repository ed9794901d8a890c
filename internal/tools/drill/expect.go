package drill

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Expectation is a statement with a function that checks it against a history. check returns nil if the statement
// holds, and otherwise an error that describes the observed behavior. It depends only on the history. seen describes
// the observed behavior if the statement holds; nil if there is nothing to report.
type Expectation struct {
	Text  string
	check func(*History) error
	seen  func(*History) string
}

// saying returns e with a description for the case that it holds.
func (e Expectation) saying(seen func(*History) string) Expectation {
	e.seen = seen
	return e
}

// slowest formats the number of requests and the longest duration. It ignores watches, which may last indefinitely.
func slowest(requests func(*History) []Request) func(*History) string {
	return func(h *History) string {
		n, most := 0, time.Duration(0)
		for _, r := range requests(h) {
			if r.Verb != "watch" {
				n, most = n+1, max(most, r.Took)
			}
		}
		return fmt.Sprintf("%d requests, the slowest took %d ms", n, most.Milliseconds())
	}
}

// outcomesOf counts the outcomes of requests, the most frequent first.
func outcomesOf(requests func(*History) []Request) func(*History) string {
	return func(h *History) string {
		count := map[string]int{}
		for _, r := range requests(h) {
			count[r.Outcome()]++
		}
		names := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(count[b]-count[a], strings.Compare(a, b)) })
		for i, name := range names {
			names[i] = fmt.Sprintf("%d× %s", count[name], name)
		}
		return strings.Join(names, ", ")
	}
}

// judge checks a history against expectations.
func judge(h *History, expected []Expectation) []Finding {
	findings := make([]Finding, 0, len(expected))
	for _, e := range expected {
		f := Finding{Expected: e.Text, Holds: true}
		if err := e.check(h); err != nil {
			f.Holds, f.Seen, f.violation = false, err.Error(), shortForm(e, err)
		} else if e.seen != nil {
			f.Seen = e.seen(h)
		}
		findings = append(findings, f)
	}
	return findings
}

// limitError is the error of a check that measured more than its limit.
type limitError struct {
	measure     string
	took, limit time.Duration
	// never is true if the event did not happen. took is then the time waited.
	never bool
	// text describes the observed behavior.
	text string
}

func (e *limitError) Error() string { return e.text }

// maxShortForm limits the short form of a violated expectation, which shares a line with other columns.
const maxShortForm = 120

// shortForm returns a violated expectation with the measured value and the limit. Without a limit it returns the text
// of the expectation and the first part of the description.
func shortForm(e Expectation, err error) string {
	var over *limitError
	if errors.As(err, &over) {
		never := ""
		if over.never {
			never = "not in "
		}
		return fmt.Sprintf("%s: %s%s, limit %s", over.measure, never, shortDuration(over.took), shortDuration(over.limit))
	}
	seen, _, _ := strings.Cut(err.Error(), ", ")
	text := e.Text + ": " + seen
	if len(text) > maxShortForm {
		text = strings.ToValidUTF8(text[:maxShortForm], "") + "..."
	}
	return text
}

// shortDuration formats a duration in seconds without trailing zeros.
func shortDuration(d time.Duration) string {
	return strconv.FormatFloat(d.Round(10*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}

// discoveryLimit bounds the duration of discovery requests. Discovery is served from memory, so the limit covers the
// scheduling of a busy machine. kube-aggregator stalls for 5 s behind a hung backend.
const discoveryLimit = 2 * time.Second

// Expected returns all expectations of a drill.
func Expected(d Drill) []Expectation { return append(always(d), d.Expect...) }

// always returns the expectations that every drill shares.
func always(d Drill) []Expectation {
	out := []Expectation{ranTraffic(), discoveryNeverWaits(), othersUnaffected(Local)}
	switch {
	case d.Cluster:
		out = append(out, othersUnaffected(OtherCluster))
	case !d.AllFail:
		out = append(out, othersUnaffected(Bystander))
	}
	return append(out, nothingCutShort(), nothingLeft())
}

// ranTraffic guards the other expectations, which hold trivially without requests.
func ranTraffic() Expectation {
	return Expectation{Text: "traffic runs before, during and after", check: func(h *History) error {
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

// othersUnaffected checks that no request to a component that is unrelated to the fault fails.
func othersUnaffected(who string) Expectation {
	return Expectation{Text: fmt.Sprintf("no request to the %s fails", componentName(who)), check: func(h *History) error {
		requests := h.requestsTo(who)
		if len(requests) == 0 {
			return errors.New("no request was made")
		}
		return noneFails(h, requests)
	}}.saying(slowest(func(h *History) []Request { return h.requestsTo(who) }))
}

func componentName(who string) string {
	switch who {
	case Bystander:
		return "other extension server"
	case Local:
		return "front door's own groups"
	case OtherCluster:
		return "other Cluster"
	case OtherBackend:
		return "other backend of the APIRoute"
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
	return Expectation{Text: fmt.Sprintf("discovery always answers, within %s", discoveryLimit), check: func(h *History) error {
		requests := h.requestsTo(Discovery)
		if len(requests) == 0 {
			return errors.New("no request was made")
		}
		for _, r := range requests {
			if r.Took > discoveryLimit && !h.excused(r) {
				return &limitError{
					measure: "answer of discovery", took: r.Took, limit: discoveryLimit,
					text: fmt.Sprintf("one answer took %s", r.Took.Round(time.Millisecond)),
				}
			}
		}
		return noneFails(h, requests)
	}}.saying(slowest(func(h *History) []Request { return h.requestsTo(Discovery) }))
}

// nothingCutShort checks that no truncated response looks complete.
func nothingCutShort() Expectation {
	return Expectation{Text: "no answer that is cut short looks complete", check: func(h *History) error {
		for _, r := range h.Requests {
			if r.Failure == cutShort {
				return fmt.Errorf("a %s of the %s ended with half of a document and no error", r.Verb, r.Who)
			}
		}
		return nil
	}}
}

func nothingLeft() Expectation {
	return Expectation{Text: "nothing of the drill is left behind", check: func(h *History) error {
		if len(h.Left) > 0 {
			return errors.New(strings.Join(h.Left, ", "))
		}
		return nil
	}}
}

// discoveryShows checks that each discovery document shows the subject's group-version in one of the allowed states.
func discoveryShows(text string, allowed ...string) Expectation {
	return Expectation{Text: text, check: func(h *History) error {
		for _, r := range h.requestsTo(Discovery) {
			if r.OK() && h.phase(r.Start) == "during" && !h.planned(r) && !slices.Contains(allowed, r.Saw) {
				return fmt.Errorf("%s after the fault it was %s", r.Start.Sub(h.Broke).Round(time.Millisecond), r.Saw)
			}
		}
		return nil
	}}
}

// within checks that a measure of the drill exists and does not exceed limit.
func within(limit time.Duration, name, text string) Expectation {
	return Expectation{Text: fmt.Sprintf("%s, within %s", text, limit), check: func(h *History) error {
		m, measured := h.measure(name)
		switch {
		case !measured:
			return errors.New("it was not measured")
		case m.Never:
			return &limitError{measure: name, took: time.Duration(m.Seconds), limit: limit, never: true, text: fmt.Sprintf("not in %s", m.Seconds)}
		case time.Duration(m.Seconds) > limit:
			return &limitError{measure: name, took: time.Duration(m.Seconds), limit: limit, text: fmt.Sprintf("it took %s", m.Seconds)}
		}
		return nil
	}}.saying(func(h *History) string {
		m, _ := h.measure(name)
		return fmt.Sprintf("after %s", m.Seconds)
	})
}

// stays checks that an event that must not happen did not happen while the drill watched.
func stays(name, text string) Expectation {
	return Expectation{Text: text, check: func(h *History) error {
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
	return Expectation{Text: fmt.Sprintf("the condition turns within %s", limit), check: func(h *History) error {
		at, came := h.Detected()
		waited, took := h.Mended.Sub(h.Broke), at.Sub(h.Broke)
		switch {
		case !came:
			return &limitError{measure: TimeToDetect, took: waited, limit: limit, never: true, text: fmt.Sprintf("it did not, in %s", waited.Round(time.Second))}
		case took > limit:
			return &limitError{measure: TimeToDetect, took: took, limit: limit, text: fmt.Sprintf("it took %s", took.Round(time.Millisecond))}
		}
		return nil
	}}.saying(func(h *History) string {
		at, _ := h.Detected()
		return fmt.Sprintf("after %s", Seconds(at.Sub(h.Broke)))
	})
}

// conditionSays checks that the condition's message names the problem.
func conditionSays(words ...string) Expectation {
	return Expectation{Text: fmt.Sprintf("the condition says %q", strings.Join(words, " or ")), check: func(h *History) error {
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

// staysAvailable checks that the fault does not make the APIService unavailable.
func staysAvailable() Expectation {
	return Expectation{Text: "the APIService stays available", check: func(h *History) error {
		if at, came := h.Detected(); came {
			return fmt.Errorf("it was not %s after the fault", at.Sub(h.Broke).Round(time.Millisecond))
		}
		return nil
	}}
}

func recoversWithin(limit time.Duration) Expectation {
	return Expectation{Text: fmt.Sprintf("within %s of the mending it is available and serves", limit), check: func(h *History) error {
		at, came := h.Recovered()
		if !came {
			waited := h.Ended.Sub(h.Mended)
			return &limitError{
				measure: TimeToRecover, took: waited, limit: limit, never: true,
				text: fmt.Sprintf("it was not available again %s later", waited.Round(time.Second)),
			}
		}
		first, servedAgain := h.served()
		if !servedAgain {
			return errors.New("it did not serve again")
		}
		if took := max(at.Sub(h.Mended), first.Sub(h.Mended)); took > limit {
			return &limitError{measure: TimeToRecover, took: took, limit: limit, text: fmt.Sprintf("it took %s", took.Round(time.Millisecond))}
		}
		return nil
	}}.saying(func(h *History) string {
		at, _ := h.Recovered()
		first, _ := h.served()
		return fmt.Sprintf("available after %s, served after %s", Seconds(at.Sub(h.Mended)), Seconds(first.Sub(h.Mended)))
	})
}

// transitionsAtMost bounds how often the condition changes: every change is a write, and an event for every watch.
func transitionsAtMost(n int) Expectation {
	return Expectation{Text: fmt.Sprintf("the condition turns %d times at most", n), check: func(h *History) error {
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

// failsWith checks that clients of the subject see failures, all with one of the given outcomes.
func failsWith(outcomes ...string) Expectation {
	return Expectation{Text: "its clients see only: " + strings.Join(outcomes, ", "), check: func(h *History) error {
		seen := h.duringFault(h.requestsTo(Subject, "get", "list", "create", "delete"))
		if len(seen) == 0 {
			return errors.New("no request of its clients was over before the mending")
		}
		for _, r := range seen {
			if !slices.Contains(outcomes, r.Outcome()) {
				return fmt.Errorf("a %s: %s", r.Verb, r.describe())
			}
		}
		return nil
	}}.saying(outcomesOf(func(h *History) []Request {
		return h.duringFault(h.requestsTo(Subject, "get", "list", "create", "delete"))
	}))
}

// namesTheFailed checks that the error response names the APIService that failed. Errors during a planned restart of
// the front door are excluded.
func namesTheFailed() Expectation {
	return Expectation{Text: "every 502, 503 and 504 is a Status that names the APIService", check: func(h *History) error {
		for _, r := range h.requestsTo(Subject) {
			if r.Code >= 502 && r.Code <= 504 && !h.names(r.Message) && !h.planned(r) {
				return fmt.Errorf("a %s: %s", r.Verb, r.describe())
			}
		}
		return nil
	}}
}

// failsFast checks that requests do not wait after the fault was detected.
func failsFast(limit time.Duration) Expectation {
	return Expectation{Text: fmt.Sprintf("once the condition has turned, clients wait at most %s for an answer", limit), check: func(h *History) error {
		at, came := h.Detected()
		if !came {
			return nil // detectedWithin reports this failure
		}
		for _, r := range h.duringFault(h.requestsTo(Subject, "get", "list", "create", "delete")) {
			if r.Start.After(at) && r.Took > limit && !h.excused(r) {
				return &limitError{
					measure: "answer of a " + r.Verb + " after the condition has turned", took: r.Took, limit: limit,
					text: fmt.Sprintf("a %s took %s", r.Verb, r.Took.Round(time.Millisecond)),
				}
			}
		}
		return nil
	}}
}

// subjectUnaffected checks that the front door hides the fault from the subject's clients.
func subjectUnaffected(verbs ...string) Expectation {
	return Expectation{Text: "not one request of its clients fails (" + strings.Join(verbs, ", ") + ")", check: func(h *History) error {
		return noneFails(h, h.requestsTo(Subject, verbs...))
	}}.saying(slowest(func(h *History) []Request { return h.requestsTo(Subject, verbs...) }))
}
