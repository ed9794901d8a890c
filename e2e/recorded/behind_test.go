package recorded

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"portico.dev/internal/drill"
)

// behind is what came of our programs beside and behind a real kube-apiserver.
type behind struct {
	KubeAPIServer   string   `json:"kubeAPIServer"`
	Date            string   `json:"date"`
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
}

type held struct {
	Verdict    string   `json:"verdict"`
	Detected   float64  `json:"detected"`
	Recovered  float64  `json:"recovered"`
	DidNotHold []string `json:"didNotHold"`
	Why        string   `json:"why"`
}

func TestBehindKubeAPIServer(t *testing.T) {
	var r behind
	if err := yaml.UnmarshalStrict(file(t, "../behind/result.yaml"), &r); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		t.Errorf("the date of the run: %v", err)
	}
	if !regexp.MustCompile(`(?m)^\s*(?:require )?k8s\.io/kubernetes ` + regexp.QuoteMeta(r.KubeAPIServer) + `\b`).Match(file(t, "../incumbent/go.mod")) {
		t.Errorf("the run was against %s, which is not what e2e/incumbent pins", r.KubeAPIServer)
	}
	for what, n := range map[string]int{"steps of the extension server": len(r.ExtensionServer), "diagnoses": len(r.Doctor), "scores": len(r.Scores)} {
		if n == 0 {
			t.Errorf("there are no %s", what)
		}
	}
	if len(r.Story) != 2 || r.Story[0].FrontDoor != "kube-apiserver" || r.Story[1].FrontDoor != "portico" {
		t.Errorf("the story is not told of both: %+v", r.Story)
	}
	page := string(file(t, "../../docs/incumbent.md"))
	for _, told := range append(slices.Clone(r.ExtensionServer), r.KubeAPIServer) {
		if !strings.Contains(page, told) {
			t.Errorf("docs/incumbent.md does not say %q", told)
		}
	}
	checkDrills(t, r.Drills, page)
}

// checkDrills: all drills are there, ours passed them, what the other did is explained, and the page has the same.
func checkDrills(t *testing.T, all []drilled, page string) {
	t.Helper()
	var names, want []string
	for _, d := range all {
		names = append(names, d.Drill)
		if d.Portico.Verdict != string(drill.Passed) {
			t.Errorf("%s: ours %s", d.Drill, d.Portico.Verdict)
		}
		switch theirs := d.KubeAPIServer; drill.Verdict(theirs.Verdict) {
		case drill.Passed:
		case drill.Failed:
			if len(theirs.DidNotHold) == 0 {
				t.Errorf("%s: failed, and nothing says what did not hold", d.Drill)
			}
		case drill.Skipped:
			if theirs.Why == "" {
				t.Errorf("%s: skipped without a reason", d.Drill)
			}
		default:
			t.Errorf("%s: kube-apiserver %q", d.Drill, theirs.Verdict)
		}
		if row := fmt.Sprintf("| `%s` | %s | %s |", d.Drill, d.Portico.Verdict, d.KubeAPIServer.Verdict); !strings.Contains(page, row) {
			t.Errorf("docs/incumbent.md has no row that begins %q", row)
		}
	}
	for _, d := range drill.All() {
		want = append(want, d.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("the drills are %q, want %q", names, want)
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
