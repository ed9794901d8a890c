package plugins

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

var never, lower = corev1.PreemptNever, corev1.PreemptLowerPriority

func priorityClass(name string, value int32, policy *corev1.PreemptionPolicy, isDefault bool) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: policy, GlobalDefault: isDefault}
}

// withClasses returns the plugin with these classes in its lister and with "fresh" only in storage.
func withClasses(t *testing.T, classes ...*schedulingv1.PriorityClass) podPriority {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, c := range classes {
		if err := indexer.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	return podPriority{Classes: schedulinglisters.NewPriorityClassLister(indexer), Get: func(_ context.Context, name string) (*schedulingv1.PriorityClass, error) {
		if name == "fresh" {
			return priorityClass("fresh", 3, nil, false), nil
		}
		return nil, apierrors.NewNotFound(schedulingv1.Resource("priorityclasses"), name)
	}}
}

func ofPod(pod *corev1.Pod, old runtime.Object, operation admission.Operation) admission.Attributes {
	return admission.NewAttributesRecord(pod, old, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource("pods"), "", operation, nil, false, nil)
}

func number(n int32) *int32 { return &n }

func TestPodPriorityComesFromItsClass(t *testing.T) {
	high, plain, base := priorityClass("high", 1000, &never, false), priorityClass("plain", 10, nil, false), priorityClass("base", 5, &lower, true)
	for name, c := range map[string]struct {
		classes []*schedulingv1.PriorityClass
		spec    corev1.PodSpec
		class   string
		value   int32
		policy  *corev1.PreemptionPolicy
		refused string
	}{
		"no class, no default":            {spec: corev1.PodSpec{}, value: 0, policy: &lower},
		"no class, a default":             {classes: []*schedulingv1.PriorityClass{high, base}, class: "base", value: 5, policy: &lower},
		"two defaults":                    {classes: []*schedulingv1.PriorityClass{priorityClass("z", 9, nil, true), base}, class: "base", value: 5, policy: &lower},
		"a class":                         {classes: []*schedulingv1.PriorityClass{high, base}, spec: corev1.PodSpec{PriorityClassName: "high"}, class: "high", value: 1000, policy: &never},
		"a class without a policy":        {classes: []*schedulingv1.PriorityClass{plain}, spec: corev1.PodSpec{PriorityClassName: "plain", PreemptionPolicy: &never}, class: "plain", value: 10, policy: &never},
		"a class of this moment":          {spec: corev1.PodSpec{PriorityClassName: "fresh"}, class: "fresh", value: 3},
		"a class that is not there":       {spec: corev1.PodSpec{PriorityClassName: "gone"}, refused: "no PriorityClass with name gone was found"},
		"the number of the class":         {classes: []*schedulingv1.PriorityClass{high}, spec: corev1.PodSpec{PriorityClassName: "high", Priority: number(1000)}, class: "high", value: 1000, policy: &never},
		"another number":                  {classes: []*schedulingv1.PriorityClass{high}, spec: corev1.PodSpec{PriorityClassName: "high", Priority: number(7)}, refused: "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 1000"},
		"a number and no class":           {spec: corev1.PodSpec{Priority: number(7)}, refused: "computed 0"},
		"another policy than the class's": {classes: []*schedulingv1.PriorityClass{high}, spec: corev1.PodSpec{PriorityClassName: "high", PreemptionPolicy: &lower}, refused: "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: c.spec}
			err := withClasses(t, c.classes...).Admit(t.Context(), ofPod(pod, nil, admission.Create), nil)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("Admit error = %v, want an error that contains %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := pod.Spec
			if got.PriorityClassName != c.class || got.Priority == nil || *got.Priority != c.value ||
				(got.PreemptionPolicy == nil) != (c.policy == nil) || c.policy != nil && *got.PreemptionPolicy != *c.policy {
				t.Errorf("priority = %q %d %q, want %q %d %q", got.PriorityClassName, ptr.Deref(got.Priority, -1), ptr.Deref(got.PreemptionPolicy, ""), c.class, c.value, ptr.Deref(c.policy, ""))
			}
		})
	}
}

// A client that sends its original manifest again does not set the two defaulted fields.
func TestUpdateKeepsDefaultedPriority(t *testing.T) {
	pod := &corev1.Pod{}
	old := &corev1.Pod{Spec: corev1.PodSpec{Priority: number(5), PreemptionPolicy: &never}}
	if err := withClasses(t).Admit(t.Context(), ofPod(pod, old, admission.Update), nil); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.Priority == nil || *pod.Spec.Priority != 5 || pod.Spec.PreemptionPolicy == nil {
		t.Errorf("spec after an update = %+v, want priority 5 and a preemptionPolicy", pod.Spec)
	}
}

func TestSecondGlobalDefaultPriorityClassIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		class     *schedulingv1.PriorityClass
		operation admission.Operation
		refused   bool
	}{
		"another default":             {priorityClass("new", 1, nil, true), admission.Create, true},
		"another becomes the default": {priorityClass("new", 1, nil, true), admission.Update, true},
		"the default itself":          {priorityClass("base", 5, nil, true), admission.Update, false},
		"another class":               {priorityClass("new", 1, nil, false), admission.Create, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := admission.NewAttributesRecord(c.class, nil, schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), "", c.class.Name,
				schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"), "", c.operation, nil, false, nil)
			err := withClasses(t, priorityClass("base", 5, nil, true)).Validate(t.Context(), a, nil)
			if (err != nil) != c.refused {
				t.Error(err)
			}
		})
	}
}
