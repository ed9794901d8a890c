package rights

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	may, mayNot := answer{Code: 200}, answer{Code: 403, Reason: "Forbidden", Message: "m"}
	for name, c := range map[string]struct {
		ours, theirs answer
		fields       string
	}{
		"the same":                         {mayNot, mayNot, ""},
		"allowed here alone":               {may, mayNot, "allowed here"},
		"not found here and refused there": {answer{Code: 404}, mayNot, "allowed here"},
		"refused here alone":               {mayNot, may, "refused here"},
		"no credential here":               {answer{Code: 401}, may, "refused here"},
		"refused with another message":     {answer{Code: 403, Reason: "Forbidden", Message: "n"}, mayNot, "message"},
		"refused with another reason":      {answer{Code: 403, Reason: "Other", Message: "m"}, mayNot, "reason"},
		"401 and 403":                      {answer{Code: 401, Reason: "Unauthorized"}, mayNot, "code"},
		"another success":                  {answer{Code: 201}, may, "code"},
		"a rule more and a rule less":      {answer{Code: 201, Lines: []string{"a", "b"}}, answer{Code: 201, Lines: []string{"b", "c"}}, "only here: a, not here: c"},
	} {
		t.Run(name, func(t *testing.T) {
			var fields []string
			for _, d := range c.ours.compare("q", c.theirs) {
				fields = append(fields, d.Field)
			}
			if got := strings.Join(fields, ", "); got != c.fields {
				t.Errorf("fields that differ = %q, want %q", got, c.fields)
			}
		})
	}
}

// A question or a persona that only one recording has is a difference.
func TestCompareWhatWasNotAsked(t *testing.T) {
	ours := recording{Personas: map[string]answers{"a": {"get": {Code: 200}, "list": {Code: 200}}}}
	theirs := recording{Personas: map[string]answers{"a": {"get": {Code: 200}}, "b": {"get": {Code: 403}}}}
	found := ours.compare(theirs)
	var got []string
	for _, d := range found {
		got = append(got, d.Question+" "+d.Field)
	}
	if want := []string{"a: list unasked", "b: get unasked"}; !reflect.DeepEqual(got, want) {
		t.Errorf("differences = %q, want %q", got, want)
	}
}

func TestARecordingIsReadAsItWasWritten(t *testing.T) {
	want := recording{
		Version:   "v1",
		Resources: []resource{{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true, Verbs: []string{"get"}, Below: []resource{{Version: "v1", Name: "log", Kind: "Pod", Verbs: []string{"get"}}}}},
		Personas: map[string]answers{
			// The two responses differ only in their lines.
			"a": {"get": {Code: 200}, "rules": {Code: 201, Lines: []string{"x"}}},
			"b": {"get": {Code: 403, Reason: "Forbidden", Message: "m"}, "rules": {Code: 201, Lines: []string{"y"}}},
			"c": {"rules": {Code: 201, Lines: []string{"y"}}},
		},
		Scenarios: answers{"s": {Code: 404}},
	}
	file := filepath.Join(t.TempDir(), "recording")
	if err := want.write(file); err != nil {
		t.Fatal(err)
	}
	got, err := readRecording(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("recording after a round trip = %+v, want %+v", got, want)
	}
}

func TestRefusalsAreTheSameForEverybody(t *testing.T) {
	a := answer{Code: 403, Message: "roles \"x\" is forbidden: user \"ada\" (groups=[\"g\"]) is attempting to grant RBAC permissions not currently held:\n{Verbs:[\"list\" \"get\"]}\n{Verbs:[\"*\"]}"}
	got := a.about("ada")
	want := `roles "x" is forbidden: user "{user}" (groups=["g"]) is attempting to grant RBAC permissions not currently held:`
	if got.Message != want {
		t.Errorf("message = %q, want %q", got.Message, want)
	}
	if lines := fmt.Sprint(got.Lines); lines != `[{Verbs:["*"]} {Verbs:["get" "list"]}]` {
		t.Errorf("lines = %s, want the verbs sorted", lines)
	}
}

// Every persona can be distinguished: no two have the same name, user and groups.
func TestPersonas(t *testing.T) {
	all, err := personas()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, p := range all {
		key := fmt.Sprint(p.User, p.Groups, p.Impersonate, p.Few)
		if other, twice := seen[key]; twice {
			t.Errorf("persona %s equals %s, want them different", p.Name, other)
		}
		seen[key] = p.Name
	}
}

// Every write that all personas send is a dry run: the order must not matter.
func TestRightsQueriesAreDryRuns(t *testing.T) {
	theirs, err := readRecording(recorded)
	if err != nil {
		t.Fatal(err)
	}
	all, err := personas()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		questions, err := w.questions(theirs.Resources, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range questions {
			write := q.Method != "GET" && !strings.HasPrefix(q.Name, "path ") && q.Lines == nil
			if write && !strings.Contains(q.Path, "dryRun=All") {
				t.Errorf("%s: %s %s is not a dry run, want dryRun=All", q.Name, q.Method, q.Path)
			}
		}
	}
}
