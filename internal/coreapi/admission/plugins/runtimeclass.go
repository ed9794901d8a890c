package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	nodelisters "k8s.io/client-go/listers/node/v1"
)

// runtimeClass sets the overhead, node selector and tolerations of a new pod from its RuntimeClass.
type runtimeClass struct {
	// Classes is nil if RuntimeClasses are not served. Pods that name one are then refused.
	Classes nodelisters.RuntimeClassLister
	// Get reads a class that the lister does not have from storage, because it may be new.
	Get func(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
}

var (
	_ admission.MutationInterface   = runtimeClass{}
	_ admission.ValidationInterface = runtimeClass{}
)

var (
	errOtherOverhead        = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	errOverheadWithoutClass = errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
)

func (runtimeClass) Handles(operation admission.Operation) bool { return operation == admission.Create }

func (p runtimeClass) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, class, err := p.classOf(ctx, a)
	if err != nil || class == nil {
		return err
	}
	if class.Overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !apiequality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return admission.NewForbidden(a, errOtherOverhead)
		}
		pod.Spec.Overhead = class.Overhead.DeepCopy().PodFixed
	}
	if class.Scheduling == nil {
		return nil
	}
	selector := maps.Clone(pod.Spec.NodeSelector)
	if selector == nil {
		selector = map[string]string{}
	}
	for key, value := range class.Scheduling.NodeSelector {
		if own, ok := selector[key]; ok && own != value {
			return admission.NewForbidden(a, fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; "+
				"pod.spec.nodeSelector[%s] = %s", key, value, key, own))
		}
		selector[key] = value
	}
	if len(selector) > 0 {
		pod.Spec.NodeSelector = selector
	}
	pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, class.Scheduling.Tolerations)
	return nil
}

// Validate repeats the checks, because webhooks and policies may have set an overhead.
func (p runtimeClass) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, class, err := p.classOf(ctx, a)
	switch {
	case err != nil || pod == nil:
		return err
	case class == nil || class.Overhead == nil:
		if pod.Spec.Overhead != nil {
			return admission.NewForbidden(a, errOverheadWithoutClass)
		}
	case !apiequality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead):
		return admission.NewForbidden(a, errOtherOverhead)
	}
	return nil
}

// classOf returns the pod of a request, and its class if it names one. Both are nil for requests without a pod.
func (p runtimeClass) classOf(ctx context.Context, a admission.Attributes) (*corev1.Pod, *nodev1.RuntimeClass, error) {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil, nil, nil
	}
	if pod.Spec.RuntimeClassName == nil {
		return pod, nil, nil
	}
	name := *pod.Spec.RuntimeClassName
	missing := admission.NewForbidden(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", name))
	if p.Classes == nil {
		return nil, nil, missing
	}
	class, err := p.Classes.Get(name)
	if apierrors.IsNotFound(err) {
		class, err = p.Get(ctx, name)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, missing
	case err != nil:
		return nil, nil, fmt.Errorf("get runtime class %s: %w", name, err)
	}
	return pod, class, nil
}

// mergeTolerations returns both lists in order, without tolerations that another one covers, as upstream does. Of equal
// tolerations it keeps the first.
func mergeTolerations(own, added []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(own, added)
	var merged []corev1.Toleration
	for i, t := range all {
		before := slices.ContainsFunc(merged, func(other corev1.Toleration) bool { return isCovered(t, other) })
		after := slices.ContainsFunc(all[i+1:], func(other corev1.Toleration) bool {
			return !apiequality.Semantic.DeepEqual(t, other) && isCovered(t, other)
		})
		if !before && !after {
			merged = append(merged, t)
		}
	}
	return merged
}

// isCovered reports whether by tolerates everything that t tolerates.
func isCovered(t, by corev1.Toleration) bool {
	if apiequality.Semantic.DeepEqual(t, by) {
		return true
	}
	if t.Key != by.Key && (by.Key != "" || by.Operator != corev1.TolerationOpExists) {
		return false
	}
	if t.Effect != by.Effect && by.Effect != "" {
		return false
	}
	if by.Effect == corev1.TaintEffectNoExecute && by.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *by.TolerationSeconds) {
		return false
	}
	switch by.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return (t.Operator == corev1.TolerationOpEqual || t.Operator == "") && t.Value == by.Value
	}
	return false
}
