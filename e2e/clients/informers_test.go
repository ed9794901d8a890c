package clients

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/e2e/compat"
)

// informers is e2e/clients/informers in one of two modes.
type informers struct {
	*program
	of   *compat.Party
	name string
	env  []string
}

// The resources of the informers.
const (
	typedMaps      = "typed:/v1/configmaps"
	dynamicMaps    = "dynamic:/v1/configmaps"
	metadataMaps   = "metadata:/v1/configmaps"
	dynamicGadgets = "dynamic:clients.portico.dev/v1/gadgets"
	metaGadgets    = "metadata:clients.portico.dev/v1/gadgets"
	dynamicQueues  = "dynamic:stats.example.com/v1/queues"
	metaQueues     = "metadata:stats.example.com/v1/queues"
)

func (i *informers) party() *compat.Party { return i.of }

func (i *informers) begin(t *testing.T, w *testEnv) {
	all := []string{typedMaps, dynamicMaps, metadataMaps, dynamicGadgets, metaGadgets, dynamicQueues, metaQueues}
	i.program = w.start(t, i.name, i.env, "informers", append([]string{w.path("admin.kubeconfig")}, all...)...)
	i.of.LogsIn(i.log)
	book.Step(t, i.of, follows, func(t *testing.T) {
		for _, what := range all {
			i.awaits(t, what+" synced")
			if asked := i.said.with(what + " watch-lists: 200"); (asked > 0) != (i.of == watchLists) {
				t.Errorf("informer of %s sent %d watches with initial events, want some only in that mode; it logs to %s", what, asked, i.log)
			}
			if asked := i.said.with(what + " lists: 200"); (asked > 0) != (i.of == lists) {
				t.Errorf("informer of %s sent %d lists, want some only in that mode; it logs to %s", what, asked, i.log)
			}
		}
		if i.said.with(typedMaps, "application/vnd.kubernetes.protobuf") == 0 {
			t.Errorf("typed informers received no protobuf, want some; they log to %s", i.log)
		}
		i.works(t, w, "begun", i.name+"-begun")
	})
}

// works creates, changes and deletes objects of every kind. Every informer must report each event exactly once.
func (i *informers) works(t *testing.T, w *testEnv, namespace, name string) {
	name = strings.TrimPrefix(name, i.name+"-")
	w.namespace(t, namespace)
	ctx, name, maps := context.Background(), i.name+"-"+name, w.typed.CoreV1().ConfigMaps(namespace)
	key := namespace + "/" + name
	local := []string{typedMaps, dynamicMaps, metadataMaps}
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i.all(t, local, "add "+key+" at "+made.ResourceVersion)
	for n := range 3 {
		if made, err = maps.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	i.all(t, local, "update "+key+" at "+made.ResourceVersion)
	if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	i.all(t, local, "delete "+key+" ")
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name + "-kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	i.all(t, local, "add "+key+"-kept at ")

	g, custom := gadget(name, "red"), []string{dynamicGadgets, metaGadgets}
	eventually(t, "make gadget "+key, func(ctx context.Context) error {
		_, err := w.dynamic.Resource(gadgets).Namespace(namespace).Create(ctx, g, metav1.CreateOptions{})
		return err
	})
	i.all(t, custom, "add "+key+" at ")
	if err := w.dynamic.Resource(gadgets).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	i.all(t, custom, "delete "+key+" ")

	remote := []string{dynamicQueues, metaQueues}
	w.queue(t, key, 1)
	i.all(t, remote, "add "+key+" at ")
	w.queue(t, key, 2)
	i.all(t, remote, "update "+key+" at ")
	w.queue(t, key, -1)
	i.all(t, remote, "delete "+key+" ")
	i.right(t)
}

// all waits until every informer has received an event, and fails if one received it twice.
func (i *informers) all(t *testing.T, informers []string, event string) {
	t.Helper()
	for _, informer := range informers {
		i.once(t, informer+" "+event)
	}
}

// right fails if an informer received an invalid event.
func (i *informers) right(t *testing.T) {
	t.Helper()
	if n := i.said.with("WRONG"); n > 0 {
		t.Fatalf("%d invalid events, want 0: grep WRONG %s", n, i.log)
	}
}

// saw checks that every informer has received each ConfigMap, and the queue that was created in between, once.
func (i *informers) saw(t *testing.T, namespace string, names []string) {
	t.Helper()
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		i.all(t, []string{typedMaps, dynamicMaps, metadataMaps}, "add "+namespace+"/"+name+" at ")
	}
	i.all(t, []string{dynamicQueues, metaQueues}, "add "+namespace+"/meanwhile at ")
	i.right(t)
}

func (i *informers) emptied(t *testing.T, w *testEnv, namespace, name string) {
	i.all(t, []string{typedMaps, dynamicMaps, metadataMaps}, "delete "+namespace+"/"+i.name+"-"+name+"-kept ")
	i.right(t)
	w.namespace(t, namespace)
}
