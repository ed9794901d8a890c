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

// maxQuery bounds one query: some thousands of names.
const maxQuery = 1 << 20

// ErrName says that no object can have the name that was asked for.
var ErrName = errors.New("not the name of an object")

// SelectorError is a metric label selector that Prometheus cannot be asked.
type SelectorError struct{ Text string }

func (e *SelectorError) Error() string { return "metric label selector: " + e.Text }

// Target is what one query is about.
type Target struct {
	// Series is the series that the metric is made of.
	Series string
	// Label names the described objects, Names are which. Empty for external metrics.
	Label string
	Names []string
	// NamespaceLabel confines the query to Namespace. Both empty: it is not confined.
	NamespaceLabel, Namespace string
	// Selector narrows the series further. Not nil.
	Selector labels.Selector
}

// queryParts are what a query template is made of, under prometheus-adapter's names.
func queryParts(series string, matchers []string, values map[string]string, group []string) parts {
	return parts{
		"Series": series, "LabelMatchers": strings.Join(matchers, ","), "LabelValuesByName": values,
		"GroupBy": strings.Join(group, ","), "GroupBySlice": group,
	}
}

// plainValue are the values that mean themselves wherever a template puts them: in quotes or out of them. Every name of
// an object and every value that a label selector can hold is among them.
var plainValue = regexp.MustCompile(`^[-A-Za-z0-9_.:]*$`)

// Query makes the query for a target. The error is ErrName or a SelectorError when the request is to blame.
//
// The matchers of namespace and names come last and win in LabelValuesByName, so that a selector which names the same
// labels can narrow what is seen and never widen it.
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

// matcher is a requirement of a label selector in Prometheus's terms. For both, != and notin are true of what lacks
// the label.
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

// oneOf matches any of some values as they are.
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

// ResourceRules are the queries for what metrics.k8s.io serves: CPU and memory of nodes and of the containers of pods.
type ResourceRules struct {
	// Line is where they begin in the file.
	Line        int
	CPU, Memory ResourceRule
	Window      time.Duration
}

// ResourceRule is the queries for one resource, as they stand in the file.
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

// PlainQueries are the queries of a ResourceRule for everything there is, without templates.
type PlainQueries struct {
	// Container gives series with the labels namespace, pod and container.
	Container string
	// Node gives series with the label NodeLabel.
	Node, NodeLabel string
}

// Plain makes PromQL of the rule, nothing of one that the file does not have. Where the series have labels of other names, label_replace gives them the usual ones.
func (r ResourceRule) Plain(c *Catalogue) (PlainQueries, error) {
	if r.absent() {
		return PlainQueries{}, nil
	}
	labels := r.mapping.labels(c)
	var missing error
	label := func(resource string) string {
		l, ok := labels.Of(schema.GroupResource{Resource: resource})
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

// plain executes a query template for every object: the first label must be there, all of them are grouped by.
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
