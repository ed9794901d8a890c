package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/e2e/programs"
)

var errNotSynced = errors.New("the informer has not synced")

// frontDoor starts `aggregator dev` and returns an administrator's client configuration for it.
func frontDoor(t *testing.T) *rest.Config {
	t.Helper()
	dev, file, err := programs.StartDev(binaries, t.TempDir(), nil)
	if dev != nil {
		t.Cleanup(func() {
			dev.Finish(t)
			dev.Show(t)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // client-go would let five requests a second through
	return config
}

// Controllers use protobuf. Their reads and writes must be equivalent to those of other clients.
func TestProtobufClient(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	config := frontDoor(t)
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	config.ContentType = runtime.ContentTypeProtobuf
	var answered []string
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil {
				answered = append(answered, response.Header.Get("Content-Type"))
			}
			return response, err
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, configMaps := t.Context(), client.CoreV1().ConfigMaps("default")

	created, err := configMaps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "binary"}, BinaryData: map[string][]byte{"bytes": {0, 1, 254, 255}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := configMaps.Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion, FieldSelector: "metadata.name=binary"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	created.Data = map[string]string{"text": "more"}
	if _, err := configMaps.Update(ctx, created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-w.ResultChan():
		if got, ok := e.Object.(*corev1.ConfigMap); e.Type != watch.Modified || !ok || got.Data["text"] != "more" || string(got.BinaryData["bytes"]) != "\x00\x01\xfe\xff" {
			t.Errorf("watch event = %s %+v, want MODIFIED with the updated data", e.Type, e.Object)
		}
	case <-time.After(programs.Patience):
		t.Fatal("no event arrived in time, want MODIFIED")
	}
	if err := configMaps.Delete(ctx, "binary", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, contentType := range answered {
		if !strings.HasPrefix(contentType, runtime.ContentTypeProtobuf) {
			t.Errorf("Content-Type of a response = %q, want protobuf", contentType)
		}
	}
}

// Informers start with a watch that begins with the list (WatchList) and a bookmark at its end.
func TestInformer(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	config := frontDoor(t)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	seen := make(chan string, 100)
	informer := factory.Core().V1().Namespaces().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { seen <- o.(*corev1.Namespace).Name },
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	if err := programs.Poll(nil, func() error {
		if informer.HasSynced() {
			return nil
		}
		return errNotSynced
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"default": true, "kube-system": true, "kube-public": true, "kube-node-lease": true, "later": true}
	deadline := time.After(programs.Patience)
	for len(want) > 0 {
		select {
		case name := <-seen:
			delete(want, name)
		case <-deadline:
			t.Fatalf("objects that the informer did not receive = %v, want none", want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
