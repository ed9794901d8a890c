package plugins

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"

	"portico.dev/internal/clients"
)

// podPriority resolves the priority class of a pod to its value, and allows only one default class.
type podPriority struct {
	// Classes is nil if priority classes are not served. Pods that name one are then refused.
	Classes schedulinglisters.PriorityClassLister
	// Get reads a class that the lister does not have from storage, because the same command may just have created it. Upstream
	// refuses the pod then.
	Get func(ctx context.Context, name string) (*schedulingv1.PriorityClass, error)
}

var (
	_ admission.MutationInterface   = podPriority{}
	_ admission.ValidationInterface = podPriority{}
)

func (podPriority) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Admit sets the priority of pods.
func (p podPriority) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetResource().GroupResource() != corev1.Resource("pods") || a.GetSubresource() != "" {
		return nil
	}
	if a.GetOperation() == admission.Update {
		keepPriority(pod, a.GetOldObject())
		return nil
	}
	class, err := p.classFor(ctx, a, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	pod.Spec.PriorityClassName = class.Name
	if given := pod.Spec.Priority; given != nil && *given != class.Value {
		return admission.NewForbidden(a, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", *given, class.Value))
	}
	pod.Spec.Priority = &class.Value
	if class.PreemptionPolicy == nil {
		return nil
	}
	if given := pod.Spec.PreemptionPolicy; given != nil && *given != *class.PreemptionPolicy {
		return admission.NewForbidden(a, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *given, *class.PreemptionPolicy))
	}
	pod.Spec.PreemptionPolicy = class.PreemptionPolicy
	return nil
}

// keepPriority copies both fields from the old pod, for clients that update with their original manifest.
func keepPriority(pod *corev1.Pod, old any) {
	before, ok := old.(*corev1.Pod)
	if !ok {
		return
	}
	if pod.Spec.Priority == nil {
		pod.Spec.Priority = before.Spec.Priority
	}
	if pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = before.Spec.PreemptionPolicy
	}
}

// Validate refuses a second default class.
func (p podPriority) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault || p.Classes == nil {
		return nil
	}
	current, err := p.defaultClass()
	if err != nil {
		return err
	}
	if current != nil && (a.GetOperation() == admission.Create || current.Name != class.Name) {
		return admission.NewForbidden(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", current.Name))
	}
	return nil
}

// classFor returns a copy of the class, which the caller may change.
func (p podPriority) classFor(ctx context.Context, a admission.Attributes, name string) (schedulingv1.PriorityClass, error) {
	if name == "" {
		class, err := p.defaultClass()
		switch {
		case err != nil:
			return schedulingv1.PriorityClass{}, err
		case class != nil:
			return *class.DeepCopy(), nil
		}
		lower := corev1.PreemptLowerPriority
		return schedulingv1.PriorityClass{PreemptionPolicy: &lower}, nil
	}
	missing := admission.NewForbidden(a, fmt.Errorf("no PriorityClass with name %v was found", name))
	if p.Classes == nil {
		return schedulingv1.PriorityClass{}, missing
	}
	class, err := p.Classes.Get(name)
	if apierrors.IsNotFound(err) {
		class, err = p.Get(ctx, name)
	}
	switch {
	case apierrors.IsNotFound(err):
		return schedulingv1.PriorityClass{}, missing
	case err != nil:
		return schedulingv1.PriorityClass{}, fmt.Errorf("get priority class %s: %w", name, err)
	}
	return *class.DeepCopy(), nil
}

// defaultClass returns the default class, or nil. If two were created concurrently, it returns the lower one.
func (p podPriority) defaultClass() (*schedulingv1.PriorityClass, error) {
	if p.Classes == nil {
		return nil, nil
	}
	all, err := p.Classes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list priority classes: %w", err)
	}
	var found *schedulingv1.PriorityClass
	for _, class := range all {
		if class.GlobalDefault && (found == nil || found.Value > class.Value) {
			found = class
		}
	}
	return found, nil
}

// systemPriorityClasses exist in every cluster, for system pods. Their values are above the range for users.
var systemPriorityClasses = []schedulingv1.PriorityClass{
	{
		ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical"}, Value: 2000001000,
		Description: "Used for system critical pods that must not be moved from their current node.",
	},
	{
		ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical"}, Value: 2000000000,
		Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
	},
}

// EnsureSystemPriorityClasses creates missing system priority classes.
func EnsureSystemPriorityClasses(ctx context.Context, client clients.Interface) error {
	classes := client.SchedulingV1().PriorityClasses()
	for i := range systemPriorityClasses {
		name := systemPriorityClasses[i].Name
		_, err := classes.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = classes.Create(ctx, systemPriorityClasses[i].DeepCopy(), metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("priority class %s: %w", name, err)
		}
	}
	return nil
}
