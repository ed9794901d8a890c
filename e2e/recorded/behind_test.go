package recorded

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"portico.dev/internal/tools/drill"
)

// behind is the recorded result of the programs in front of and behind a real kube-apiserver.
type behind struct {
	Parts map[string]struct {
		Date          string `json:"date"`
		KubeAPIServer string `json:"kubeAPIServer"`
	} `json:"parts"`
	ExtensionServer []string `json:"extensionServer"`
	Doctor          []struct {
		Way      string `json:"way"`
		Breakage string `json:"breakage"`
		Hop      string `json:"hop"`
	} `json:"doctor"`
	Scores []struct {
		Server     string `json:"server"`
		APIService string `json:"apiService"`
		Score      string `json:"score"`
	} `json:"scores"`
	Drills []drilled `json:"drills"`
	Story  []struct {
		FrontDoor    string  `json:"frontDoor"`
		Gone         float64 `json:"gone"`
		Waited       float64 `json:"waited"`
		Condition    string  `json:"condition"`
		AfterReturn  float64 `json:"afterReturn"`
		Get          string  `json:"get"`
		APIResources string  `json:"apiResources"`
	} `json:"story"`
}

type drilled struct {
	Drill         string `json:"drill"`
	KubeAPIServer held   `json:"kubeAPIServer"`
	Portico       held   `json:"portico"`
	Gateway       held   `json:"gateway"`
}

type held struct {
	Verdict    string   `json:"verdict"`
	Detected   float64  `json:"detected"`
	Recovered  float64  `json:"recovered"`
	DidNotHold []string `json:"didNotHold"`
	Why        string   `json:"why"`
}

// times returns the seconds in the page's format: a dash for a missing value, one for two missing values.
func (h held) times() string {
	seconds := func(s float64) string {
		if s == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f", s)
	}
	if h.Detected+h.Recovered == 0 {
		return "-"
	}
	return seconds(h.Detected) + ", " + seconds(h.Recovered)
}

func TestBehindKubeAPIServer(t *testing.T) {
	var r behind
	if err := yaml.UnmarshalStrict(file(t, "../behind/result.yaml"), &r); err != nil {
		t.Fatal(err)
	}
	page := string(file(t, "../../docs/incumbent.md"))
	gateway := string(file(t, "../../docs/gateway.md"))
	checkParts(t, r, page, gateway)
	for _, told := range r.ExtensionServer {
		if !strings.Contains(page, "\n- "+told+"\n") {
			t.Errorf("docs/incumbent.md has no line %q, want it", told)
		}
	}
	if got := strings.Count(section(page, "The extension server behind it", "While the"), "\n- "); got != len(r.ExtensionServer) || got == 0 {
		t.Errorf("docs/incumbent.md lists %d steps of the extension server, want %d", got, len(r.ExtensionServer))
	}
	checkDoctor(t, r, page)
	checkScores(t, r, page)
	checkDrills(t, r.Drills, page)
	checkGateway(t, r.Drills, gateway)
	checkStory(t, r, page)
}

// parts are the names of all recorded parts. The parts of the front door have no kube-apiserver.
var parts = []string{
	"doctor over an external name", "doctor over endpoints", "doctor to an extserver without rights", "drills at gateway",
	"drills at kube-apiserver", "drills at portico", "extension server", "marks of extserver", "marks of sample-apiserver v0.37.2", "story at kube-apiserver",
	"story at portico",
}

// checkParts: all are there, of a day that the page names, and of the version that is pinned and that the page names.
func checkParts(t *testing.T, r behind, page, gateway string) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(r.Parts)); !slices.Equal(got, parts) {
		t.Errorf("the parts are %q, want %q", got, parts)
	}
	pinned := regexp.MustCompile(`(?m)^\s*(?:require )?k8s\.io/kubernetes (v\S+)`).FindSubmatch(file(t, "../incumbent/go.mod"))
	if pinned == nil {
		t.Fatal("e2e/incumbent/go.mod has no version of k8s.io/kubernetes, want one")
	}
	version := string(pinned[1])
	if !strings.Contains(page, version) {
		t.Errorf("docs/incumbent.md has no version %s, want it", version)
	}
	for name, part := range r.Parts {
		where := page
		if name == "drills at gateway" {
			where = gateway
		}
		if _, err := time.Parse(time.DateOnly, part.Date); err != nil || !strings.Contains(where, part.Date) {
			t.Errorf("%s: the page has no date %q, want the date of the record", name, part.Date)
		}
		if want := map[bool]string{false: version}[strings.HasSuffix(name, " portico")]; part.KubeAPIServer != want {
			t.Errorf("%s: made with kube-apiserver %q, want %q", name, part.KubeAPIServer, want)
		}
	}
}

// section returns the page's text between two markers.
func section(page, from, to string) string {
	_, rest, _ := strings.Cut(page, from)
	text, _, _ := strings.Cut(rest, to)
	return text
}

// checkDoctor: the page has the number of diagnoses and each diagnosed hop.
func checkDoctor(t *testing.T, r behind, page string) {
	t.Helper()
	text := section(page, "## The doctor", "\n## ")
	if count := fmt.Sprintf("%d diagnoses", len(r.Doctor)); !strings.Contains(text, count) {
		t.Errorf("docs/incumbent.md has no text %q, want it", count)
	}
	for _, d := range r.Doctor {
		if _, ok := r.Parts["doctor "+d.Way]; !ok {
			t.Errorf("diagnosis of %s, %s has no part, want one", d.Breakage, d.Way)
		}
		if d.Hop != "" && !strings.Contains(text, "| "+d.Hop+" |") {
			t.Errorf("docs/incumbent.md has no row of the hop %s, want one for %q", d.Hop, d.Breakage)
		}
	}
}

// checkScores: the page has a row for each score, and no further one.
func checkScores(t *testing.T, r behind, page string) {
	t.Helper()
	text := section(page, "| server | APIService | score |\n|---|---|---|\n", "\n\n")
	var want []string
	for _, s := range r.Scores {
		want = append(want, fmt.Sprintf("| %s | %s | %s |", s.Server, s.APIService, s.Score))
		if _, ok := r.Parts["marks of "+s.Server]; !ok {
			t.Errorf("score of %s, %s has no part, want one", s.Server, s.APIService)
		}
	}
	if got := strings.Split(text, "\n"); !slices.Equal(got, want) {
		t.Errorf("scores of docs/incumbent.md =\n%s\nwant\n%s", text, strings.Join(want, "\n"))
	}
}

// checkStory: the page has the same seconds and text.
func checkStory(t *testing.T, r behind, page string) {
	t.Helper()
	if len(r.Story) != 2 || r.Story[0].FrontDoor != "kube-apiserver" || r.Story[1].FrontDoor != "portico" {
		t.Fatalf("story = %+v, want kube-apiserver and portico", r.Story)
	}
	theirs, ours := r.Story[0], r.Story[1]
	cell := func(text string) string { return "`" + strings.TrimSpace(text) + "`" }
	for _, row := range []string{
		fmt.Sprintf("| the namespace | gone after %.1f s | there for as long as the server was dead, which was %.0f s; gone %.0f s after its return |", ours.Gone, theirs.Waited, theirs.AfterReturn),
		fmt.Sprintf("| what the namespace says | | %s |", cell(theirs.Condition)),
		fmt.Sprintf("| `kubectl get readings` | %s | %s |", cell(ours.Get), cell(theirs.Get)),
		fmt.Sprintf("| its kind in `kubectl api-resources` | %s | %s |", ours.APIResources, theirs.APIResources),
	} {
		if !strings.Contains(page, row+"\n") {
			t.Errorf("docs/incumbent.md has no row %q, want it", row)
		}
	}
}

// checkDrills: all drills are recorded, the front door passed them, each failure of kube-apiserver has an explanation, and the
// page has the same results.
func checkDrills(t *testing.T, all []drilled, page string) {
	t.Helper()
	var names, want []string
	for _, d := range all {
		names = append(names, d.Drill)
		if d.Portico.Verdict != string(drill.Passed) {
			t.Errorf("drill %s: verdict of the front door = %s, want passed", d.Drill, d.Portico.Verdict)
		}
		switch theirs := d.KubeAPIServer; drill.Verdict(theirs.Verdict) {
		case drill.Passed:
		case drill.Failed:
			if len(theirs.DidNotHold) == 0 {
				t.Errorf("drill %s failed without unmet expectations, want some", d.Drill)
			}
		case drill.Skipped:
			if theirs.Why == "" {
				t.Errorf("drill %s was skipped without a reason, want one", d.Drill)
			}
		default:
			t.Errorf("drill %s: verdict of kube-apiserver = %q, want passed, failed or skipped", d.Drill, theirs.Verdict)
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |", d.Drill, d.Portico.Verdict, d.KubeAPIServer.Verdict, d.Portico.times(), d.KubeAPIServer.times())
		if !strings.Contains(page, row) {
			t.Errorf("docs/incumbent.md has no row that begins with %q, want one", row)
		}
	}
	count := func(v drill.Verdict) (n int) {
		for _, d := range all {
			if d.KubeAPIServer.Verdict == string(v) {
				n++
			}
		}
		return n
	}
	if line := fmt.Sprintf("This front door passed all %d. kube-apiserver passed %d and failed %d.", len(all), count(drill.Passed), count(drill.Failed)); !strings.Contains(page, line) {
		t.Errorf("docs/incumbent.md has no text %q, want it", line)
	}
	for _, d := range drill.All() {
		if !d.Cluster { // a kube-apiserver has none
			want = append(want, d.Name)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("the drills are %q, want %q", names, want)
	}
}

// checkGateway: all drills ran with a gateway, no drill that passes without it fails with it, each failure has an explanation,
// and the page has the same results.
func checkGateway(t *testing.T, all []drilled, page string) {
	t.Helper()
	alone, with := 0, 0
	for _, d := range all {
		if d.KubeAPIServer.Verdict == string(drill.Passed) {
			alone++
		}
		switch drill.Verdict(d.Gateway.Verdict) {
		case drill.Passed:
			with++
		case drill.Failed:
			if len(d.Gateway.DidNotHold) == 0 || d.KubeAPIServer.Verdict == string(drill.Passed) {
				t.Errorf("drill %s: %s with kube-apiserver, failed with a gateway: %q; want no new failure",
					d.Drill, d.KubeAPIServer.Verdict, d.Gateway.DidNotHold)
			}
		case drill.Skipped:
			if d.Gateway.Why == "" {
				t.Errorf("drill %s was skipped without a reason, want one", d.Drill)
			}
		default:
			t.Errorf("drill %s: verdict with a gateway = %q, want passed, failed or skipped", d.Drill, d.Gateway.Verdict)
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |", d.Drill, d.KubeAPIServer.Verdict, d.Gateway.Verdict, d.KubeAPIServer.times(), d.Gateway.times())
		if !strings.Contains(page, row) {
			t.Errorf("docs/gateway.md has no row that begins with %q, want one", row)
		}
	}
	if line := fmt.Sprintf("kube-apiserver passes %d of %d drills alone, and %d with a gateway.", alone, len(all), with); !strings.Contains(page, line) {
		t.Errorf("docs/gateway.md has no text %q, want it", line)
	}
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
