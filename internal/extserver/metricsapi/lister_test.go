package metricsapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
)

// listServer serves pages of names. A test can make it refuse requests.
type listServer struct {
	mu     sync.Mutex
	pages  [][]string
	refuse bool
	asked  []url.Values
	accept string
}

func (d *listServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	d.asked, d.accept = append(d.asked, r.URL.Query()), r.Header.Get("Accept")
	if d.refuse {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods is forbidden"}`)
		return
	}
	n := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &n)
	list := map[string]any{"metadata": map[string]any{}}
	if n+1 < len(d.pages) {
		list["metadata"] = map[string]any{"continue": fmt.Sprint(n + 1)}
	}
	items := []any{}
	for _, name := range d.pages[n] {
		items = append(items, map[string]any{
			"metadata": map[string]any{"name": name, "namespace": "ns", "uid": "u", "labels": map[string]string{"of": name}, "annotations": map[string]string{"a": "b"}},
			"status":   map[string]any{"addresses": []any{map[string]string{"type": "InternalIP", "address": "10.0.0.1"}}, "daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]int{"Port": 10251}}},
		})
	}
	list["items"] = items
	_ = json.NewEncoder(w).Encode(list)
}

func startLister(t *testing.T, i *lister) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPodsAreListedInPages(t *testing.T) {
	d := &listServer{pages: [][]string{{"a", "b"}, {"c"}}}
	server := httptest.NewServer(d)
	defer server.Close()
	i, err := newPodLabelLister(listerConfig{Client: &rest.Config{Host: server.URL}, Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if i.HasList() || i.All() != nil {
		t.Error("lister is known before the first list, want unknown and empty")
	}
	startLister(t, i)
	eventually(t, "a list", i.HasList)
	<-i.Listed()
	c, ok := i.Lookup("ns", "c")
	if !ok || c.Labels["of"] != "c" || c.UID != "u" || len(i.All()) != 3 {
		t.Errorf("Lookup(ns, c) = %+v, %t with %d objects in total, want c with its label and UID among 3", c, ok, len(i.All()))
	}
	if c.Annotations != nil || c.Addresses != nil {
		t.Errorf("object = %+v, want only labels", c)
	}
	d.mu.Lock()
	if q := d.asked[0]; q.Get("fieldSelector") != "status.phase=Running" || q.Get("limit") == "" || !strings.Contains(d.accept, "as=PartialObjectMetadataList") {
		t.Errorf("first request = %v with Accept %s, want running Pods in pages of metadata", q, d.accept)
	}
	d.pages = [][]string{{"d"}}
	d.mu.Unlock()
	eventually(t, "the next list", func() bool { _, ok := i.Lookup("ns", "d"); return ok })
	d.mu.Lock()
	d.refuse = true
	d.mu.Unlock()
	eventually(t, "trouble", func() bool { return i.LastError() != nil })
	if _, ok := i.Lookup("ns", "d"); !ok || !strings.Contains(i.LastError().Error(), "list pods: ") || !strings.Contains(i.LastError().Error(), "forbidden") {
		t.Errorf("Lookup after a refused list = %t, LastError = %v, want the last list and \"forbidden\"", ok, i.LastError())
	}
	d.mu.Lock()
	d.refuse = false
	d.mu.Unlock()
	eventually(t, "the end of trouble", func() bool { return i.LastError() == nil })
}

func TestNodesAreListedAsWholeObjects(t *testing.T) {
	server := httptest.NewServer(&listServer{pages: [][]string{{"n1"}}})
	defer server.Close()
	i, err := newNodeLister(listerConfig{Client: &rest.Config{Host: server.URL}, Labels: "zone=a"})
	if err != nil {
		t.Fatal(err)
	}
	startLister(t, i)
	eventually(t, "a list", i.HasList)
	if n := i.All()[0]; n.KubeletPort != 10251 || len(n.Addresses) != 1 || n.Addresses[0].Address != "10.0.0.1" || n.Annotations["a"] != "b" {
		t.Errorf("node = %+v, want its kubelet port, address and annotations", n)
	}
}

// The lister keeps the same Nodes that client-go's pager reads from the same server.
func TestListedNodesMatchClientGo(t *testing.T) {
	server := httptest.NewServer(&listServer{pages: [][]string{{"n1", "n2"}, {"n3"}}})
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	i, err := newNodeLister(listerConfig{Client: config})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := i.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	library, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	pages := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return library.CoreV1().Nodes().List(t.Context(), options)
	}))
	if err := pages.EachListItem(t.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
		node := o.(*corev1.Node)
		n++
		want := listedObject{Namespace: node.Namespace, Name: node.Name, UID: string(node.UID), Labels: node.Labels, Annotations: node.Annotations,
			Addresses: node.Status.Addresses, KubeletPort: int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)}
		if got := ours[listedKey{node.Namespace, node.Name}]; !reflect.DeepEqual(got, want) {
			t.Errorf("node = %+v, want %+v from client-go", got, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n != 3 || len(ours) != n {
		t.Errorf("lister has %d nodes, client-go %d, want 3", len(ours), n)
	}
}

func TestEndlessPagesAreAborted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"metadata":{"continue":"more"},"items":[]}`)
	}))
	defer server.Close()
	i, err := newNodeLabelLister(listerConfig{Client: &rest.Config{Host: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	startLister(t, i)
	eventually(t, "trouble", func() bool { return i.LastError() != nil })
	if i.HasList() {
		t.Error("lister is known after an incomplete list, want unknown")
	}
}
