package validate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func Tolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect,
				"effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if messages := utilvalidation.IsValidLabelValue(t.Value); len(messages) > 0 {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, strings.Join(messages, ";")))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
			}
		case corev1.TolerationOpGt, corev1.TolerationOpLt: // alpha and off
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{
				corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt,
			}))
		default:
			errs = append(errs, OneOf(t.Operator, at.Child("operator"), corev1.TolerationOpEqual, corev1.TolerationOpExists)...)
		}
		if t.Effect != "" {
			errs = append(errs, OneOf(t.Effect, at.Child("effect"), corev1.TaintEffectNoSchedule,
				corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
	return errs
}

func schedulingGates(gates []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, gate := range gates {
		errs = append(errs, Qualified(gate.Name, path.Index(i))...)
		if seen.Has(gate.Name) {
			errs = append(errs, field.Duplicate(path.Index(i), gate.Name))
		}
		seen.Insert(gate.Name)
	}
	return errs
}

func podAffinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	const must, should = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		at := path.Child("nodeAffinity")
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			errs = append(errs, NodeTerms(n.RequiredDuringSchedulingIgnoredDuringExecution, at.Child(must))...)
		}
		errs = append(errs, Each(n.PreferredDuringSchedulingIgnoredDuringExecution, at.Child(should), preferredNodes)...)
	}
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, at *field.Path) {
		errs = append(errs, Each(required, at.Child(must), podAffinityTerm)...)
		for i := range preferred {
			errs = append(errs, weight(preferred[i].Weight, at.Child(should).Index(i))...)
			errs = append(errs, podAffinityTerm(&preferred[i].PodAffinityTerm, at.Child(should).Index(i).Child("podAffinityTerm"))...)
		}
	}
	if p := a.PodAffinity; p != nil {
		terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
	return errs
}

func weight(w int32, path *field.Path) field.ErrorList {
	if w < 1 || w > 100 {
		return field.ErrorList{field.Invalid(path.Child("weight"), w, "must be in the range 1-100")}
	}
	return nil
}

// preferredNodes accepts invalid label values, because a preference that no node satisfies does no harm.
func preferredNodes(t *corev1.PreferredSchedulingTerm, path *field.Path) field.ErrorList {
	errs := weight(t.Weight, path)
	for i := range t.Preference.MatchExpressions {
		unread := t.Preference.MatchExpressions[i]
		unread.Values = make([]string, len(unread.Values))
		errs = append(errs, nodeExpression(&unread, path.Child("preference", "matchExpressions").Index(i))...)
	}
	return append(errs, Each(t.Preference.MatchFields, path.Child("preference", "matchFields"), nodeField)...)
}

func podAffinityTerm(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	errs := Selector(t.LabelSelector, path.Child("labelSelector"))
	errs = append(errs, Selector(t.NamespaceSelector, path.Child("namespaceSelector"))...)
	for _, name := range t.Namespaces {
		errs = append(errs, Invalid(path.Child("namespace"), name, validation.ValidateNamespaceName(name, false))...)
	}
	errs = append(errs, labelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, path)...)
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, metav1validation.ValidateLabelName(t.TopologyKey, path.Child("topologyKey"))...)
}

// labelKeys checks the keys of labels with values from the pod's labels. The strategy has already added the keys of match to
// the selector, so a key that occurs twice is in both fields.
func labelKeys(match, mismatch []string, s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	errs := append(labelKeyList(match, s, path.Child("matchLabelKeys")), labelKeyList(mismatch, s, path.Child("mismatchLabelKeys"))...)
	if s != nil {
		seen := sets.KeySet(s.MatchLabels)
		for _, e := range s.MatchExpressions {
			if i := slices.Index(match, e.Key); i >= 0 && seen.Has(e.Key) {
				errs = append(errs, field.Invalid(path.Index(i), e.Key, "exists in both matchLabelKeys and labelSelector"))
			}
			seen.Insert(e.Key)
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			errs = append(errs, field.Invalid(path.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return errs
}

func labelKeyList(keys []string, s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if len(keys) == 0 {
		return nil
	}
	if s == nil {
		return field.ErrorList{field.Forbidden(path, "must not be specified when labelSelector is not set")}
	}
	return EachValue(keys, path, metav1validation.ValidateLabelName)
}

func spread(constraints []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range constraints {
		c, at := &constraints[i], path.Index(i)
		errs = append(errs, fromOne(c.MaxSkew, at.Child("maxSkew"))...)
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, OneOf(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		if slices.ContainsFunc(constraints[i+1:], func(o corev1.TopologySpreadConstraint) bool {
			return o.TopologyKey == c.TopologyKey && o.WhenUnsatisfiable == c.WhenUnsatisfiable
		}) {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"),
				fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
		}
		if c.MinDomains != nil {
			errs = append(errs, fromOne(*c.MinDomains, at.Child("minDomains"))...)
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains, fmt.Sprintf(
					"can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
			}
		}
		for name, policy := range map[string]*corev1.NodeInclusionPolicy{"nodeAffinityPolicy": c.NodeAffinityPolicy, "nodeTaintsPolicy": c.NodeTaintsPolicy} {
			if policy != nil {
				errs = append(errs, OneOf(*policy, at.Child(name), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
			}
		}
		errs = append(errs, labelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at)...)
		errs = append(errs, Selector(c.LabelSelector, at.Child("labelSelector"))...)
	}
	return errs
}

func fromOne(n int32, path *field.Path) field.ErrorList {
	if n > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, n, "must be greater than zero")}
}

const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

func dnsConfig(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	c := s.DNSConfig
	switch {
	case s.DNSPolicy == corev1.DNSNone && c == nil:
		return field.ErrorList{field.Required(path, "must provide `dnsConfig` when `dnsPolicy` is None")}
	case s.DNSPolicy == corev1.DNSNone && len(c.Nameservers) == 0:
		return field.ErrorList{field.Required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")}
	case c == nil:
		return nil
	}
	var errs field.ErrorList
	if len(c.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(path.Child("nameservers"), c.Nameservers, fmt.Sprintf("must not have more than %d nameservers", maxNameservers)))
	}
	for i, server := range c.Nameservers {
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(path.Child("nameservers").Index(i), server, true, nil)...)
	}
	searches := path.Child("searches")
	if len(c.Searches) > maxSearches {
		errs = append(errs, field.Invalid(searches, c.Searches, fmt.Sprintf("must not have more than %d search paths", maxSearches)))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchLength {
		errs = append(errs, field.Invalid(searches, c.Searches,
			fmt.Sprintf("must not have more than %d characters (including spaces) in the search list", maxSearchLength)))
	}
	for i, search := range c.Searches {
		if search != "." {
			domain := strings.TrimSuffix(search, ".")
			errs = append(errs, Invalid(searches.Index(i), domain, utilvalidation.IsDNS1123SubdomainWithUnderscore(domain))...)
		}
	}
	for i, option := range c.Options {
		if option.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

// NodeTerms checks a selector of nodes by labels and by name.
func NodeTerms(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	terms := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(terms, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i, term := range s.NodeSelectorTerms {
		errs = append(errs, Each(term.MatchExpressions, terms.Index(i).Child("matchExpressions"), nodeExpression)...)
		errs = append(errs, Each(term.MatchFields, terms.Index(i).Child("matchFields"), nodeField)...)
	}
	return errs
}

func nodeExpression(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
	for i, value := range r.Values {
		errs = append(errs, Invalid(values.Index(i), value, utilvalidation.IsValidLabelValue(value))...)
	}
	return errs
}

// nodeField checks a selection by field. The only field of a node is its name.
func nodeField(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(path.Child("values"),
				"must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != "metadata.name" {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	return append(errs, EachValue(r.Values, path.Child("values"), DnsSubdomain)...)
}

// OldNodeLabels maps deprecated node labels to the warnings for clients that select by them.
var OldNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	corev1.LabelFailureDomainBetaRegion:             `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	corev1.LabelFailureDomainBetaZone:               `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	corev1.LabelInstanceType:                        `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}
