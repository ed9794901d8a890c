package nodes

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// Topology gives pods the labels of their node that say where it is, so that the downward API can tell them.
type Topology struct {
	Nodes corelisters.NodeLister
}

var _ admission.MutationInterface = Topology{}

func (Topology) Handles(operation admission.Operation) bool { return operation == admission.Create }

// Admit labels a pod that is created on its node, and the binding of any other: bindings pass their labels on.
func (p Topology) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
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

func (p Topology) label(labels *map[string]string, name string) error {
	node, err := p.Nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil // pods may be placed on nodes that come later
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
