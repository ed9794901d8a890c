package declared

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mistake is one thing that is wrong in a file, and where.
type Mistake struct {
	File         string
	Line, Column int
	// Field is the path to what is wrong, such as resources[0].source.http.url. Empty: the file as a whole.
	Field string
	// Problem says what was found and what was expected.
	Problem string
}

// String is the mistake in the form that editors jump to: file:line:column: field: problem.
func (m Mistake) String() string {
	place := m.File
	if m.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", m.File, m.Line, m.Column)
	}
	if m.Field == "" {
		return place + ": " + m.Problem
	}
	return place + ": " + m.Field + ": " + m.Problem
}

// MistakesError is everything that is wrong, in the order of the files: who mends one mistake sees the others too.
type MistakesError []Mistake

// Error has a line for each mistake.
func (e MistakesError) Error() string {
	lines := make([]string, len(e))
	for i, m := range e {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// orNil is e in the order of reading, or nil when there is nothing in it.
func (e MistakesError) orNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return e
}

// nearest is the word that the writer may have meant, or "".
func nearest(word string, known []string) string {
	best, least := "", 1+max(1, len(word)/3)
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to insert, drop or change to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// sentence lists words as one reads them aloud: a, b or c.
func sentence(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
