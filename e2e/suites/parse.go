package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// The states of a spec.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// spec is one ginkgo spec, or one Go test, on one server.
type spec struct {
	Name    string  `json:"name"`
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"`
	Message string  `json:"message,omitempty"` // of a failure
}

// maxMessage limits the stored text of a failure.
const maxMessage = 2000

func bounded(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// ginkgoSuite contains the fields of ginkgo's report that parseReport reads.
type ginkgoSuite struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct {
			Message  string
			Location struct {
				FileName   string
				LineNumber int
			}
		}
	}
}

// parseReport reads the specs of ginkgo's -json-report. It keeps other nodes, such as BeforeEach, only if they failed.
func parseReport(data []byte) ([]spec, error) {
	var found []ginkgoSuite
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, fmt.Errorf("ginkgo's report: %w", err)
	}
	names := counter{}
	var specs []spec
	for _, s := range found {
		for _, r := range s.SpecReports {
			state := stateOf(r.State)
			name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
			if r.LeafNodeType != "It" {
				if state != failed {
					continue
				}
				name = "[" + r.LeafNodeType + "] " + name
			}
			one := spec{Name: names.unique(name), State: state, Seconds: r.RunTime.Seconds()}
			if state == failed {
				one.Message = bounded(fmt.Sprintf("%s:%d: %s", r.Failure.Location.FileName, r.Failure.Location.LineNumber, r.Failure.Message))
			}
			specs = append(specs, one)
		}
	}
	return specs, nil
}

// stateOf maps ginkgo's states. Every state other than passed, skipped and pending is a failure.
func stateOf(state string) string {
	switch state {
	case "passed":
		return passed
	case "skipped", "pending", "":
		return skipped
	}
	return failed
}

var (
	testEnd   = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)$`)
	testBegin = regexp.MustCompile(`^=== (?:RUN|CONT|NAME) +(\S+)$`)
)

// parseTests reads the Go tests from the output of -test.v. It omits the test that runs ginkgo's specs, because the specs are
// counted separately. A test that began and did not end has failed.
func parseTests(output string) []spec {
	var order []string
	tests, ginkgo, current := map[string]*spec{}, map[string]bool{}, ""
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if m := testBegin.FindStringSubmatch(line); m != nil {
			if current = m[1]; tests[current] == nil {
				tests[current] = &spec{State: failed, Message: "it did not end"}
				order = append(order, current)
			}
			continue
		}
		if strings.HasPrefix(line, "Running Suite: ") {
			ginkgo[current] = true
			continue
		}
		m := testEnd.FindStringSubmatch(line)
		if m == nil || tests[m[3]] == nil {
			if t := tests[current]; t != nil && t.State == failed && len(t.Message) < maxMessage && strings.HasPrefix(line, "    ") {
				t.Message += "\n" + strings.TrimSpace(line)
			}
			continue
		}
		t := tests[m[3]]
		t.State = map[string]string{"PASS": passed, "FAIL": failed, "SKIP": skipped}[m[2]]
		if seconds, err := time.ParseDuration(m[4] + "s"); err == nil {
			t.Seconds = seconds.Seconds()
		}
		t.Message = strings.TrimPrefix(t.Message, "it did not end\n")
		if t.State != failed || t.Message == "it did not end" {
			t.Message = ""
		}
	}
	names := counter{}
	var specs []spec
	for _, name := range order {
		if ginkgo[name] {
			continue
		}
		t := *tests[name]
		t.Name, t.Message = names.unique(name), bounded(t.Message)
		specs = append(specs, t)
	}
	return specs
}

// counter makes names unique: it replaces random parts, and numbers equal names.
type counter map[string]int

var random = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9]{4,}\b|0x[0-9a-f]{6,}`)

func (c counter) unique(name string) string {
	name = random.ReplaceAllString(strings.Join(strings.Fields(name), " "), "N")
	c[name]++
	if n := c[name]; n > 1 {
		return fmt.Sprintf("%s #%d", name, n)
	}
	return name
}
