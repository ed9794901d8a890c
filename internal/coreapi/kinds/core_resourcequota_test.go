package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestInvalidQuotasAndLimitRangesAreRejected(t *testing.T) {
	quota := func(spec string) *corev1.ResourceQuota {
		return kindtest.Decode[corev1.ResourceQuota](t, "metadata: {name: a, namespace: ns}\nspec: "+spec)
	}
	limits := func(item string) *corev1.LimitRange {
		return kindtest.Decode[corev1.LimitRange](t, "metadata: {name: a, namespace: ns}\nspec: {limits: ["+item+"]}")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"a resource that nobody counts", quota("{hard: {bananas: 1}}"), []string{
			`spec.hard[bananas]: Invalid value: "bananas": must be a standard resource for quota`, `spec.hard[bananas]: Invalid value: "bananas": must be a standard resource type or fully qualified`}},
		{"half a pod", quota("{hard: {pods: 500m}}"), []string{`spec.hard[pods]: Invalid value: "500m": must be an integer`}},
		{"less than nothing", quota("{hard: {cpu: -1}}"), []string{`spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0`}},
		{"services that make the best effort", quota("{hard: {services: 1}, scopes: [BestEffort]}"), []string{"spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource"}},
		{"both kinds of effort", quota("{hard: {pods: 1}, scopes: [BestEffort, NotBestEffort]}"), []string{"spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"}},
		{"a selector without values", quota("{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In}]}}"),
			[]string{"spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"}},
		{"less at most than at least", limits("{type: Container, max: {cpu: 1}, min: {cpu: 2}}"), []string{
			`spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1`,
			`spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1`,
			`spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1`}},
		{"a default for a pod", limits("{type: Pod, default: {cpu: 1}}"), []string{"spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"}},
		{"a claim without a size", limits("{type: PersistentVolumeClaim}"), []string{"spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"}},
		{"a container's services", limits("{type: Container, max: {services: 1}}"), []string{
			`spec.limits[0].default[services]: Invalid value: "services": must be a standard resource for containers`,
			`spec.limits[0].defaultRequest[services]: Invalid value: "services": must be a standard resource for containers`,
			`spec.limits[0].max[services]: Invalid value: "services": must be a standard resource for containers`}},
		{"a ratio that cannot be kept", limits("{type: Container, max: {cpu: 2}, min: {cpu: 1}, maxLimitRequestRatio: {cpu: 3}}"),
			[]string{`spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000`}},
		{"one type twice", limits("{type: Pod}, {type: Pod}"), []string{`spec.limits[1].type: Duplicate value: "Pod"`}},
		{"a type of nobody", limits("{type: Cup}"), []string{`spec.limits[0].type: Invalid value: "Cup": must be a standard limit type or fully qualified`}},
	})
	kindtest.Changes(t, quota("{hard: {pods: 1}, scopes: [BestEffort]}"), map[string]kindtest.Change[*corev1.ResourceQuota]{
		"more of it":    {func(q *corev1.ResourceQuota) { q.Spec.Hard["pods"] = q.Spec.Hard["pods"].DeepCopy() }, nil},
		"another scope": {func(q *corev1.ResourceQuota) { q.Spec.Scopes = nil }, []string{"spec.scopes: Invalid value: ..."}},
	})
}
