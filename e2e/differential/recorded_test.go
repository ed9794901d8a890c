package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// record is what is known of one answer of a kube-apiserver, and from where.
type record struct {
	Step   string            `json:"step"`
	Source string            `json:"source"`
	Says   map[string]string `json:"says"`
}

// A front door answers as is written of kube-apiserver, but for what is known. A server that was given by -left is held
// against the same, and has nothing known.
func TestRecordedFacts(t *testing.T) {
	var records []record
	read(t, "testdata/recorded.yaml", &records)
	var list []known
	if ours {
		read(t, "testdata/known.yaml", &list)
	}
	byStep := map[string]map[string]string{}
	for i, s := range asked.steps {
		byStep[s.Name] = asked.left[i]
	}
	var found []difference
	for _, r := range records {
		fields, ok := byStep[r.Step]
		if !ok {
			t.Errorf("%s is recorded, and nobody asks it", r.Step)
			continue
		}
		if strings.TrimSpace(r.Source) == "" || r.Says["code"] == "" {
			t.Errorf("%s: recorded without a source or without a code", r.Step)
		}
		for _, place := range slices.Sorted(maps.Keys(r.Says)) {
			if got := said(fields, place); got != r.Says[place] {
				found = append(found, difference{r.Step, place, got, r.Says[place]})
			}
		}
	}
	unexplained, idle := explain(found, list)
	for _, d := range unexplained {
		t.Errorf("%s", d)
	}
	for _, k := range idle {
		t.Errorf("%s: %s is known to differ, and does not", k.Step, k.Field)
	}
	t.Logf("%d requests, %d of them recorded", len(asked.steps), len(records))
}

func TestWhatIsNotExplained(t *testing.T) {
	all := []step{{Name: "one"}, {Name: "two"}}
	left := []map[string]string{{"code": "200", "body.a[0].b": "1", "same": "x"}, {"code": "200"}}
	right := []map[string]string{{"code": "200", "body.a[0].b": "2", "same": "x"}, {"code": "404", "header.Allow": "GET"}}
	found := compare(all, left, right)
	if got, want := fmt.Sprint(found), fmt.Sprint([]difference{
		{"one", "body.a[0].b", "1", "2"}, {"two", "code", "200", "404"}, {"two", "header.Allow", nothing, "GET"},
	}); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	tests := map[string]struct {
		list              []known
		unexplained, idle int
	}{
		"nothing is known":                  {nil, 3, 0},
		"all is known":                      {[]known{{Step: "one", Field: "body.a[0].*"}, {Step: "two", Field: "*"}}, 0, 0},
		"known of another request":          {[]known{{Step: "one", Field: "code"}}, 3, 1},
		"an index is no class of a pattern": {[]known{{Step: "one", Field: "body.a[012].b"}}, 3, 1},
		"one field of two":                  {[]known{{Step: "two", Field: "header.*"}}, 2, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			unexplained, idle := explain(found, tt.list)
			if len(unexplained) != tt.unexplained || len(idle) != tt.idle {
				t.Errorf("unexplained %v, idle %v", unexplained, idle)
			}
		})
	}
}
