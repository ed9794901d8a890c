package custommetrics

import (
	"fmt"
	"strings"
)

// maxProblems bounds what is told of one file; the rest is likely to follow from it.
const maxProblems = 20

// RuleProblem is one mistake in a rule file.
type RuleProblem struct {
	// File and Line are where it is, Field which one it is, such as rules[0].name.as.
	File  string
	Line  int
	Field string
	// Text says what is wrong and what was expected.
	Text string
}

func (p RuleProblem) Error() string {
	where := fmt.Sprintf("%s:%d: ", p.File, p.Line)
	if p.Field == "" {
		return where + p.Text
	}
	return where + p.Field + ": " + p.Text
}

// RuleProblems are all mistakes that were found, in the order of the file.
type RuleProblems []RuleProblem

func (p RuleProblems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}
