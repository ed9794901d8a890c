//go:build incumbent

package behind

import (
	"reflect"
	"testing"
)

// A run of some tests replaces their results, and keeps the remaining ones with their date and version.
func TestAPartialRunKeepsTheRest(t *testing.T) {
	onlyDrillsAre(t, "")
	was := made{Date: "2026-01-02", KubeAPIServer: "v1.37.0"}
	old := &record{
		Parts:           map[string]made{serverPart: was, marksOf + "a": was, marksOf + "b": was, drillsAt + theirs: was, drillsAt + ours: {Date: was.Date}},
		ExtensionServer: []string{"serves"}, Scores: []scored{{"a", "v1.a", "1/2"}, {"a", "v1.gone", "2/2"}, {"b", "v1.b", "1/1"}},
		Drills: []drilled{{"refuse", held{Verdict: "failed"}, held{Verdict: "passed"}, held{}}, {"gone", held{}, held{Verdict: "passed"}, held{}}},
	}
	r := &record{Parts: map[string]made{}}
	r.version("v1.37.1")
	r.scored("a", "v1.a", "2/2")
	r.drilled(ours, drilled{Drill: "refuse", Portico: held{Verdict: "skipped"}})
	r.keep(old)
	if want := []scored{{"a", "v1.a", "2/2"}, {"b", "v1.b", "1/1"}}; !reflect.DeepEqual(r.Scores, want) {
		t.Errorf("scores %v, want %v", r.Scores, want)
	}
	if want := []drilled{{"refuse", held{Verdict: "failed"}, held{Verdict: "skipped"}, held{}}}; !reflect.DeepEqual(r.Drills, want) {
		t.Errorf("drills %v, want %v", r.Drills, want)
	}
	if len(r.ExtensionServer) != 1 || r.Parts[serverPart] != was || r.Parts[marksOf+"b"] != was || r.Parts[drillsAt+theirs] != was {
		t.Errorf("parts outside the run = %v %v, want no change", r.ExtensionServer, r.Parts)
	}
	if now := r.Parts[marksOf+"a"]; now.KubeAPIServer != "v1.37.1" || now.Date == was.Date {
		t.Errorf("part of the run = %v, want v1.37.1 and a new date", now)
	}
	if now := r.Parts[drillsAt+ours]; now.KubeAPIServer != "" || now.Date == was.Date {
		t.Errorf("part of the front door = %v, want no kube-apiserver and a new date", now)
	}
}

// A run of some drills keeps the results of the remaining ones, and the date of the last complete run.
func TestARunOfSomeDrillsKeepsTheOthers(t *testing.T) {
	was := made{Date: "2026-01-02", KubeAPIServer: "v1.37.0"}
	failed, passed := held{Verdict: "failed"}, held{Verdict: "passed"}
	old := &record{Parts: map[string]made{drillsAt + theirs: was}, Drills: []drilled{{"refuse", failed, passed, passed}, {"hang", failed, passed, passed}}}
	r := &record{Parts: map[string]made{}}
	onlyDrillsAre(t, "hang")
	r.drilled(theirs, drilled{Drill: "hang", KubeAPIServer: passed})
	r.keep(old)
	if want := []drilled{{"refuse", failed, passed, passed}, {"hang", passed, passed, passed}}; !reflect.DeepEqual(r.Drills, want) {
		t.Errorf("drills %v, want %v", r.Drills, want)
	}
	if got := r.Parts[drillsAt+theirs]; got != was {
		t.Errorf("part of all drills = %v, want %v", got, was)
	}
}

// onlyDrillsAre has the flag be something until the test ends.
func onlyDrillsAre(t *testing.T, names string) {
	was := *onlyDrills
	*onlyDrills = names
	t.Cleanup(func() { *onlyDrills = was })
}
