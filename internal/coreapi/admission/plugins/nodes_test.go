package plugins

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func nodeLister(t *testing.T) corelisters.NodeLister {
	t.Helper()
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for name, labels := range map[string]map[string]string{
		"placed":  {corev1.LabelTopologyZone: "z", corev1.LabelTopologyRegion: "r", "other": "x"},
		"bare":    nil,
		"windows": {corev1.LabelOSStable: "windows"},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NodeStatus{Allocatable: room}}
		if err := indexer.Add(node); err != nil {
			t.Fatal(err)
		}
	}
	return corelisters.NewNodeLister(indexer)
}

func nodeAttributes(obj, old runtime.Object, kind, resource, subresource string, operation admission.Operation) admission.Attributes {
	gv := corev1.SchemeGroupVersion
	return admission.NewAttributesRecord(obj, old, gv.WithKind(kind), "ns", "x", gv.WithResource(resource), subresource, operation, nil, false, nil)
}

func TestNewNodeGetsNotReadyTaint(t *testing.T) {
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: "own", Effect: corev1.TaintEffectNoExecute}
	for name, taints := range map[string][]corev1.Taint{"without taints": nil, "with its own": {own}, "that says so": {notReady, own}} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
		if err := (taintNodesByCondition{}).Admit(t.Context(), nodeAttributes(node, nil, "Node", "nodes", "", admission.Create), nil); err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, taint := range node.Spec.Taints {
			if taint.MatchTaint(&notReady) {
				found++
			}
		}
		if found != 1 || len(node.Spec.Taints) < len(taints) {
			t.Errorf("taints of the node %s = %v, want the given taints and one not-ready taint", name, node.Spec.Taints)
		}
	}
}

func TestPodGetsTopologyLabelsOfItsNode(t *testing.T) {
	p := podTopologyLabels{Nodes: nodeLister(t)}
	there := map[string]string{corev1.LabelTopologyZone: "z", corev1.LabelTopologyRegion: "r"}
	pod := func(node string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeName: node}}
	}
	binding := func(kind, name string) *corev1.Binding {
		return &corev1.Binding{Target: corev1.ObjectReference{Kind: kind, Name: name}}
	}
	for name, c := range map[string]struct {
		obj         metav1.Object
		subresource string
		want        map[string]string
	}{
		"created on its node":           {pod("placed", nil), "", there},
		"that says something else":      {pod("placed", map[string]string{corev1.LabelTopologyZone: "mine"}), "", there},
		"not scheduled yet":             {pod("", nil), "", nil},
		"on a node that does not know":  {pod("bare", nil), "", nil},
		"on a node that is not there":   {pod("later", nil), "", nil},
		"bound":                         {binding("Node", "placed"), "binding", there},
		"bound to something else":       {binding("Pod", "placed"), "binding", nil},
		"in a part that places nothing": {pod("placed", nil), "ephemeralcontainers", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.Admit(t.Context(), nodeAttributes(c.obj.(runtime.Object), nil, "", "pods", c.subresource, admission.Create), nil); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(c.obj.GetLabels(), c.want) {
				t.Errorf("labels after Admit = %v, want %v", c.obj.GetLabels(), c.want)
			}
		})
	}
}

func TestResizeBeyondNodeCapacityIsRejected(t *testing.T) {
	p := podResizeValidator{Nodes: nodeLister(t)}
	pod := func(node, cpu string, generation int64) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: generation}, Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		}}
	}
	for name, c := range map[string]struct {
		node, cpu, subresource string
		generation             int64
		want                   string
		cause                  metav1.CauseType
	}{
		"that has room":         {node: "bare", cpu: "2", subresource: "resize", generation: 2},
		"that has none":         {node: "bare", cpu: "2500m", subresource: "resize", generation: 2, want: "allocatable resources: cpu, requested: 2500, allocatable: 2000", cause: causeCapacity},
		"with Windows":          {node: "windows", cpu: "1", subresource: "resize", generation: 2, want: "only supported on linux nodes", cause: causePlatform},
		"that has gone":         {node: "gone", cpu: "1", subresource: "resize", generation: 2, want: `node "gone" not found`},
		"that is not known yet": {cpu: "9", subresource: "resize", generation: 2},
		"and stays as it is":    {node: "bare", cpu: "9", subresource: "resize", generation: 1},
		"without a subresource": {node: "bare", cpu: "9", generation: 2},
	} {
		t.Run(name, func(t *testing.T) {
			a := nodeAttributes(pod(c.node, c.cpu, c.generation), pod(c.node, "1", 1), "Pod", "pods", c.subresource, admission.Update)
			err := p.Validate(t.Context(), a, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Validate error = %v, want an error that contains %q (empty: no error)", err, c.want)
			}
			if _, is := apierrors.StatusCause(err, c.cause); c.cause != "" && !is {
				t.Errorf("Validate error = %v, want the cause %s", err, c.cause)
			}
		})
	}
}
