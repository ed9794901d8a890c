package thirdparty

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"

	"portico.dev/e2e/programs"
)

func sampleIsWatched(t *testing.T, d *frontDoor) {
	ctx := t.Context()
	client := must[dynamic.Interface](t)(dynamic.NewForConfig(d.endless))
	objects := client.Resource(flunders).Namespace("default")
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	options := metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true, FieldSelector: "metadata.name=watched"}
	w, err := objects.Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	u, err := objects.Create(ctx, flunder("watched", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.SetLabels(map[string]string{"changed": "yes"})
	if _, err := objects.Update(ctx, u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := objects.Delete(ctx, "watched", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, w, watch.Added, watch.Modified, watch.Deleted)

	// A watch from the earlier version repeats all events.
	again, err := objects.Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	await(t, again, watch.Added, watch.Modified, watch.Deleted)

	// A list by watch ends with a bookmark.
	yes := true
	options = metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true, LabelSelector: "no=such"}
	initial, err := objects.Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer initial.Stop()
	await(t, initial, watch.Bookmark)
}

// await expects events of these types, with only bookmarks between them.
func await(t *testing.T, w watch.Interface, want ...watch.EventType) {
	t.Helper()
	late := time.After(programs.Patience)
	for len(want) > 0 {
		select {
		case e, open := <-w.ResultChan():
			switch {
			case !open:
				t.Fatalf("the watch ended, want the events %v", want)
			case e.Type == want[0]:
				want = want[1:]
			case e.Type != watch.Bookmark:
				t.Fatalf("watched %s %v, want %s", e.Type, e.Object, want[0])
			}
		case <-late:
			t.Fatalf("events that did not arrive in time = %v, want none", want)
		}
	}
}

// sampleInforms has an informer of client-go list by watching, which it does without saying so when a server cannot.
func sampleInforms(t *testing.T, d *frontDoor) {
	var mu sync.Mutex
	var asked []string
	config := rest.CopyConfig(d.endless)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, fmt.Sprintf("%d %s", response.StatusCode, r.URL.RawQuery))
			}
			return response, err
		})
	})
	client := must[dynamic.Interface](t)(dynamic.NewForConfig(config))
	if _, err := client.Resource(flunders).Namespace("default").Create(t.Context(), flunder("informed", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(flunders).Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	eventually(t, "the informer knows", func() error {
		if _, known, err := informer.GetStore().GetByKey("default/informed"); err != nil || !known || !informer.HasSynced() {
			return fmt.Errorf("known: %v, synced: %v, %w", known, informer.HasSynced(), err)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	for _, a := range asked[1:] { // after the creation
		if !strings.HasPrefix(a, "200 ") || !strings.Contains(a, "sendInitialEvents=true") {
			t.Errorf("requests of the informer = %q, want only watches with initial events", asked)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func sampleOverWebsocket(t *testing.T, d *frontDoor) {
	if _, err := d.dynamic.Resource(flunders).Namespace("default").Create(t.Context(), flunder("framed", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path := "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders?watch=1&fieldSelector=metadata.name%3Dframed"
	conn, _, err := dial(t, d.config, path, http.Header{"Origin": {d.config.Host}})
	if err != nil {
		t.Fatal(err)
	}
	_, frame, err := conn.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	var event metav1.WatchEvent
	if err := json.Unmarshal(frame, &event); err != nil || event.Type != string(watch.Added) || !strings.Contains(string(event.Object.Raw), `"framed"`) {
		t.Errorf("frame of the watch = %q, %v; want ADDED of framed", frame, err)
	}
	if _, code, err := dial(t, d.config, path, nil); err == nil || code != http.StatusForbidden {
		t.Errorf("dial without an Origin = %d, %v; want 403", code, err)
	}
}

// dial opens a websocket and returns the status code when it is refused.
func dial(t *testing.T, config *rest.Config, path string, header http.Header) (*websocket.Conn, int, error) {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{TLSClientConfig: tlsConfig, HandshakeTimeout: time.Minute}
	conn, response, err := dialer.DialContext(t.Context(), "wss"+strings.TrimPrefix(config.Host, "https")+path, header)
	if err != nil {
		if response == nil {
			return nil, 0, err
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return nil, response.StatusCode, fmt.Errorf("%w: %s: %s", err, response.Status, body)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, response.StatusCode, conn.SetReadDeadline(time.Now().Add(programs.Patience))
}
