package custommetrics

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
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

// harmless are the values that mean themselves wherever a template puts them: in quotes or out of them. Every name of
// an object and every value that a label selector can hold is among them.
var harmless = regexp.MustCompile(`^[-A-Za-z0-9_.:]*$`)

// Query makes the query for a target. The error is ErrName or a SelectorError when the request is to blame.
//
// The matchers of namespace and names come last and win in LabelValuesByName, so that a selector which names the same
// labels can narrow what is seen and never widen it.
func (r *Rule) Query(t Target) (string, error) {
	var matchers []string
	values := map[string]string{}
	add := func(label, operator, pattern string, plain []string) error {
		if !harmless.MatchString(strings.Join(plain, "")) {
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
