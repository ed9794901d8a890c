package conformance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"portico.dev/internal/tools/conformance"
)

// TestRecordsHaveEveryCheck: cards of other projects' servers are recorded by hand, because building them takes minutes. They
// must be recorded again when a check is added, removed or renamed.
func TestRecordsHaveEveryCheck(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var want []string
	for _, r := range examine(t, conformance.Config{Server: build(t).server()})[0].Results {
		want = append(want, r.ID)
	}
	records, err := filepath.Glob("scores/*-v*.txt")
	must(t, err)
	if len(records) < 2 {
		t.Fatalf("recorded cards = %q, want at least 2", records)
	}
	for _, file := range records {
		text, err := os.ReadFile(file)
		must(t, err)
		for i, card := range strings.SplitAfter(strings.TrimSpace(string(text)), "not applicable\n\n") {
			if got := ids(card); !slices.Equal(got, want) {
				t.Errorf("%s, card %d has\n%q, want\n%q", file, i, got, want)
			}
		}
	}
}

var (
	topicLine = regexp.MustCompile(`^[a-z]+$`)
	checkLine = regexp.MustCompile(`^  (?:pass|warn|FAIL|-   )  ([a-z0-9-]+) `)
)

// ids are the checks of a printed card.
func ids(card string) []string {
	var out []string
	topic := ""
	for line := range strings.Lines(card) {
		line = strings.TrimSuffix(line, "\n")
		if topicLine.MatchString(line) {
			topic = line
		} else if m := checkLine.FindStringSubmatch(line); m != nil {
			out = append(out, topic+"/"+m[1])
		}
	}
	return out
}
