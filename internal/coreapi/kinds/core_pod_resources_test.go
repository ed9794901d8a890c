package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/coreapi/kinds/core"
)

func TestPodResources(t *testing.T) {
	for situation, c := range map[string]struct{ pod, want string }{
		"a pod that says nothing":                     {"containers: [{name: c, resources: {limits: {cpu: 1}}}]", "null"},
		"limited as a whole: asks as its containers":  {"resources: {limits: {cpu: 4, memory: 4Gi}}, containers: [{name: c, resources: {requests: {cpu: 1}}}]", "{limits: {cpu: 4, memory: 4Gi}, requests: {cpu: 1, memory: 4Gi}}"},
		"asks as a whole: limited as all containers":  {"resources: {requests: {cpu: 1}}, containers: [{name: c, resources: {limits: {cpu: 2}, requests: {cpu: 1}}}]", "{requests: {cpu: 1}, limits: {cpu: 2}}"},
		"asks for more than its containers may have":  {"resources: {requests: {cpu: 3}}, containers: [{name: c, resources: {limits: {cpu: 2}, requests: {cpu: 1}}}]", "{requests: {cpu: 3}, limits: {cpu: 3}}"},
		"one container without a limit":               {"resources: {requests: {cpu: 1}}, containers: [{name: c, resources: {limits: {cpu: 2}}}, {name: d}]", "{requests: {cpu: 1}}"},
		"huge pages of its containers become a limit": {"resources: {limits: {cpu: 1}}, containers: [{name: c, resources: {limits: {hugepages-2Mi: 2Mi}, requests: {hugepages-2Mi: 2Mi}}}]", "{limits: {cpu: 1, hugepages-2Mi: 2Mi}, requests: {cpu: 1, hugepages-2Mi: 2Mi}}"},
	} {
		t.Run(situation, func(t *testing.T) {
			pod := &corev1.Pod{}
			if err := yaml.UnmarshalStrict([]byte("spec: {"+c.pod+"}"), pod); err != nil {
				t.Fatal(err)
			}
			var want *corev1.ResourceRequirements
			if err := yaml.UnmarshalStrict([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			core.PodResources(pod)
			if !apiequality.Semantic.DeepEqual(pod.Spec.Resources, want) {
				t.Errorf("pod-level resources = %v, want %v", pod.Spec.Resources, want)
			}
		})
	}
}

func TestPodCIDRAndPodCIDRsAreKeptInSync(t *testing.T) {
	for situation, c := range map[string]struct{ cidr, cidrs, want string }{
		"only the old field":   {"192.0.2.0/24", "", "192.0.2.0/24"},
		"the old field wins":   {"192.0.2.0/24", "192.0.3.0/24", "192.0.2.0/24"},
		"only the new field":   {"", "192.0.3.0/24", "192.0.3.0/24"},
		"neither has anything": {"", "", ""},
		"both say the same":    {"192.0.2.0/24", "192.0.2.0/24", "192.0.2.0/24"},
	} {
		t.Run(situation, func(t *testing.T) {
			n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: c.cidr}}
			if c.cidrs != "" {
				n.Spec.PodCIDRs = []string{c.cidrs}
			}
			core.DefaultNode(n)
			first := ""
			if len(n.Spec.PodCIDRs) > 0 {
				first = n.Spec.PodCIDRs[0]
			}
			if n.Spec.PodCIDR != c.want || first != c.want {
				t.Errorf("podCIDR = %q, first of podCIDRs = %q, want %q in both", n.Spec.PodCIDR, first, c.want)
			}
		})
	}
}
