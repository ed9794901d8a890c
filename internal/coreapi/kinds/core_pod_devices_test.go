package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/core"
	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestInvalidDeviceStatusesOfPodsAreRejected(t *testing.T) {
	spec := corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "c"}},
		Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"example.com/gpu": {}},
		}}},
	}
	health := func(container, resource string, devices ...corev1.ResourceHealth) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: container, AllocatedResourcesStatus: []corev1.ResourceStatus{{Name: corev1.ResourceName(resource), Resources: devices}}}}
	}
	good := corev1.ResourceHealth{ResourceID: "1", Health: corev1.ResourceHealthStatusHealthy}
	for situation, c := range map[string]struct {
		status corev1.PodStatus
		want   []string
	}{
		"what there is": {corev1.PodStatus{
			ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: ptr.To("x")}},
			ContainerStatuses:     health("a", "example.com/gpu", good),
		}, nil},
		"a claim that the pod has not": {corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "d"}}},
			[]string{"status.resourceClaimStatuses[0].name: Invalid value: \"d\": must match the name of an entry in `spec.resourceClaims`"}},
		"a device twice": {corev1.PodStatus{ContainerStatuses: health("a", "example.com/gpu", good, good)},
			[]string{"status.containerStatuses[0].allocatedResourcesStatus[0].resources[1].resourceID: Duplicate value: \"1\""}},
		"a resource that nobody asked for": {corev1.PodStatus{ContainerStatuses: health("a", "example.com/tpu", good)},
			[]string{"status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: \"example.com/tpu\": must match one of the container's resource requests"}},
		"a container that has gone": {corev1.PodStatus{ContainerStatuses: health("z", "example.com/tpu", good)}, nil},
		"no mapping of an extended resource": {corev1.PodStatus{ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"}},
			[]string{"status.extendedResourceClaimStatus.requestMappings: Required value: at least one request mapping is required"}},
		"ephemeral containers have no devices": {corev1.PodStatus{EphemeralContainerStatuses: health("e", "example.com/gpu", good)},
			[]string{"status.ephemeralContainerStatuses[0].allocatedResourcesStatus: Forbidden: must not be specified in container status"}},
	} {
		t.Run(situation, func(t *testing.T) {
			kindtest.Refused(t, core.PodDevices(&corev1.Pod{Spec: spec, Status: c.status}, field.NewPath("status")), c.want...)
		})
	}
}
