package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// WriteText writes reports as text. Failed checks include the expected behavior and the reason.
func WriteText(w io.Writer, cards []*Report) error {
	var b strings.Builder
	for i, c := range cards {
		if i > 0 {
			b.WriteByte('\n')
		}
		c.text(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Report) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s of %s\n", c.GroupVersion, c.Server)
	topic := ""
	for _, r := range c.Results {
		at, name, _ := strings.Cut(r.ID, "/")
		if at != topic {
			topic = at
			fmt.Fprintf(b, "\n%s\n", topic)
		}
		said := r.Expected
		if r.Outcome == NotApplicable {
			said = "not applicable: " + r.Detail
		}
		fmt.Fprintf(b, "  %-4s  %-16s  %s\n", mark(r.Outcome), name, said)
		switch {
		case r.Outcome == Fail || r.Outcome == Warn:
			fmt.Fprintf(b, "        %-16s  found: %s\n        %-16s  why: %s\n", "", r.Detail, "", r.Why)
		case r.Outcome == Pass && r.Detail != "":
			fmt.Fprintf(b, "        %-16s  (%s)\n", "", r.Detail)
		}
	}
	marks, of := c.Score()
	fmt.Fprintf(b, "\nscore %d/%d", marks, of)
	for _, o := range []struct {
		outcome Outcome
		word    string
	}{{Fail, "failed"}, {Warn, "with a warning"}, {NotApplicable, "not applicable"}} {
		if n := c.Count(o.outcome); n > 0 {
			fmt.Fprintf(b, ", %d %s", n, o.word)
		}
	}
	b.WriteByte('\n')
}

func mark(o Outcome) string {
	switch o {
	case Fail:
		return "FAIL"
	case NotApplicable:
		return "-"
	}
	return string(o)
}

// WriteJSON writes reports as JSON.
func WriteJSON(w io.Writer, cards []*Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(cards)
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
	// Output contains warnings, which JUnit does not support.
	Output string `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes reports as JUnit XML: a suite for each report and a case for each check.
func WriteJUnit(w io.Writer, cards []*Report) error {
	var all junitSuites
	for _, c := range cards {
		s := junitSuite{Name: c.GroupVersion, Tests: len(c.Results), Failures: c.Count(Fail), Skipped: c.Count(NotApplicable)}
		for _, r := range c.Results {
			s.Cases = append(s.Cases, r.junit(c.GroupVersion))
		}
		all.Tests, all.Failures, all.Skipped = all.Tests+s.Tests, all.Failures+s.Failures, all.Skipped+s.Skipped
		all.Suites = append(all.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (r *Result) junit(class string) junitCase {
	c := junitCase{Class: class, Name: r.ID}
	switch r.Outcome {
	case Fail:
		c.Failure = &junitMessage{Message: r.Detail, Text: "expected: " + r.Expected + "\nwhy: " + r.Why}
	case NotApplicable:
		c.Skipped = &junitMessage{Message: r.Detail}
	case Warn:
		c.Output = "warning: " + r.Detail + "\nexpected: " + r.Expected + "\nwhy: " + r.Why
	case Pass:
		c.Output = r.Detail
	}
	return c
}

// Outcome is the outcome of a check.
type Outcome string

// Warn means that clients work, at a cost. NotApplicable means that the server does not offer the feature, or that it
// cannot be checked.
const (
	Pass          Outcome = "pass"
	Warn          Outcome = "warn"
	Fail          Outcome = "fail"
	NotApplicable Outcome = "not-applicable"
)

// Result is the result of one check.
type Result struct {
	// ID is "<topic>/<check>".
	ID string `json:"id"`
	// Expected is the behavior of a server that passes. Why names the clients that depend on it.
	Expected string  `json:"expected"`
	Why      string  `json:"why"`
	Outcome  Outcome `json:"outcome"`
	// Detail is the observed behavior, empty if it matches Expected.
	Detail string `json:"detail,omitempty"`
}

// Report contains the results for one group-version.
type Report struct {
	GroupVersion string `json:"groupVersion"`
	// APIService is empty for a server that was examined directly.
	APIService string `json:"apiService,omitempty"`
	// Server is the URL of the server that received the requests.
	Server  string   `json:"server"`
	Results []Result `json:"results"`
}

// Count returns the number of checks with the given outcome.
func (c *Report) Count(o Outcome) int {
	n := 0
	for _, r := range c.Results {
		if r.Outcome == o {
			n++
		}
	}
	return n
}

// Score returns the number of checks that passed and the number of checks that applied.
func (c *Report) Score() (marks, of int) {
	return c.Count(Pass), len(c.Results) - c.Count(NotApplicable)
}

// Failed returns the number of failed checks in all reports.
func Failed(cards []*Report) int {
	n := 0
	for _, c := range cards {
		n += c.Count(Fail)
	}
	return n
}

// verdict is the outcome of a check, with details.
type verdict struct {
	outcome Outcome
	detail  string
}

var ok = verdict{outcome: Pass}

func noted(format string, args ...any) verdict  { return verdict{Pass, fmt.Sprintf(format, args...)} }
func warned(format string, args ...any) verdict { return verdict{Warn, fmt.Sprintf(format, args...)} }
func failed(format string, args ...any) verdict { return verdict{Fail, fmt.Sprintf(format, args...)} }
func notApplicable(format string, args ...any) verdict {
	return verdict{NotApplicable, fmt.Sprintf(format, args...)}
}

// rank orders outcomes by severity, so that a single failure determines the result.
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
