package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/resource"
)

// podResizeValidator refuses to resize a pod beyond its node, or on a node that does not support it.
type podResizeValidator struct {
	Nodes corelisters.NodeLister
}

var _ admission.ValidationInterface = podResizeValidator{}

// The machine-readable causes of refusals.
const (
	causeCapacity metav1.CauseType = "NodeCapacity"
	causePlatform metav1.CauseType = "UnsupportedPlatform"
)

func (podResizeValidator) Handles(operation admission.Operation) bool {
	return operation == admission.Update
}

func (p podResizeValidator) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	old, replaces := a.GetOldObject().(*corev1.Pod)
	// An unchanged generation means an unchanged spec.
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
		return resizeForbidden(a, causePlatform, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, system))
	}
	if err := fitsNode(pod, node.Status.Allocatable); err != nil {
		return resizeForbidden(a, causeCapacity, err)
	}
	return nil
}

func fitsNode(pod *corev1.Pod, allocatable corev1.ResourceList) error {
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

func resizeForbidden(a admission.Attributes, cause metav1.CauseType, why error) error {
	err := admission.NewForbidden(a, why)
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Details != nil {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}

// podTopologyLabels copies the topology labels of the node to the pod, for the downward API.
type podTopologyLabels struct {
	Nodes corelisters.NodeLister
}

var _ admission.MutationInterface = podTopologyLabels{}

func (podTopologyLabels) Handles(operation admission.Operation) bool {
	return operation == admission.Create
}

// Admit labels a pod that is created with a node. Otherwise it labels the binding, and the pod gets the labels of its binding.
func (p podTopologyLabels) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("pods") {
		return nil
	}
	switch obj := a.GetObject().(type) {
	case *corev1.Pod:
		if a.GetSubresource() != "" || obj.Spec.NodeName == "" {
			return nil
		}
		return p.label(&obj.Labels, obj.Spec.NodeName)
	case *corev1.Binding:
		if a.GetSubresource() != "binding" || obj.Target.Kind != "Node" {
			return nil
		}
		return p.label(&obj.Labels, obj.Target.Name)
	}
	return nil
}

func (p podTopologyLabels) label(labels *map[string]string, name string) error {
	node, err := p.Nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil // the node may be created later
	}
	if err != nil {
		return fmt.Errorf("node %q: %w", name, err)
	}
	found := map[string]string{}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, ok := node.Labels[key]; ok {
			found[key] = value
		}
	}
	if *labels == nil && len(found) > 0 {
		*labels = map[string]string{}
	}
	maps.Copy(*labels, found)
	return nil
}

// taintNodesByCondition taints a new node as not ready, until a node controller removes the taint.
type taintNodesByCondition struct{}

var _ admission.MutationInterface = taintNodesByCondition{}

func (taintNodesByCondition) Handles(operation admission.Operation) bool {
	return operation == admission.Create
}

func (taintNodesByCondition) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	node, ok := a.GetObject().(*corev1.Node)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
		node.Spec.Taints = append(node.Spec.Taints, notReady)
	}
	return nil
}
