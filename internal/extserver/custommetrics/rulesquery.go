package custommetrics

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
)

// maxQuery limits the size of a query. It allows for several thousand names.
const maxQuery = 1 << 20

// ErrName reports a name that no object can have.
var ErrName = errors.New("not the name of an object")

// SelectorError reports a metric label selector that Prometheus does not support.
type SelectorError struct{ Text string }

func (e *SelectorError) Error() string { return "metric label selector: " + e.Text }

// Target is the subject of one query.
type Target struct {
	// Series is the series of the metric.
	Series string
	// Label is the label that contains object names, and Names are the names to query. Empty for external metrics.
	Label string
	Names []string
	// NamespaceLabel restricts the query to Namespace. Both are empty if the query is not restricted.
	NamespaceLabel, Namespace string
	// Selector selects series. It must not be nil.
	Selector labels.Selector
}

// queryParts returns the parts for a query template, with prometheus-adapter's names.
func queryParts(series string, matchers []string, values map[string]string, group []string) parts {
	return parts{
		"Series": series, "LabelMatchers": strings.Join(matchers, ","), "LabelValuesByName": values,
		"GroupBy": strings.Join(group, ","), "GroupBySlice": group,
	}
}

// plainValue matches values that need no quoting, inside or outside of quotes. All object names and all values of label
// selectors match.
var plainValue = regexp.MustCompile(`^[-A-Za-z0-9_.:]*$`)

// Query returns the query for a target. The error is ErrName or a SelectorError if the request is invalid.
//
// The matchers for namespace and names come last and take precedence in LabelValuesByName. A selector with the same labels
// can therefore narrow the result but not widen it.
func (r *Rule) Query(t Target) (string, error) {
	var matchers []string
	values := map[string]string{}
	add := func(label, operator, pattern string, plain []string) error {
		if !plainValue.MatchString(strings.Join(plain, "")) {
			return fmt.Errorf("%q: %w", plain, ErrName)
		}
		matchers = append(matchers, label+operator+strconv.Quote(pattern))
		values[label] = strings.Join(plain, "|")
		return nil
	}
	requirements, _ := t.Selector.Requirements()
	for _, q := range requirements {
		operator, pattern, err := matcher(q)
		if err != nil {
			return "", err
		}
		if err := add(q.Key(), operator, pattern, q.Values().List()); err != nil {
			return "", err
		}
	}
	if t.NamespaceLabel != "" {
		if err := add(t.NamespaceLabel, "=", t.Namespace, []string{t.Namespace}); err != nil {
			return "", err
		}
	}
	var group []string
	if t.Label != "" {
		operator, pattern := oneOf(t.Names)
		if err := add(t.Label, operator, pattern, t.Names); err != nil {
			return "", err
		}
		group = []string{t.Label}
	}
	query, err := expand(r.query, queryParts(t.Series, matchers, values, group))
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(query) == "" {
		return "", errors.New("the query is empty")
	}
	return query, nil
}

// matcher converts a requirement of a label selector to a Prometheus matcher. In both languages, != and notin match if the
// label is missing.
func matcher(q labels.Requirement) (operator, pattern string, err error) {
	if !labelName.MatchString(q.Key()) {
		return "", "", &SelectorError{fmt.Sprintf("%q cannot be a label of Prometheus: want letters, digits and underscores", q.Key())}
	}
	values := q.Values().List()
	switch q.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		operator, pattern = oneOf(values)
	case selection.NotEquals, selection.NotIn:
		operator, pattern = oneOf(values)
		operator = map[string]string{"=": "!=", "=~": "!~"}[operator]
	case selection.Exists:
		operator = "!="
	case selection.DoesNotExist:
		operator = "="
	default:
		return "", "", &SelectorError{fmt.Sprintf("operator %q: labels of Prometheus are text and cannot be compared", q.Operator())}
	}
	return operator, pattern, nil
}

// oneOf returns a matcher for any of the literal values.
func oneOf(values []string) (operator, pattern string) {
	if len(values) == 1 {
		return "=", values[0]
	}
	quoted := slices.Clone(values)
	for i := range quoted {
		quoted[i] = regexp.QuoteMeta(quoted[i])
	}
	return "=~", strings.Join(quoted, "|")
}

// ResourceRules are the queries for metrics.k8s.io: CPU and memory of nodes and containers.
type ResourceRules struct {
	// Line is the line in the file at which the rules begin.
	Line        int
	CPU, Memory ResourceRule
	Window      time.Duration
}

// ResourceRule contains the queries for one resource, as written in the file.
type ResourceRule struct {
	ContainerQuery, NodeQuery, ContainerLabel string
	mapping                                   mapping
}

func (w *walker) resourceRules(to **ResourceRules) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		if empty(n) {
			return
		}
		r := &ResourceRules{Line: n.Line + w.offset}
		w.object(n, field, map[string]func(*yaml.Node, string){
			"cpu":    w.resourceRule(&r.CPU),
			"memory": w.resourceRule(&r.Memory),
			"window": func(n *yaml.Node, field string) {
				d, err := model.ParseDuration(n.Value)
				if err != nil {
					w.complain(n, field, "want a duration such as 5m, found %s", describe(n))
				}
				r.Window = time.Duration(d)
			},
		})
		*to = r
	}
}

func (w *walker) resourceRule(to *ResourceRule) func(*yaml.Node, string) {
	return func(n *yaml.Node, field string) {
		before := len(w.problems)
		w.object(n, field, map[string]func(*yaml.Node, string){
			"containerQuery": w.text(&to.ContainerQuery),
			"nodeQuery":      w.text(&to.NodeQuery),
			"containerLabel": w.text(&to.ContainerLabel),
			"resources":      w.mapping(&to.mapping, false),
		})
		if len(w.problems) > before {
			return
		}
		if _, err := to.Plain(WellKnown()); err != nil {
			w.complain(n, field, "%v", err)
		}
	}
}

func (r ResourceRule) absent() bool { return r.NodeQuery == "" && r.ContainerQuery == "" }

// PlainQueries are the queries of a ResourceRule for all objects, without templates.
type PlainQueries struct {
	// Container returns series with the labels namespace, pod and container.
	Container string
	// Node returns series with the label NodeLabel.
	Node, NodeLabel string
}

// Plain returns the PromQL of the rule, or empty queries if the file does not define the rule. If the labels have other
// names, label_replace renames them.
func (r ResourceRule) Plain(c *Catalogue) (PlainQueries, error) {
	if r.absent() {
		return PlainQueries{}, nil
	}
	labels := r.mapping.labels(c)
	var missing error
	label := func(resource string) string {
		l, ok := labels.Lookup(schema.GroupResource{Resource: resource})
		if !ok && missing == nil {
			missing = fmt.Errorf("want resources that map a label to each of nodes, namespaces and pods; none is mapped to %s", resource)
		}
		return l
	}
	node, pod, namespace := label("nodes"), label("pods"), label("namespaces")
	switch {
	case missing != nil:
		return PlainQueries{}, missing
	case !labelName.MatchString(r.ContainerLabel):
		return PlainQueries{}, fmt.Errorf("containerLabel: want the name of a Prometheus label, found %q", r.ContainerLabel)
	}
	out := PlainQueries{NodeLabel: node}
	var err error
	if out.Node, err = plain("nodeQuery", r.NodeQuery, node); err != nil {
		return out, err
	}
	if out.Container, err = plain("containerQuery", r.ContainerQuery, pod, namespace, r.ContainerLabel); err != nil {
		return out, err
	}
	for _, rename := range [][2]string{{namespace, "namespace"}, {pod, "pod"}, {r.ContainerLabel, "container"}} {
		if rename[0] != rename[1] {
			out.Container = fmt.Sprintf(`label_replace(%s, %q, "$1", %q, "(.*)")`, out.Container, rename[1], rename[0])
		}
	}
	return out, nil
}

// plain expands a query template for all objects. The first label must be present, and the query groups by all labels.
func plain(field, text string, labels ...string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("%s is required", field)
	}
	t, err := parseTemplate(text)
	if err != nil {
		return "", fmt.Errorf("%s: want a Go template with the delimiters << and >>: %w", field, err)
	}
	query, err := expand(t, queryParts("", []string{labels[0] + `!=""`}, map[string]string{}, labels))
	if err != nil {
		return "", fmt.Errorf("%s: want a template of .LabelMatchers and .GroupBy: %w", field, err)
	}
	return strings.TrimSpace(query), nil
}
