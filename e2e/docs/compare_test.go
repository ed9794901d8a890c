package docs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Text that differs between two runs of a command, with its replacement.
var variable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9a-fA-F]*[0-9][0-9a-fA-F]*[a-fA-F][0-9a-fA-F]{6,}\b`), "ID"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(y|d|h|m|s|ms|µs))+\b`), "AGE"},
	{regexp.MustCompile(`\d+× \w+(, \d+× \w+)*`), "OUTCOMES"}, // of a drill's requests: some may have a response earlier
	{regexp.MustCompile(`\d+(\.\d+)?`), "0"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// plain returns a line without the text that differs between two runs.
func plain(line string) string {
	if host, err := os.Hostname(); err == nil {
		line = regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).ReplaceAllString(line, "vm")
	}
	for _, v := range variable {
		line = v.pattern.ReplaceAllString(line, v.with)
	}
	return strings.TrimSpace(line)
}

// logged is a line of a server's log, which pages leave out.
var logged = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d)\s+(DEBUG|INFO|WARN|ERROR)\s`)

// starting is a warning that any command may get in the first moments after a start, and that pages leave out.
var starting = regexp.MustCompile(`^Warning: APIService \S+ is stale \(the backend has not answered yet\)`)

const elision = "..."

// compare returns the difference between the output and the page, or nil.
func compare(shown []string, printed string) error {
	var got []string
	for _, line := range strings.Split(strings.TrimRight(printed, "\n"), "\n") {
		if logged.MatchString(line) || starting.MatchString(line) {
			continue
		}
		got = append(got, plain(line))
	}
	var want []string
	for _, line := range shown {
		want = append(want, plain(line))
	}
	if !matches(want, got) {
		return fmt.Errorf("it printed:\n%s\nThe page shows:\n%s", strings.TrimRight(printed, "\n"), strings.Join(shown, "\n"))
	}
	return nil
}

// matches reports whether lines equal the page's lines. A line of three dots matches any lines.
func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == elision {
		for skipped := 0; skipped <= len(got); skipped++ {
			if matches(want[1:], got[skipped:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && lineMatches(want[0], got[0]) && matches(want[1:], got[1:])
}

// lineMatches is matches within a line.
func lineMatches(want, got string) bool {
	parts := strings.Split(want, elision)
	if len(parts) == 1 {
		return want == got
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(got, first) || !strings.HasSuffix(got[len(first):], last) {
		return false
	}
	got = got[len(first) : len(got)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(got, part)
		if i < 0 {
			return false
		}
		got = got[i+len(part):]
	}
	return true
}

// failure matches the first words of an error message of a program.
var failure = regexp.MustCompile(`^(Error|error:|The \S+ "\S*" is invalid:|no: |aggregator:|extserver:|kubectl portico:|exit status [1-9])`)

// fails reports whether the page shows that a command fails.
func fails(output []string) bool {
	for _, line := range output {
		if failure.MatchString(line) {
			return true
		}
	}
	return false
}
