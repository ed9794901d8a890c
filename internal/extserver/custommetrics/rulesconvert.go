package custommetrics

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// ConvertRules extracts a rule file from its ConfigMap and adds a comment to each rule that describes the metrics it serves.
// Existing comments are preserved.
func ConvertRules(name string, data []byte) ([]byte, error) {
	config, err := ReadRules(name, data)
	if err != nil {
		return nil, err
	}
	root, _, err := find(name, data)
	if err != nil {
		return nil, err
	}
	catalogue := WellKnown()
	for key, list := range map[string][]*Rule{"rules": config.Rules, "externalRules": config.ExternalRules} {
		n := value(root, key)
		if n == nil || n.Kind != yaml.SequenceNode {
			continue
		}
		for i, r := range list {
			remark(n.Content[i], r.summary(catalogue))
		}
	}
	if n := value(root, "resourceRules"); n != nil && config.Resource != nil {
		text, err := config.Resource.summary(catalogue)
		if err != nil {
			return nil, err
		}
		remark(keyOf(root, n), text)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("%s: write YAML: %w", name, err)
	}
	return out.Bytes(), encoder.Close()
}

func keyOf(root, v *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if resolve(root.Content[i+1]) == v {
			return root.Content[i]
		}
	}
	return v
}

func remark(n *yaml.Node, text string) {
	comment := "# " + strings.ReplaceAll(text, "\n", "\n# ")
	if n.HeadComment != "" {
		comment = n.HeadComment + "\n" + comment
	}
	n.HeadComment = comment
}

// summary returns a description of the rule.
func (r *Rule) summary(c *Catalogue) string {
	text := "Serves each series under its own name"
	if r.as != "$0" {
		text = fmt.Sprintf("Serves %s for a series that %s matches", r.as, r.matches)
	}
	if r.Window > 0 {
		text += fmt.Sprintf(", over %s", model.Duration(r.Window))
	}
	labels := r.Labels(c)
	if r.external {
		if !r.Namespaced {
			return text + ".\nEvery namespace sees all series."
		}
		label, ok := labels.NamespaceLabel()
		if !ok {
			label = "namespace"
		}
		return text + fmt.Sprintf(".\nA namespace sees the series whose label %s names it.", label)
	}
	if r.mapping.template != nil {
		text += ".\nDescribes whatever its labels name"
		if len(r.mapping.overrides) > 0 {
			text += "; besides"
		}
	} else {
		text += ".\nDescribes"
	}
	var pairs []string
	for _, o := range r.mapping.overrides {
		if resource, ok := c.Lookup(o.group, o.resource); ok {
			pairs = append(pairs, fmt.Sprintf(" %s (label %s)", resource.GroupResource(), o.label))
		} else {
			pairs = append(pairs, fmt.Sprintf(" %s.%s once the API serves it (label %s)", o.resource, o.group, o.label))
		}
	}
	slices.Sort(pairs)
	return text + strings.Join(pairs, ",") + "."
}

func (r *ResourceRules) summary(c *Catalogue) (string, error) {
	text := "Not custom metrics: these are for metrics.k8s.io, whose prometheus source asks the same with"
	for _, of := range []struct {
		name string
		rule ResourceRule
	}{{"CPU", r.CPU}, {"memory", r.Memory}} {
		if of.rule.absent() {
			continue
		}
		q, err := of.rule.Plain(c)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("\n%s of nodes (label %s): %s\n%s of containers: %s", of.name, q.NodeLabel, oneLine(q.Node), of.name, oneLine(q.Container))
	}
	return text, nil
}

func oneLine(query string) string { return strings.Join(strings.Fields(query), " ") }
