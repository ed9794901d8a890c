package custommetrics

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rule derives metrics from series.
type Rule struct {
	// Line is the line in the file at which the rule begins.
	Line int
	// SeriesQuery is the selector for Prometheus's /api/v1/series.
	SeriesQuery string
	// Window is the longest range in the query, zero for an instantaneous query.
	Window time.Duration
	// Namespaced restricts an external rule to series of the request's namespace.
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

// draft is a parsed rule before validation.
type draft struct {
	node, matchesNode, asNode, queryNode   *yaml.Node
	field                                  string
	external                               bool
	seriesQuery, metricsQuery, matches, as string
	filters                                []filter
	mapping                                mapping
}

// at returns the node for an error: the node of the field, or the node of the rule if the field is missing.
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
	expression := cmp.Or(d.matches, ".*")
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

// checkReferences reports references to groups that do not exist. Go expands them to an empty string, so $1_per_second, which
// refers to a group of that name, would give every metric an empty name.
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

// MetricName returns the metric name for a series. It returns false if the rule does not select the series, or if the API
// cannot represent the name.
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

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// mapping maps labels to resources.
type mapping struct {
	template   *formula
	overrides  []override
	namespaced bool // for external rules: a request only sees series of its namespace
}

type override struct {
	label           string
	group, resource string
}

// Described returns the resources that overrides name: each name as written, and its probable plural, because the API is not
// consulted. It does not include resources that label templates may name.
func (c *Rules) Described() []schema.GroupResource {
	var out []schema.GroupResource
	for _, rule := range slices.Concat(c.Rules, c.ExternalRules) {
		for _, o := range rule.mapping.overrides {
			plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: o.group, Kind: o.resource})
			out = append(out, schema.GroupResource{Group: o.group, Resource: o.resource}, plural.GroupResource())
		}
	}
	return out
}

// labelParts returns the parts for a label template.
func labelParts(group, resource string) parts { return parts{"Group": group, "Resource": resource} }

var groupInLabel = strings.NewReplacer(".", "_", "-", "_")

func (w *walker) mapping(to *mapping, external bool) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		readers := map[string]func(*yaml.Node, string){
			"template":  w.labelTemplate(&to.template),
			"overrides": w.overrides(&to.overrides),
		}
		// prometheus-adapter accepts this field in every rule and uses it in external ones.
		var ignored bool
		readers["namespaced"] = w.flag(&ignored)
		if external {
			readers["namespaced"] = w.flag(&to.namespaced)
		}
		w.object(n, field, readers)
	}
}

func (w *walker) labelTemplate(to **formula) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		var text string
		w.text(&text)(n, field)
		if text == "" {
			return
		}
		t, err := parseTemplate(text)
		if err != nil {
			w.complain(n, field, "want a Go template with the delimiters << and >>: %v", err)
			return
		}
		one, err := expand(t, labelParts("apps", "deployment"))
		if err != nil {
			w.complain(n, field, "want a template of .Group and .Resource: %v", err)
			return
		}
		if other, _ := expand(t, labelParts("apps", "replicaset")); other == one || !labelName.MatchString(one) {
			w.complain(n, field, "want a template that makes a label of each .Resource; for deployments.apps it makes %q", one)
			return
		}
		*to = t
	}
}

func (w *walker) overrides(to *[]override) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		entries := w.entries(n, field, "a mapping of labels to resources")
		if len(entries) > maxOverrides {
			w.complain(n, field, "has %d entries, more than %d", len(entries), maxOverrides)
			return
		}
		for _, e := range entries {
			o := override{label: e.key.Value}
			at := join(field, e.key.Value)
			if !labelName.MatchString(o.label) {
				w.complain(e.key, at, "want the name of a Prometheus label: letters, digits and underscores")
			}
			w.object(e.value, at, map[string]func(*yaml.Node, string){"group": w.text(&o.group), "resource": w.text(&o.resource)})
			if o.resource == "" {
				w.complain(e.value, at, "want {resource: NAME}, with group: GROUP for resources outside the core group")
			}
			*to = append(*to, o)
		}
	}
}

// Labels maps labels of a rule's series to resources and vice versa, for one catalogue.
type Labels struct {
	resources map[string]Resource
	labels    map[schema.GroupResource]string
	// Unknown lists resources that the rule names and the catalogue does not contain.
	Unknown []schema.GroupResource
}

// Labels returns the mapping for a catalogue. Overrides take precedence over the template. If several resources have the same
// label, the first one gets it.
func (r *Rule) Labels(c *Catalogue) Labels { return r.mapping.labels(c) }

func (m mapping) labels(c *Catalogue) Labels {
	l := Labels{resources: map[string]Resource{}, labels: map[schema.GroupResource]string{}}
	for _, o := range m.overrides {
		if resource, ok := c.Lookup(o.group, o.resource); ok {
			l.add(o.label, resource)
		} else {
			l.Unknown = append(l.Unknown, schema.GroupResource{Group: o.group, Resource: o.resource})
		}
	}
	if m.template == nil {
		return l
	}
	for _, resource := range c.All() {
		// The template was validated at load time, so an error is due to an unusual resource name.
		if label, err := expand(m.template, labelParts(groupInLabel.Replace(resource.Group), resource.Singular)); err == nil && labelName.MatchString(label) {
			l.add(label, resource)
		}
	}
	return l
}

func (l Labels) add(label string, r Resource) {
	if _, taken := l.resources[label]; taken {
		return
	}
	if _, taken := l.labels[r.GroupResource()]; taken {
		return
	}
	l.resources[label] = r
	l.labels[r.GroupResource()] = label
}

// Lookup returns the label that contains names of a resource.
func (l Labels) Lookup(r schema.GroupResource) (string, bool) {
	label, ok := l.labels[r]
	return label, ok
}

// Described returns the resources that a series with these labels describes.
func (l Labels) Described(series []string) []Resource {
	var out []Resource
	for _, label := range series {
		if r, ok := l.resources[label]; ok {
			out = append(out, r)
		}
	}
	return out
}

// NamespaceLabel returns the label that contains namespaces.
func (l Labels) NamespaceLabel() (string, bool) { return l.Lookup(namespaces) }
