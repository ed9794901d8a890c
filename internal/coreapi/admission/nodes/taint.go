// Package nodes is the admission plugins that go by nodes: TaintNodesByCondition, PodTopologyLabels and
// PodResizeValidator.
package nodes

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// Taint keeps pods from a new node until a node controller has seen it ready and takes the taint away.
type Taint struct{}

var _ admission.MutationInterface = Taint{}

func (Taint) Handles(operation admission.Operation) bool { return operation == admission.Create }

func (Taint) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
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
