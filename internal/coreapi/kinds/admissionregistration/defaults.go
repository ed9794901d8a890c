package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/defaults"
)

// resources fills in the selectors, which policies require: k8s.io/apiserver refuses every request that matches a policy
// without them.
func resources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	matching(&m.MatchPolicy, &m.NamespaceSelector, &m.ObjectSelector)
	for _, list := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range list {
			defaults.Point(&list[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func matching(policy **admissionregistrationv1.MatchPolicyType, namespaces, objects **metav1.LabelSelector) {
	defaults.Point(policy, admissionregistrationv1.Equivalent)
	defaults.Point(namespaces, metav1.LabelSelector{})
	defaults.Point(objects, metav1.LabelSelector{})
}

func clientConfig(c *admissionregistrationv1.WebhookClientConfig) {
	if c.Service != nil {
		defaults.Point(&c.Service.Port, 443)
	}
}

func rules(list []admissionregistrationv1.RuleWithOperations) {
	for i := range list {
		defaults.Point(&list[i].Scope, admissionregistrationv1.AllScopes)
	}
}
