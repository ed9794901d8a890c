package rules

import (
	"fmt"
	"strings"
)

// maxProblems bounds what is told of one file; the rest is likely to follow from it.
const maxProblems = 20

// Problem is one mistake in a rule file.
type Problem struct {
	// File and Line are where it is, Field which one it is, such as rules[0].name.as.
	File  string
	Line  int
	Field string
	// Text says what is wrong and what was expected.
	Text string
}

func (p Problem) Error() string {
	where := fmt.Sprintf("%s:%d: ", p.File, p.Line)
	if p.Field == "" {
		return where + p.Text
	}
	return where + p.Field + ": " + p.Text
}

// Problems are all mistakes that were found, in the order of the file.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}
