package prometheus

import (
	"cmp"
	"slices"

	"go.uber.org/zap"

	"portico.dev/internal/extension/custommetrics"
	"portico.dev/internal/extension/custommetrics/objects"
	"portico.dev/internal/extension/custommetrics/rules"
)

// snapshot is which metrics there are, made of the series and the resources known at one moment.
type snapshot struct {
	catalogue *objects.Catalogue
	custom    map[custommetrics.Metric]origin
	external  map[string]origin

	customList   []custommetrics.Metric
	externalList []string
}

// origin is where the values of a metric come from.
type origin struct {
	rule   *rules.Rule
	series string
	labels rules.Labels
	// resource is what a custom metric describes.
	resource objects.Resource
}

// current is the snapshot, made anew when series or resources have changed.
func (p *Provider) current() *snapshot {
	catalogue := p.config.Objects.Catalogue()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil || p.now.catalogue != catalogue {
		p.now = p.build(catalogue)
	}
	return p.now
}

// build names every series. Of two rules that make the same metric the first counts, and of two series the first in
// the alphabet, so that a restart changes nothing.
func (p *Provider) build(catalogue *objects.Catalogue) *snapshot {
	s := &snapshot{catalogue: catalogue, custom: map[custommetrics.Metric]origin{}, external: map[string]origin{}}
	for i, rule := range p.config.Rules.Rules {
		labels := rule.Labels(catalogue)
		for _, unknown := range labels.Unknown {
			p.config.Logger.Debug("rule names a resource that the API does not have",
				zap.String("file", p.config.File), zap.Int("line", rule.Line), zap.Stringer("resource", unknown))
		}
		for _, shape := range p.series[0][i] {
			s.addCustom(rule, labels, shape)
		}
	}
	for i, rule := range p.config.Rules.ExternalRules {
		labels := rule.Labels(catalogue)
		for _, shape := range p.series[1][i] {
			if name, ok := rule.MetricName(shape.series); ok && len(s.external) < maxMetrics {
				s.addExternal(name, origin{rule: rule, series: shape.series, labels: labels})
			}
		}
	}
	slices.SortFunc(s.customList, func(a, b custommetrics.Metric) int {
		return cmp.Or(cmp.Compare(a.Resource.String(), b.Resource.String()), cmp.Compare(a.Name, b.Name))
	})
	slices.Sort(s.externalList)
	return s
}

func (s *snapshot) addCustom(rule *rules.Rule, labels rules.Labels, found shape) {
	name, ok := rule.MetricName(found.series)
	if !ok {
		return
	}
	namespaceLabel, has := labels.NamespaceLabel()
	inNamespaces := has && slices.Contains(found.labels, namespaceLabel)
	for _, resource := range labels.Described(found.labels) {
		metric := custommetrics.Metric{Resource: resource.GroupResource(), Name: name, Namespaced: resource.Namespaced && inNamespaces}
		if _, taken := s.custom[metric]; taken || len(s.custom) >= maxMetrics {
			continue
		}
		s.custom[metric] = origin{rule: rule, series: found.series, labels: labels, resource: resource}
		s.customList = append(s.customList, metric)
	}
}

func (s *snapshot) addExternal(name string, o origin) {
	if _, taken := s.external[name]; !taken {
		s.external[name] = o
		s.externalList = append(s.externalList, name)
	}
}

// CustomMetrics lists what the rules make of the series.
func (p *Provider) CustomMetrics() []custommetrics.Metric { return p.current().customList }

// ExternalMetrics lists what the external rules make of theirs.
func (p *Provider) ExternalMetrics() []string { return p.current().externalList }
