package known

import (
	"slices"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	found := []Difference{{Question: "Pod: create", Field: "code"}, {Question: "Pod: delete", Field: "warning.0"}}
	for name, c := range map[string]struct {
		list        []Entry
		unexplained []Difference
		idle        []string
	}{
		"nothing is listed": {unexplained: found},
		"all is listed": {list: []Entry{
			{Questions: []string{"Pod: create"}, Fields: []string{"code"}, Why: "w"},
			{Questions: []string{"Pod: .*"}, Fields: []string{`warning\.\d`}, Why: "w"}}},
		"a pattern is of the whole name": {
			list:        []Entry{{Questions: []string{"Pod"}, Fields: []string{"code"}, Why: "w"}},
			unexplained: found, idle: []string{"Pod (w)", "code (w)"}},
		"a question and a field of one entry explain nothing where they do not meet": {
			list:        []Entry{{Questions: []string{"Pod: create"}, Fields: []string{`warning\.0`}, Why: "w"}},
			unexplained: found, idle: []string{"Pod: create (w)", `warning\.0 (w)`}},
		"one of two questions and one of two fields is of no use": {
			list:        []Entry{{Questions: []string{"Pod: create", "Pod: list"}, Fields: []string{"code", "body"}, Why: "w"}},
			unexplained: found[1:], idle: []string{"Pod: list (w)", "body (w)"}},
		"what comes and goes is not missed": {
			list:        []Entry{{Questions: []string{"Pod: create", "Pod: list"}, Fields: []string{"code", "body"}, Why: "w", Sometimes: true}},
			unexplained: found[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.list {
				if err := c.list[i].compile(); err != nil {
					t.Fatal(err)
				}
			}
			unexplained, idle := Explain(found, c.list)
			if !slices.Equal(unexplained, c.unexplained) {
				t.Errorf("unexplained: got %v, want %v", unexplained, c.unexplained)
			}
			if !slices.Equal(idle, c.idle) {
				t.Errorf("idle: got %v, want %v", idle, c.idle)
			}
		})
	}
}

func TestWhatIsNotAnExplanation(t *testing.T) {
	for name, c := range map[string]struct {
		entry Entry
		want  string
	}{
		"no reason":                  {Entry{Questions: []string{"a"}, Fields: []string{"b"}}, "without a reason"},
		"no questions":               {Entry{Fields: []string{"b"}, Why: "w"}, "no questions"},
		"no fields":                  {Entry{Questions: []string{"a"}, Why: "w"}, "no fields"},
		"alternatives":               {Entry{Questions: []string{"a|b"}, Fields: []string{"b"}, Why: "w"}, "alternative"},
		"alternatives in brackets":   {Entry{Questions: []string{"a"}, Fields: []string{`x(a|b)`}, Why: "w"}, "alternative"},
		"after an escaped backslash": {Entry{Questions: []string{"a"}, Fields: []string{`a\\|b`}, Why: "w"}, "alternative"},
		"no regular expression":      {Entry{Questions: []string{"a"}, Fields: []string{"("}, Why: "w"}, "missing closing"},
		"an escaped bar":             {Entry{Questions: []string{"a"}, Fields: []string{`a\|b`}, Why: "w"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.entry.compile()
			if got := err != nil; got != (c.want != "") || got && !strings.Contains(err.Error(), c.want) {
				t.Errorf("compile error = %v, want one with %q", err, c.want)
			}
		})
	}
}
