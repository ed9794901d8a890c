package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
)

const declaredQueues = `apiVersion: extension.portico.dev/v1alpha1
kind: ResourceDefinitions
resources:
- group: stats.example.com
  version: v1
  plural: queues
  kind: Queue
  every: 1s
  source: {file: {path: %q}}
  items: .*
  object: {name: "@key", fields: {status.depth: .}}
`

// An informer works with every resource. It lists, watches and stores a resource from a YAML file as any other one.
func TestInformerOnADeclaredResource(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	dir := t.TempDir()
	data, file := filepath.Join(dir, "queues.json"), filepath.Join(dir, "queues.yaml")
	write := func(file, text string) {
		// Renamed into place: the server must not read half of it.
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(data, `{"orders": 3, "mail": 0}`)
	write(file, fmt.Sprintf(declaredQueues, data))

	config := frontDoor(t)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(asKubeconfig(config), kubeconfig); err != nil {
		t.Fatal(err)
	}
	server, err := startProcess("extserver", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, "extserver", "serve", "--kubeconfig", kubeconfig,
		"--bind-address", "127.0.0.1", "--secure-port", "0", "--service-name", "declared", "--metrics-source", "none", "--resources", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Finish(t)
		server.Show(t)
	})

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(schema.GroupVersionResource{Group: "stats.example.com", Version: "v1", Resource: "queues"}).Informer()
	seen := make(chan string, 100)
	tell := func(what string, o any) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			t.Errorf("type of the object in the event %s = %T, want *unstructured.Unstructured", what, o)
			return
		}
		depth, _, _ := unstructured.NestedInt64(u.Object, "status", "depth")
		seen <- fmt.Sprintf("%s %s %d", what, u.GetName(), depth)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tell("add", o) },
		UpdateFunc: func(_, o any) { tell("update", o) },
		DeleteFunc: func(o any) { tell("delete", o) },
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	expect := func(want ...string) {
		t.Helper()
		left := map[string]bool{}
		for _, w := range want {
			left[w] = true
		}
		deadline := time.After(programs.Patience)
		for len(left) > 0 {
			select {
			case got := <-seen:
				if !left[got] {
					t.Errorf("event %q arrived, want one of %q", got, want)
				}
				delete(left, got)
			case <-deadline:
				t.Fatalf("events that did not arrive = %v, want none", left)
			}
		}
	}
	expect("add orders 3", "add mail 0")
	if err := programs.Poll(nil, func() error {
		if informer.HasSynced() {
			return nil
		}
		return errNotSynced
	}); err != nil {
		t.Fatal(err)
	}
	write(data, `{"orders": 7, "returns": 1}`)
	expect("update orders 7", "add returns 1", "delete mail 0")
}
