package garbage

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pairOf returns an owner and its dependent, each with a distinct name and a UID in the form that servers use.
func pairOf(i int) (owner, dependent *metav1.PartialObjectMetadata) {
	block := true
	meta := func(kind string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("%s-of-a-usual-length-%06d", kind, i),
			UID:         types.UID(fmt.Sprintf("%s0000-0000-4000-8000-%012d", kind, i)),
			Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": fmt.Sprintf("%02000d", i)},
			Labels:      map[string]string{"app": fmt.Sprintf("app-%d", i)}, OwnerReferences: owners,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(fmt.Sprintf("%01000d", i))}},
		}}
	}
	owner = meta("ownr")
	dependent = meta("dpdt", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &block})
	return owner, dependent
}

func graphOf(pairs int) (*graph, *resource) {
	g := newGraph(func(key, time.Duration) {}, func(types.UID) {})
	r := g.adopt(resourceID{GroupResource: configMaps.GroupResource()}, true, true, "v1", time.Now())
	for i := range pairs {
		owner, dependent := pairOf(i)
		g.observe(r, owner)
		g.observe(r, dependent)
	}
	return g, r
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func bytesPerObject(objects int) float64 {
	before := heap()
	g, r := graphOf(objects / 2)
	after := heap()
	runtime.KeepAlive(r)
	runtime.KeepAlive(g)
	return float64(after-before) / float64(objects)
}

// The memory for an object must not grow with its annotations and managed fields.
func TestGraphMemoryPerObjectIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds with the race detector")
	}
	if b := bytesPerObject(50_000); b > 1024 {
		t.Errorf("%.0f bytes for each of 50,000 objects, want at most 1024", b)
	} else {
		t.Logf("%.0f bytes for each of 50,000 objects", b)
	}
}

func BenchmarkObserve(b *testing.B) {
	objects := make([]*metav1.PartialObjectMetadata, 0, 10_000)
	for i := range cap(objects) / 2 {
		owner, dependent := pairOf(i)
		objects = append(objects, owner, dependent)
	}
	g, r := graphOf(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		g.observe(r, objects[i%len(objects)])
	}
}

func BenchmarkBytesPerObject(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(bytesPerObject(50_000), "B/object")
	}
}
