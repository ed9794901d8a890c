package drill

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestConditionNamesTheUnavailableServer(t *testing.T) {
	for name, test := range map[string]struct {
		status  corev1.ConditionStatus
		message string
		want    bool
	}{
		"as this front door says it": {corev1.ConditionTrue, "APIService v1.s-a.drill.portico.dev is unavailable (FailedDiscoveryCheck)", true},
		"as kube-controller-manager v1.37.1 says it": {corev1.ConditionTrue, "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: " +
			"s-a.drill.portico.dev/v1: stale GroupVersion discovery: s-a.drill.portico.dev/v1", true},
		"another server":         {corev1.ConditionTrue, "APIService v1.s-b.drill.portico.dev is unavailable", false},
		"that is over":           {corev1.ConditionFalse, "APIService v1.s-a.drill.portico.dev is unavailable", false},
		"nobody is named at all": {corev1.ConditionTrue, "Discovery failed for some groups", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := namesIt([]corev1.NamespaceCondition{{Status: test.status, Message: test.message}}, "s-a.drill.portico.dev"); got != test.want {
				t.Errorf("namesIt(%q, %q) = %v, want %v", test.status, test.message, got, test.want)
			}
		})
	}
}
