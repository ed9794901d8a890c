package plugins

import (
	"context"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	nodelisters "k8s.io/client-go/listers/node/v1"
	"k8s.io/client-go/tools/cache"
)

func cpuList(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

func newClass(name string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "x"}
}

// runtimeClassPlugin has the class "full" in its lister and "fresh" only in storage.
func runtimeClassPlugin(t *testing.T) runtimeClass {
	t.Helper()
	full := newClass("full")
	full.Overhead = &nodev1.Overhead{PodFixed: cpuList("250m")}
	full.Scheduling = &nodev1.Scheduling{
		NodeSelector: map[string]string{"disk": "fast"},
		Tolerations:  []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}, {Key: "b", Value: "1"}},
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	if err := indexer.Add(full); err != nil {
		t.Fatal(err)
	}
	return runtimeClass{Classes: nodelisters.NewRuntimeClassLister(indexer), Get: func(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
		if name == "fresh" {
			return newClass(name), nil
		}
		return nil, apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), name)
	}}
}

func createAttributes(pod *corev1.Pod, subresource string) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource("pods"), subresource, admission.Create, nil, false, nil)
}

func TestRuntimeClassSetsOverheadAndScheduling(t *testing.T) {
	named := func(name string) corev1.PodSpec { return corev1.PodSpec{RuntimeClassName: &name} }
	with := func(spec corev1.PodSpec, change func(*corev1.PodSpec)) corev1.PodSpec {
		change(&spec)
		return spec
	}
	full := with(named("full"), func(s *corev1.PodSpec) {
		s.Overhead, s.NodeSelector = cpuList("250m"), map[string]string{"disk": "fast"}
		s.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}, {Key: "b", Value: "1"}}
	})
	for name, c := range map[string]struct {
		spec, want corev1.PodSpec
		refused    string
	}{
		"no class":                      {},
		"an overhead without a class":   {spec: corev1.PodSpec{Overhead: cpuList("1")}, refused: "without corresponding RuntimeClass defined Overhead"},
		"a class that is not there":     {spec: named("gone"), refused: `pod rejected: RuntimeClass "gone" not found`},
		"a class of this moment":        {spec: named("fresh"), want: named("fresh")},
		"an overhead the class has not": {spec: with(named("fresh"), func(s *corev1.PodSpec) { s.Overhead = cpuList("1") }), refused: "without corresponding"},
		"all that a class can say":      {spec: named("full"), want: full},
		"the same overhead":             {spec: with(named("full"), func(s *corev1.PodSpec) { s.Overhead = cpuList("0.25") }), want: full},
		"another overhead":              {spec: with(named("full"), func(s *corev1.PodSpec) { s.Overhead = cpuList("1") }), refused: "doesn't match RuntimeClass's defined Overhead"},
		"another node":                  {spec: with(named("full"), func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"disk": "slow"} }), refused: "conflict: runtimeClass.scheduling.nodeSelector[disk] = fast"},
		"a toleration that the class's covers": {
			spec: with(named("full"), func(s *corev1.PodSpec) {
				s.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpEqual, Value: "9"}, {Key: "c", Operator: corev1.TolerationOpExists}}
			}),
			want: with(full, func(s *corev1.PodSpec) {
				s.Tolerations = append([]corev1.Toleration{{Key: "c", Operator: corev1.TolerationOpExists}}, s.Tolerations...)
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, pod := runtimeClassPlugin(t), &corev1.Pod{Spec: *c.spec.DeepCopy()}
			err := p.Admit(t.Context(), createAttributes(pod, ""), nil)
			if err == nil {
				err = p.Validate(t.Context(), createAttributes(pod, ""), nil)
			}
			if c.refused != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("Admit error = %v, want Forbidden that contains %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := pod.Spec
			if got.Overhead.Cpu().Cmp(*c.want.Overhead.Cpu()) != 0 || !reflect.DeepEqual(got.NodeSelector, c.want.NodeSelector) ||
				!reflect.DeepEqual(got.Tolerations, c.want.Tolerations) {
				t.Errorf("spec after Admit = %+v, want the overhead, nodeSelector and tolerations of %+v", got, c.want)
			}
		})
	}
}

func TestRuntimeClassIgnoresBindingsAndUpdates(t *testing.T) {
	gone := "gone"
	pod := &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: &gone}}
	if err := runtimeClassPlugin(t).Admit(t.Context(), createAttributes(pod, "binding"), nil); err != nil {
		t.Errorf("Admit of the subresource binding failed: %v, want no error", err)
	}
	if (runtimeClass{}).Handles(admission.Update) {
		t.Error("Handles(Update) = true, want false: a pod whose class is deleted could not be updated")
	}
	if err := (runtimeClass{}).Admit(t.Context(), createAttributes(pod, ""), nil); !apierrors.IsForbidden(err) {
		t.Errorf("Admit without classes: error = %v, want Forbidden", err)
	}
}

// The plugin does not modify the cached class.
func TestCachedRuntimeClassIsNotModified(t *testing.T) {
	p := runtimeClassPlugin(t)
	name := "full"
	pod := &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: &name}}
	if err := p.Admit(t.Context(), createAttributes(pod, ""), nil); err != nil {
		t.Fatal(err)
	}
	pod.Spec.Overhead[corev1.ResourceCPU] = resource.MustParse("9")
	pod.Spec.NodeSelector["disk"] = "slow"
	kept, err := p.Classes.Get("full")
	if err != nil {
		t.Fatal(err)
	}
	if kept.Overhead.PodFixed.Cpu().String() != "250m" || kept.Scheduling.NodeSelector["disk"] != "fast" {
		t.Errorf("cached class after Admit = %+v, want it unchanged", kept)
	}
}
