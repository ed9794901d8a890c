package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/resource"
)

// Resize refuses to make a pod larger than its node, or to change one where nobody can.
type Resize struct {
	Nodes corelisters.NodeLister
}

var _ admission.ValidationInterface = Resize{}

// Why a resize was refused, for programs.
const (
	causeCapacity metav1.CauseType = "NodeCapacity"
	causePlatform metav1.CauseType = "UnsupportedPlatform"
)

func (Resize) Handles(operation admission.Operation) bool { return operation == admission.Update }

func (p Resize) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	old, replaces := a.GetOldObject().(*corev1.Pod)
	// A generation that stays is a spec that stays.
	if !ok || !replaces || a.GetSubresource() != "resize" || pod.Spec.NodeName == "" || pod.Generation == old.Generation {
		return nil
	}
	node, err := p.Nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return admission.NewForbidden(a, fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to get node %q: %w", pod.Spec.NodeName, err))
	}
	if system, ok := node.Labels[corev1.LabelOSStable]; ok && system != string(corev1.Linux) {
		return refusal(a, causePlatform, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, system))
	}
	if err := fits(pod, node.Status.Allocatable); err != nil {
		return refusal(a, causeCapacity, err)
	}
	return nil
}

func fits(pod *corev1.Pod, allocatable corev1.ResourceList) error {
	wanted := resource.PodRequests(pod, resource.PodResourcesOptions{})
	var missing []string
	if cpu := wanted[corev1.ResourceCPU]; cpu.Cmp(*allocatable.Cpu()) > 0 {
		missing = append(missing, fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), allocatable.Cpu().MilliValue()))
	}
	if memory := wanted[corev1.ResourceMemory]; memory.Cmp(*allocatable.Memory()) > 0 {
		missing = append(missing, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), allocatable.Memory().Value()))
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(missing, "; "))
}

func refusal(a admission.Attributes, cause metav1.CauseType, why error) error {
	err := admission.NewForbidden(a, why)
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Details != nil {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}
