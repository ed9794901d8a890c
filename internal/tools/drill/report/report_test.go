package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/tools/drill"
)

var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// results are one drill of each verdict, the failed one with a history.
func results() []*drill.Result {
	history := &drill.History{
		Times:        drill.Times{Began: began, Broke: began.Add(time.Second), Mended: began.Add(3 * time.Second), Ended: began.Add(5 * time.Second)},
		Registration: "v1.s-abc",
		Observations: []drill.Observation{
			{At: began, Status: "True"}, {At: began.Add(1200 * time.Millisecond), Status: "False"}, {At: began.Add(3500 * time.Millisecond), Status: "True"},
		},
		Requests: []drill.Request{
			{Who: drill.Subject, Verb: "get", Start: began, Took: 10 * time.Millisecond, Code: 200},
			{Who: drill.Subject, Verb: "get", Start: began.Add(2 * time.Second), Took: 10 * time.Millisecond, Code: 503, Reason: "<b>ServiceUnavailable</b>"},
			{Who: drill.Bystander, Verb: "watch", Start: began, Took: 5 * time.Second, Code: 200},
		},
	}
	failed := &drill.Result{
		Drill: "hang", Title: "nothing is answered", Server: "a test", Began: began, Took: drill.Seconds(6 * time.Second), Verdict: drill.Failed,
		Excused:  2,
		Violated: []string{"answer of a <get>: 9 s, limit 5 s", "nothing is left: a namespace"},
		Findings: []drill.Finding{{Expected: "it is noticed", Holds: true}, {Expected: "nobody waits", Seen: "one <waited> 9 s"}},
		Measures: []drill.Measure{
			{Name: drill.TimeToDetect, Seconds: drill.Seconds(200 * time.Millisecond)},
			{Name: drill.TimeToRecover, Seconds: drill.Seconds(2 * time.Second), Never: true},
		},
		Traffic: drill.Rows(history), History: history, Left: []string{},
	}
	return []*drill.Result{
		{Drill: "refuse", Verdict: drill.Passed, Excused: 3, Took: drill.Seconds(time.Second), Left: []string{}},
		failed,
		{Drill: "restart", Verdict: drill.Skipped, Why: "no such power"},
		{Drill: "broken", Verdict: drill.Broken, Why: "create namespace: forbidden"},
	}
}

func TestTextListsFailedExpectations(t *testing.T) {
	var out bytes.Buffer
	if err := Text(&out, results()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"refuse    passed, 3 excused   -          -           -                 1.00 s   -\n",
		"hang      failed, 2 excused   0.20 s     no", "6.00 s   answer of a <get>: 9 s, limit 5 s (and 1 more)\n",
		"1× 503", "expected: nobody waits", "seen: one <waited> 9 s", "restart: skipped: no such power",
		"1 passed (1 with excused requests), 1 failed (expectations violated: 2), 1 broken, 1 skipped",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q, want it in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "it is noticed") {
		t.Error("the report lists an expectation that holds, want only failed ones")
	}
}

// The column would be empty, and the table wider.
func TestTextWithoutViolationsHasNoColumnForThem(t *testing.T) {
	var out bytes.Buffer
	if err := Text(&out, []*drill.Result{{Drill: "refuse", Verdict: drill.Passed}}); err != nil {
		t.Fatal(err)
	}
	want := "DRILL    VERDICT   DETECTED   RECOVERED   ITS CLIENTS SAW   TOOK\n" +
		"refuse   passed    -          -           -                 0.00 s\n\n1 passed\n"
	if out.String() != want {
		t.Errorf("report =\n%s\nwant\n%s", &out, want)
	}
}

func TestProgressLineNamesExcusesAndViolation(t *testing.T) {
	var out bytes.Buffer
	for _, r := range results()[:2] {
		Progress{Terminal: &out}.Done(r)
	}
	want := clearLine + "passed, 3 excused refuse (1.00 s)\n" +
		clearLine + "failed, 2 excused hang (6.00 s): answer of a <get>: 9 s, limit 5 s (and 1 more)\n"
	if out.String() != want {
		t.Errorf("progress = %q, want %q", out.String(), want)
	}
}

func TestJSONReportRoundTrips(t *testing.T) {
	var out bytes.Buffer
	if err := JSON(&out, results()); err != nil {
		t.Fatal(err)
	}
	var read []drill.Result
	if err := json.Unmarshal(out.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if len(read) != 4 || read[1].Verdict != drill.Failed || time.Duration(read[1].Measures[0].Seconds) != 200*time.Millisecond {
		t.Errorf("decoded report = %s, want 4 results with the second failed after 200 ms", &out)
	}
	if want := results()[1].Violated; read[0].Excused != 3 || !slices.Equal(read[1].Violated, want) {
		t.Errorf("excused %d and violated %q, want 3 and %q", read[0].Excused, read[1].Violated, want)
	}
}

func TestJUnitCountsEachVerdict(t *testing.T) {
	var out bytes.Buffer
	if err := JUnit(&out, results()); err != nil {
		t.Fatal(err)
	}
	var read suite
	if err := xml.Unmarshal(out.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	if read.Tests != 4 || read.Failures != 1 || read.Errors != 1 || read.Skipped != 1 {
		t.Errorf("JUnit report = %s, want 4 tests with 1 failure, 1 error and 1 skipped", &out)
	}
}

func TestPageIsCompleteAndEscapesServerText(t *testing.T) {
	text := string(HTML(results()))
	for _, want := range []string{
		"<svg viewBox", `class="fault"`, "detected</text>", "recovered</text>", "one &lt;waited&gt; 9 s", "</html>",
		`<td class="passed">passed, 3 excused</td>`,
		`<td class="failed">failed, 2 excused: answer of a &lt;get&gt;: 9 s, limit 5 s (and 1 more)</td>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q, want it", want)
		}
	}
	for _, not := range []string{"<waited>", "<get>", "<b>Service", "http://", "https://", "<script", "NaN", "ZgotmplZ"} {
		if strings.Contains(text, not) {
			t.Errorf("the page has %q, want no such text", not)
		}
	}
}

// The page is the same as html/template generates: the place of each value, and its escaping.
func TestPageEqualsHTMLTemplateOutput(t *testing.T) {
	all := results()
	all[1].Commands = []drill.Command{{Args: []string{"kubectl", "get", `"><script>`}, Exit: 1, Took: drill.Seconds(time.Second), Output: "it's & <that>"}}
	all[1].Left = []string{"namespace <one>", "two"}
	all[1].History.Requests = append(all[1].History.Requests,
		drill.Request{Who: `a "party"`, Verb: "get", Start: began.Add(2 * time.Second), Took: time.Second, Failure: "reset"},
		drill.Request{Who: `a "party"`, Verb: "get", Start: began.Add(3 * time.Second), Took: time.Second, Code: 429})
	all[1].Traffic = drill.Rows(all[1].History)
	reference, err := template.New("page.html").Funcs(template.FuncMap{
		"timeline": func(r *drill.Result) *timeline { return newTimeline(r.History) },
		"outcomes": outcomes,
		"duration": duration,
		"join":     func(words []string) string { return strings.Join(words, " ") },
		"clock":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"add":      func(a, b float64) float64 { return a + b },
		"half":     func(f float64) float64 { return f / 2 },
		"px":       func(f float64) string { return fmt.Sprintf("%.1f", f) },
	}).ParseFiles("testdata/page.html")
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := reference.Execute(&want, map[string]any{"Results": all, "Tally": tally(all)}); err != nil {
		t.Fatal(err)
	}
	// The template has empty lines.
	lines := func(text string) []string {
		return strings.FieldsFunc(strings.ReplaceAll(text, "&#43;", "+"), func(r rune) bool { return r == '\n' })
	}
	got, wanted := lines(string(HTML(all))), lines(want.String())
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || got[i] != wanted[i] {
			t.Fatalf("line %d:\n%s\nwant\n%s", i, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), strings.Join(wanted[min(i, len(wanted)):min(i+1, len(wanted))], ""))
		}
	}
}

func TestTimelinePlacesFaultsAndRequests(t *testing.T) {
	tl := newTimeline(results()[1].History)
	second := width / 5
	if tl.Fault.X != left+second || tl.Fault.W != 2*second {
		t.Errorf("fault in the timeline = %v, want one from the first to the third second", tl.Fault)
	}
	if len(tl.Rows) != 2 || tl.Rows[0].Name != "subject get" || len(tl.Rows[0].Marks) != 2 {
		t.Errorf("rows = %+v, want 2, with 2 marks of the subject's get in the first", tl.Rows)
	}
	if m := tl.Rows[0].Marks[1]; m.Class != "refused" || m.X != left+2*second {
		t.Errorf("mark of the refused request = %+v, want class refused at the third second", m)
	}
	if newTimeline(nil) != nil || newTimeline(&drill.History{}) != nil {
		t.Error("newTimeline without a history is not nil, want nil")
	}
}

// The page is usable on small and dark screens and without distinguishing red from green.
func TestPageIsAccessible(t *testing.T) {
	text := string(HTML(results()))
	for _, want := range []string{
		`name="viewport"`, "prefers-color-scheme: dark", "@media (max-width: 600px)", "overflow-x: auto",
		"bystander watch: 1× 200", // as text, for readers who cannot see the picture
		"10 ms", "200 ms", `id="stripes"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q, want it", want)
		}
	}
	if strings.Contains(text, "0.00 s") || strings.Contains(text, "0.01 s") {
		t.Error("the page has the duration 0.00 s or 0.01 s, want ms")
	}
}

func TestMarks(t *testing.T) {
	at := func(m time.Time) float64 { return m.Sub(began).Seconds() * 100 }
	for name, c := range map[string]struct {
		request drill.Request
		want    []mark
	}{
		"a fast one is a mark": {
			drill.Request{Verb: "get", Start: began, Took: time.Millisecond, Code: 200},
			[]mark{{span: span{X: 0, W: markWidth}, Class: "ok"}},
		},
		"one that waited succeeds at its end only": {
			drill.Request{Verb: "get", Start: began, Took: 2 * time.Second, Code: 200},
			[]mark{{span: span{X: 0, W: 200}, Class: "wait"}, {span: span{X: 200 - markWidth, W: markWidth}, Class: "ok"}},
		},
		"a watch is well as long as it is open": {
			drill.Request{Verb: "watch", Start: began, Took: 2 * time.Second, Code: 200},
			[]mark{{span: span{X: 0, W: 200}, Class: "ok"}},
		},
		"until it breaks": {
			drill.Request{Verb: "watch", Start: began, Took: 2 * time.Second, Code: 200, Failure: "broken off"},
			[]mark{{span: span{X: 0, W: 200}, Class: "ok"}, {span: span{X: 200 - markWidth, W: markWidth}, Class: "lost"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := marksOf(c.request, at)
			if len(got) != len(c.want) {
				t.Fatalf("marksOf = %+v, want %+v", got, c.want)
			}
			for i, m := range got {
				if m.span != c.want[i].span || m.Class != c.want[i].Class {
					t.Errorf("mark %d is %+v, want %+v", i, m, c.want[i])
				}
			}
		})
	}
}
