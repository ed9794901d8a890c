package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	gadgets     = schema.GroupVersionResource{Group: "clients.portico.dev", Version: "v1", Resource: "gadgets"}
)

// The APIServices of an extension server and of one that is not there.
const (
	remote = "v1.stats.example.com"
	dead   = "v1.dead.example.com"
)

// register creates the APIService of an extension server with a data file, and the APIService of a dead server.
func (w *testEnv) register() {
	w.t.Helper()
	w.write(w.t, "declared.yaml", []byte(`
apiVersion: extension.portico.dev/v1alpha1
kind: ResourceDefinitions
resources:
- group: stats.example.com
  version: v1
  plural: queues
  kind: Queue
  namespaced: true
  every: 1s
  source: {file: {path: `+w.path("queues.json")+`}}
  items: .data[*]
  object:
    name: .id
    namespace: .team
    fields: {status.depth: {from: .depth, type: integer}}
`))
	w.queue(w.t, "default/first", 1)
	w.startBackend()
	nobody := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": dead},
		"spec": map[string]any{
			"group": "dead.example.com", "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
			"service": map[string]any{"namespace": "default", "name": "nobody"},
		},
	}}
	if _, err := w.dynamic.Resource(apiServices).Create(context.Background(), nobody, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the APIService "+remote, func(ctx context.Context) error { return w.available(ctx, remote, "") })
}

func (w *testEnv) startBackend() {
	w.t.Helper()
	w.backend = w.start(w.t, "extension-server", nil, "extserver", "serve", "--kubeconfig", w.path("admin.kubeconfig"),
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--metrics-source", "none", "--resources", "declared.yaml").process
}

// queue sets the depth of a queue, or removes the queue with a negative depth.
func (w *testEnv) queue(t *testing.T, key string, depth int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queues[key] = depth; depth < 0 {
		delete(w.queues, key)
	}
	type item struct {
		ID    string `json:"id"`
		Team  string `json:"team"`
		Depth int    `json:"depth"`
	}
	var data []item
	for key, depth := range w.queues {
		namespace, name, _ := cutKey(key)
		data = append(data, item{name, namespace, depth})
	}
	text, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, "queues.json", text)
}

// available checks that an APIService is available and has another UID than the given one.
func (w *testEnv) available(ctx context.Context, name, not string) error {
	o, err := w.dynamic.Resource(apiServices).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if string(o.GetUID()) == not {
		return errStill
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Available" {
			if c["status"] == "True" {
				return nil
			}
			return fmt.Errorf("%s: %v", c["reason"], c["message"])
		}
	}
	return errors.New("has no condition")
}

// unregister deletes an APIService and waits until its path is not served any more. It returns the deleted object.
func (w *testEnv) unregister(name, path string) *unstructured.Unstructured {
	w.t.Helper()
	ctx := context.Background()
	o, err := w.dynamic.Resource(apiServices).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.dynamic.Resource(apiServices).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if path != "" {
		w.eventually(path+" without its APIService", func(ctx context.Context) error {
			if _, err := w.typed.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx); !apierrors.IsNotFound(err) {
				return errors.Join(errStill, err)
			}
			return nil
		})
	}
	return o
}

// reregister deletes the APIService of the extension server and writes it again, and deletes some that the front door
// writes again itself.
func (w *testEnv) reregister(local ...string) {
	w.t.Helper()
	gone := map[string]string{}
	for _, name := range local {
		gone[name] = string(w.unregister(name, "").GetUID())
	}
	o := w.unregister(remote, "/apis/stats.example.com/v1")
	gone[remote] = string(o.GetUID())
	again := &unstructured.Unstructured{Object: map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "spec": o.Object["spec"]}}
	again.SetName(remote)
	again.SetLabels(o.GetLabels())
	again.SetAnnotations(o.GetAnnotations())
	// The extension server may have been quicker.
	if _, err := w.dynamic.Resource(apiServices).Create(context.Background(), again, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
	for name, uid := range gone {
		w.eventually("the APIService "+name+" comes back", func(ctx context.Context) error { return w.available(ctx, name, uid) })
	}
}
