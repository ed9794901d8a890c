package custommetrics

import (
	"cmp"
	"slices"

	"go.uber.org/zap"
)

// snapshot is which metrics there are, made of the series and the resources known at one moment.
type snapshot struct {
	catalogue *Catalogue
	custom    map[Metric]origin
	external  map[string]origin

	customList   []Metric
	externalList []string
}

// origin is where the values of a metric come from.
type origin struct {
	rule   *Rule
	series string
	labels Labels
	// resource is what a custom metric describes.
	resource Resource
}

// current is the snapshot, made anew when series or resources have changed.
func (p *PrometheusProvider) current() *snapshot {
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
func (p *PrometheusProvider) build(catalogue *Catalogue) *snapshot {
	s := &snapshot{catalogue: catalogue, custom: map[Metric]origin{}, external: map[string]origin{}}
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
	slices.SortFunc(s.customList, func(a, b Metric) int {
		return cmp.Or(cmp.Compare(a.Resource.String(), b.Resource.String()), cmp.Compare(a.Name, b.Name))
	})
	slices.Sort(s.externalList)
	return s
}

func (s *snapshot) addCustom(rule *Rule, labels Labels, found shape) {
	name, ok := rule.MetricName(found.series)
	if !ok {
		return
	}
	namespaceLabel, has := labels.NamespaceLabel()
	inNamespaces := has && slices.Contains(found.labels, namespaceLabel)
	for _, resource := range labels.Described(found.labels) {
		metric := Metric{Resource: resource.GroupResource(), Name: name, Namespaced: resource.Namespaced && inNamespaces}
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
func (p *PrometheusProvider) CustomMetrics() []Metric { return p.current().customList }

// ExternalMetrics lists what the external rules make of theirs.
func (p *PrometheusProvider) ExternalMetrics() []string { return p.current().externalList }
