package custommetrics

import (
	"strings"
	"testing"
	"text/template"
)

// Every supported template must have the same result as in text/template, which prometheus-adapter uses.
func TestTemplatesMatchTextTemplate(t *testing.T) {
	values := map[string]string{"pod": "a|b", "namespace": "shop"}
	ours := queryParts("http_requests", []string{`pod=~"a|b"`}, values, []string{"pod", "container"})
	theirs := map[string]any(ours)
	for _, text := range []string{
		"", "plain", "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)", "<< .Series >>-<<- .GroupBy ->> x",
		`<<index .LabelValuesByName "pod">><<index .GroupBySlice 1>>`, "<<.LabelValuesByName.namespace>>[<<.LabelValuesByName.none>>]",
		`<<range $k, $v := .LabelValuesByName>><<$k>>="<<$v>>",<<end>>`, "<<range .GroupBySlice>><<.>>,<<$.Series>>;<<end>>",
		"<<range $i, $l := .GroupBySlice>><<if $i>>,<<end>><<$l>><<else>>none<<end>>", `<<if eq .Series "up">>a<<else if ne .GroupBy "">>b<<else>>c<<end>>`,
		"<<with .Series>><<.>><<end>><<with $x := .GroupBy>><<$x>><<end>>", `<<$n := .Series>><<$n>><<$n = "y">><<$n>>`,
		`<<printf "%s_%d" .Series 3>> <<.Series | printf "%q">> <<len .GroupBySlice>> <<not .Series>> <<print .GroupBy>>`,
		`<<if .LabelValuesByName>>some<<end>><</* a remark */>>`, `<<(index .LabelValuesByName "pod") | len>>`,
	} {
		t.Run(text, func(t *testing.T) {
			var want strings.Builder
			if err := template.Must(template.New("").Delims("<<", ">>").Parse(text)).Execute(&want, theirs); err != nil {
				t.Fatal(err)
			}
			f, err := parseTemplate(text)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := expand(f, ours); err != nil || got != strings.ReplaceAll(want.String(), "<no value>", "") {
				t.Errorf("got %q %v, want %q", got, err, want.String())
			}
		})
	}
}

func TestUnsupportedTemplatesAreRejected(t *testing.T) {
	ours := queryParts("s", nil, map[string]string{}, []string{"pod"})
	for text, want := range map[string]string{
		"<<.Serie>>":                "there is no .Serie; want one of .GroupBy, .GroupBySlice, .LabelMatchers, .LabelValuesByName, .Series",
		"<<.Series.X>>":             "s has no field X",
		"<<range .Series>>a<<end>>": "want .GroupBySlice or .LabelValuesByName",
		"<<index .GroupBySlice 7>>": "index 7 of a list of 1",
		"<<len 3>>":                 "len cannot be called with [3]",
		"<<.Series .GroupBy>>":      "is no function",
		`<<printf "%10000000d" 1>>`: "makes more than",
		`<<template "x">>`:          "cannot be used here",
		"<<html .Series>>":          `function "html" not defined`,
		"<<.Series":                 "unclosed action",
	} {
		f, err := parseTemplate(text)
		if err == nil {
			_, err = expand(f, ours)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want an error that contains %q", text, err, want)
		}
	}
}
