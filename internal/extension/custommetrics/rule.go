package custommetrics

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"
)

// Rule makes metrics of some series.
type Rule struct {
	// Line is where the rule begins in its file.
	Line int
	// SeriesQuery finds the series: a selector for Prometheus's /api/v1/series.
	SeriesQuery string
	// Window is the longest range that the query looks at, zero when it looks at the moment only.
	Window time.Duration
	// Namespaced external rules answer from series of the request's namespace only.
	Namespaced bool

	filters  []filter
	matches  *regexp.Regexp
	as       string
	query    *formula
	mapping  mapping
	external bool
}

type filter struct {
	re       *regexp.Regexp
	positive bool
}

// draft is a rule as it was read, before it is known to make sense.
type draft struct {
	node, matchesNode, asNode, queryNode   *yaml.Node
	field                                  string
	external                               bool
	seriesQuery, metricsQuery, matches, as string
	filters                                []filter
	mapping                                mapping
}

// at is the node to blame: the field's own, or the rule's where the field is missing.
func (d draft) at(n *yaml.Node) *yaml.Node {
	if n != nil {
		return n
	}
	return d.node
}

func (w *walker) compile(d draft) *Rule {
	r := &Rule{
		Line: d.node.Line + w.offset, SeriesQuery: d.seriesQuery, Namespaced: d.mapping.namespaced,
		filters: d.filters, as: d.as, mapping: d.mapping, external: d.external,
	}
	if d.seriesQuery == "" {
		w.complain(d.node, join(d.field, "seriesQuery"), `is required: want a series selector such as '{__name__=~"^http_.*",pod!=""}'`)
	}
	if !d.external && d.mapping.template == nil && len(d.mapping.overrides) == 0 && len(w.problems) == 0 {
		w.complain(d.node, join(d.field, "resources"), "is required: want overrides or a template, which say what labels name which objects")
	}
	w.compileName(r, d)
	w.compileQuery(r, d)
	return r
}

func (w *walker) compileName(r *Rule, d draft) {
	expression := d.matches
	if expression == "" {
		expression = ".*"
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		w.complain(d.at(d.matchesNode), join(d.field, "name.matches"), "want a regular expression: %v", err)
		return
	}
	r.matches = re
	if d.matches != "" {
		r.filters = append(r.filters, filter{re, true})
	}
	if r.as != "" {
		w.checkReferences(r, d)
		return
	}
	switch groups := re.NumSubexp(); groups {
	case 0:
		r.as = "$0"
	case 1:
		r.as = "$1"
	default:
		w.complain(d.at(d.matchesNode), join(d.field, "name.as"), "is required, because matches has %d groups: want a name such as ${1}_${2}", groups)
	}
}

var templateReference = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// checkReferences finds references to groups that are not there. Go expands them to nothing, so that $1_per_second,
// which asks for a group of that name, would give every metric an empty name.
func (w *walker) checkReferences(r *Rule, d draft) {
	for _, m := range templateReference.FindAllStringSubmatch(strings.ReplaceAll(r.as, "$$", ""), -1) {
		name := m[1] + m[2]
		number, err := strconv.Atoi(name)
		if r.matches.SubexpIndex(name) >= 0 || err == nil && number <= r.matches.NumSubexp() {
			continue
		}
		w.complain(d.at(d.asNode), join(d.field, "name.as"), "refers to group %q, which matches does not have; write ${1} before letters, digits and underscores", name)
	}
}

func (w *walker) compileQuery(r *Rule, d draft) {
	field := join(d.field, "metricsQuery")
	if d.metricsQuery == "" {
		w.complain(d.node, field, "is required: want a query such as 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'")
		return
	}
	t, err := parseTemplate(d.metricsQuery)
	if err != nil {
		w.complain(d.queryNode, field, "want a Go template with the delimiters << and >>: %v", err)
		return
	}
	r.query = t
	r.Window = window(d.metricsQuery)
	trial := Target{Series: "up", Label: "pod", Names: []string{"p"}, NamespaceLabel: "namespace", Namespace: "n", Selector: labels.Everything()}
	if _, err := r.Query(trial); err != nil {
		w.complain(d.queryNode, field, "want a template of .Series, .LabelMatchers, .LabelValuesByName, .GroupBy and .GroupBySlice: %v", err)
	}
}

var rangeSelector = regexp.MustCompile(`\[\s*([0-9a-z]+)\s*(?::[^\]]*)?\]`)

func window(query string) (longest time.Duration) {
	for _, m := range rangeSelector.FindAllStringSubmatch(query, -1) {
		if d, err := model.ParseDuration(m[1]); err == nil {
			longest = max(longest, time.Duration(d))
		}
	}
	return longest
}

// MetricName is the name under which a series is served. It reports false for a series that the rule does not mean, or
// whose name the API could not carry.
func (r *Rule) MetricName(series string) (string, bool) {
	for _, f := range r.filters {
		if f.re.MatchString(series) != f.positive {
			return "", false
		}
	}
	match := r.matches.FindStringSubmatchIndex(series)
	if match == nil {
		return "", false
	}
	name := string(r.matches.ExpandString(nil, r.as, series, match))
	return name, name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/%\\;*? ")
}
