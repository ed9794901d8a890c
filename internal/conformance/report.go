package conformance

import "fmt"

// Outcome is how a check ended.
type Outcome string

// Warn is for what clients get along with, at a price. NotApplicable is for what the server does not offer, and for what
// cannot be seen from here.
const (
	Pass          Outcome = "pass"
	Warn          Outcome = "warn"
	Fail          Outcome = "fail"
	NotApplicable Outcome = "not-applicable"
)

// Result is one line of a card.
type Result struct {
	// ID is "<topic>/<check>".
	ID string `json:"id"`
	// Expected is what a server that passes does, and Why who needs it.
	Expected string  `json:"expected"`
	Why      string  `json:"why"`
	Outcome  Outcome `json:"outcome"`
	// Detail is what was found, empty when that is what was expected.
	Detail string `json:"detail,omitempty"`
}

// Report is what was found about one group-version.
type Report struct {
	GroupVersion string `json:"groupVersion"`
	// APIService is empty for a server that was asked directly.
	APIService string `json:"apiService,omitempty"`
	// Server is who was asked.
	Server  string   `json:"server"`
	Results []Result `json:"results"`
}

// Count is how many checks ended so.
func (c *Report) Count(o Outcome) int {
	n := 0
	for _, r := range c.Results {
		if r.Outcome == o {
			n++
		}
	}
	return n
}

// Score is how many checks passed, of those that applied.
func (c *Report) Score() (marks, of int) {
	return c.Count(Pass), len(c.Results) - c.Count(NotApplicable)
}

// Failed is how many checks failed in all cards.
func Failed(cards []*Report) int {
	n := 0
	for _, c := range cards {
		n += c.Count(Fail)
	}
	return n
}

// verdict is how a check ended, and what it found.
type verdict struct {
	outcome Outcome
	detail  string
}

var ok = verdict{outcome: Pass}

func noted(format string, args ...any) verdict  { return verdict{Pass, fmt.Sprintf(format, args...)} }
func warned(format string, args ...any) verdict { return verdict{Warn, fmt.Sprintf(format, args...)} }
func failed(format string, args ...any) verdict { return verdict{Fail, fmt.Sprintf(format, args...)} }
func without(format string, args ...any) verdict {
	return verdict{NotApplicable, fmt.Sprintf(format, args...)}
}

// rank orders outcomes by how much they say: what failed anywhere failed.
func (o Outcome) rank() int {
	switch o {
	case Fail:
		return 3
	case Warn:
		return 2
	case Pass:
		return 1
	}
	return 0
}
