package registry

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
)

func TestNegativeScaleIsRejected(t *testing.T) {
	errs := validateScale(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: -1}})
	if len(errs) != 1 || errs[0].Error() != "spec.replicas: Invalid value: -1: must be greater than or equal to 0" {
		t.Errorf("validateScale(-1 replicas) = %v, want one error for spec.replicas", errs)
	}
}
