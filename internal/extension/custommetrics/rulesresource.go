package custommetrics

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
