package report

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"portico.dev/internal/tools/drill"
)

// JSON writes the results as a JSON array.
func JSON(out io.Writer, results []*drill.Result) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(results)
}

type suite struct {
	XMLName  xml.Name `xml:"testsuite"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Time     string   `xml:"time,attr"`
	Cases    []testCase
}

type testCase struct {
	XMLName   xml.Name `xml:"testcase"`
	Name      string   `xml:"name,attr"`
	ClassName string   `xml:"classname,attr"`
	Time      string   `xml:"time,attr"`
	Failure   *outcome `xml:"failure,omitempty"`
	Error     *outcome `xml:"error,omitempty"`
	Skipped   *outcome `xml:"skipped,omitempty"`
	Output    string   `xml:"system-out,omitempty"`
}

type outcome struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes the results as a JUnit test suite for continuous integration. Each drill is a test case.
func JUnit(out io.Writer, results []*drill.Result) error {
	s := suite{Name: "portico drills", Tests: len(results)}
	var total time.Duration
	for _, r := range results {
		total += time.Duration(r.Took)
		c := testCase{Name: r.Drill, ClassName: "drill", Time: seconds(r.Took), Output: measuresOf(r)}
		switch r.Verdict {
		case drill.Failed:
			s.Failures++
			c.Failure = &outcome{Message: firstComplaint(r), Text: allComplaints(r)}
		case drill.Broken:
			s.Errors++
			c.Error = &outcome{Message: r.Why}
		case drill.Skipped:
			s.Skipped++
			c.Skipped = &outcome{Message: r.Why}
		}
		s.Cases = append(s.Cases, c)
	}
	s.Time = seconds(drill.Seconds(total))
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	if err := encoder.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}

func seconds(s drill.Seconds) string { return fmt.Sprintf("%.3f", time.Duration(s).Seconds()) }

func firstComplaint(r *drill.Result) string {
	for _, f := range r.Findings {
		if !f.Holds {
			return f.Expected + ": " + f.Seen
		}
	}
	return ""
}

func allComplaints(r *drill.Result) string {
	var b strings.Builder
	_ = complaints(&b, r) // a strings.Builder does not return errors
	return b.String()
}

func measuresOf(r *drill.Result) string {
	var b strings.Builder
	if r.Excused > 0 {
		fmt.Fprintf(&b, "excused requests: %d\n", r.Excused)
	}
	for _, m := range r.Measures {
		if m.Never {
			fmt.Fprintf(&b, "%s: not in %s\n", m.Name, m.Seconds)
		} else {
			fmt.Fprintf(&b, "%s: %s\n", m.Name, m.Seconds)
		}
	}
	return b.String()
}
