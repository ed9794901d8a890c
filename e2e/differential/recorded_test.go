package differential

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"portico.dev/internal/httpengine/enginetest"
)

const recordedFile = "testdata/recorded.jsonl.zst"

// The responses of a front door are a kube-apiserver's, except for the known differences. A server of the flag -left is
// compared with the same recording.
func TestRecordedFacts(t *testing.T) {
	if *record != "" {
		makeRecording(t, *record)
		return
	}
	was, err := readRecording(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]map[string]string{}
	for _, a := range was.Answers {
		said[a.Step] = a.Says
	}
	right := make([]map[string]string, len(asked.steps))
	for i, s := range asked.steps {
		if right[i] = said[s.Name]; right[i] == nil {
			t.Errorf("%s: no recorded response of a kube-apiserver, want one; see e2e/differential/README.md", s.Name)
		}
		delete(said, s.Name)
	}
	for name := range said {
		t.Errorf("%s is recorded without a step, want one", name)
	}
	var list []known
	if ours {
		read(t, "testdata/known.yaml", &list)
		list = slices.DeleteFunc(list, func(k known) bool { return k.Engine != "" && k.Engine != string(enginetest.HTTP(t)) })
	} else if *knownFile != "" {
		read(t, *knownFile, &list)
	}
	judge(t, compare(asked.steps, asked.left, right), list)
	t.Logf("held against kube-apiserver %s", was.Server.Version)
}

// makeRecording stores the responses of the right server.
func makeRecording(t *testing.T, file string) {
	r := recording{}
	for i, s := range asked.steps {
		r.Answers = append(r.Answers, recordedAnswer{s.Name, asked.right[i]})
		if s.Name == "which version" {
			r.Server.Version = strings.Trim(asked.right[i]["body.gitVersion"], `"`)
			r.Answers[i].Says = map[string]string{"code": asked.right[i]["code"]} // the rest is another program's
		}
	}
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsNotExplained(t *testing.T) {
	all := []step{{Name: "one"}, {Name: "two"}}
	left := []map[string]string{{"code": "200", "body.a[0].b": "1", "same": "x"}, {"code": "200"}}
	right := []map[string]string{{"code": "200", "body.a[0].b": "2", "same": "x"}, {"code": "404", "header.Allow": "GET"}}
	found := compare(all, left, right)
	if got, want := fmt.Sprint(found), fmt.Sprint([]difference{
		{"one", "body.a[0].b", "1", "2"}, {"two", "code", "200", "404"}, {"two", "header.Allow", nothing, "GET"},
	}); got != want {
		t.Fatalf("compare = %s, want %s", got, want)
	}
	on := func(step string, fields ...string) known {
		return known{Steps: []string{step}, Fields: fields, Why: "x"}
	}
	says := func(step, field, left string) known {
		return known{Steps: []string{step}, Left: map[string]string{field: left}, Why: "x"}
	}
	tests := map[string]struct {
		list              []known
		unexplained, idle int
	}{
		"nothing is known":                  {nil, 3, 0},
		"all is known":                      {[]known{on("one", "body.a[0].*"), on("two", "code", "header.*")}, 0, 0},
		"known of another request":          {[]known{on("one", "code")}, 3, 2},
		"an index is no class of a pattern": {[]known{on("one", "body.a[012].b")}, 3, 2},
		"one field of two":                  {[]known{on("two", "header.*")}, 2, 0},
		"one of its fields does not differ": {[]known{on("two", "header.*", "body.*")}, 2, 1},
		"one of its steps does not differ":  {[]known{{Steps: []string{"two", "three"}, Fields: []string{"code"}, Why: "x"}}, 2, 1},
		"what the left server says":         {[]known{says("two", "code", "2*")}, 2, 0},
		"the left server says another":      {[]known{says("two", "code", "400")}, 3, 2},
		"the left server says nothing":      {[]known{says("two", "header.*", nothing)}, 2, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			unexplained, idle := explain(found, tt.list)
			if len(unexplained) != tt.unexplained || len(idle) != tt.idle {
				t.Errorf("explain = unexplained %v, idle %q; want %d and %d", unexplained, idle, tt.unexplained, tt.idle)
			}
		})
	}
}

func TestEntriesThatSayTooLittle(t *testing.T) {
	tests := map[string]known{
		"no reason":   {Steps: []string{"one"}, Fields: []string{"code"}},
		"no step":     {Fields: []string{"code"}, Why: "x"},
		"no field":    {Steps: []string{"one"}, Why: "x"},
		"every field": {Steps: []string{"one"}, Fields: []string{"**"}, Why: "x"},
	}
	for name, k := range tests {
		t.Run(name, func(t *testing.T) {
			if k.fault() == "" {
				t.Errorf("fault of %+v is empty, want one", k)
			}
		})
	}
	if fault := (known{Steps: []string{"*"}, Left: map[string]string{"code": "400"}, Why: "x"}).fault(); fault != "" {
		t.Errorf("fault of a valid entry = %s, want none", fault)
	}
}
