package extension_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico.dev/pkg/extension"
)

// event is one line of a JSON watch.
type event struct {
	Type   string
	Object struct {
		Kind, Reason string
		Metadata     metav1.ObjectMeta
		Depth        int64
		Rows         []struct{ Cells []any }
		Columns      []any `json:"columnDefinitions"`
	}
}

// watching is an open watch.
type watching struct {
	t        *testing.T
	response *http.Response
	lines    *json.Decoder
	cancel   context.CancelFunc
}

func (s *server) watch(path string, headers ...string) *watching {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	s.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	must(s.t, err)
	r.Header.Set("X-Test-User", "alice")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := s.client.Do(r)
	must(s.t, err)
	s.t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		s.t.Fatalf("GET %s with watch = %d, want 200; body: %s", path, response.StatusCode, body)
	}
	return &watching{t: s.t, response: response, lines: json.NewDecoder(response.Body), cancel: cancel}
}

func (w *watching) next() event {
	w.t.Helper()
	var e event
	if err := w.lines.Decode(&e); err != nil {
		w.t.Fatalf("read of the next event failed: %v, want an event", err)
	}
	return e
}

// sees reads events and compares them with "TYPE name" (bookmarks have no name).
func (w *watching) sees(wants ...string) (last event) {
	w.t.Helper()
	for _, want := range wants {
		last = w.next()
		if got := strings.TrimSpace(last.Type + " " + last.Object.Metadata.Name); got != want {
			w.t.Fatalf("events = %q, want %q", got, want)
		}
	}
	return last
}

func version(t *testing.T, text string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(text, 10, 64)
	must(t, err)
	return v
}

const streaming = queuesPath + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

func TestWatchList(t *testing.T) {
	t.Parallel()
	q := twoQueues()
	s := start(t, nil, extension.Of(queueDefinition(), q))
	w := s.watch(streaming)
	first := w.sees("ADDED orders")
	end := w.sees("ADDED mails", "BOOKMARK")
	if end.Object.Kind != "Queue" || end.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Fatalf("event after the initial objects = %+v, want a bookmark with the initial-events-end annotation", end)
	}
	if version(t, end.Object.Metadata.ResourceVersion) < version(t, first.Object.Metadata.ResourceVersion) {
		t.Errorf("version of the bookmark = %s, want at least %s, the version of an object", end.Object.Metadata.ResourceVersion, first.Object.Metadata.ResourceVersion)
	}

	q.set(queue("team-a", "orders", 4, "tier=fast"), queue("team-c", "bills", 1))
	deleted := w.sees("MODIFIED orders", "DELETED mails")
	added := w.sees("ADDED bills")
	if d, a := version(t, deleted.Object.Metadata.ResourceVersion), version(t, added.Object.Metadata.ResourceVersion); d >= a || d <= version(t, end.Object.Metadata.ResourceVersion) {
		t.Errorf("versions = bookmark %s, deleted %d, added %d, want increasing versions", end.Object.Metadata.ResourceVersion, d, a)
	}
	if deleted.Object.Depth != 7 {
		t.Errorf("depth in the DELETED event = %d, want 7, the last state", deleted.Object.Depth)
	}

	// Versions of lists and watches belong to one sequence.
	var list struct{ Metadata metav1.ListMeta }
	must(t, json.Unmarshal(s.get(queuesPath).body, &list))
	if list.Metadata.ResourceVersion != added.Object.Metadata.ResourceVersion {
		t.Errorf("version of the list = %s, want %s, the version of the last event", list.Metadata.ResourceVersion, added.Object.Metadata.ResourceVersion)
	}
	again := s.watch(queuesPath + "?watch=true&resourceVersion=" + deleted.Object.Metadata.ResourceVersion)
	again.sees("ADDED bills")
}

func TestWatchSelectsAndTranslatesTransitions(t *testing.T) {
	t.Parallel()
	q := twoQueues()
	s := start(t, nil, extension.Of(queueDefinition(), q))
	w := s.watch(streaming + "&labelSelector=tier%3Dfast")
	w.sees("ADDED orders", "BOOKMARK")
	q.set(queue("team-a", "orders", 3, "tier=slow"), queue("team-b", "mails", 7, "tier=fast"))
	w.sees("DELETED orders", "ADDED mails")
}

func TestWatchParametersSelectInitialEvents(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	var list struct{ Metadata metav1.ListMeta }
	must(t, json.Unmarshal(s.get(queuesPath).body, &list))
	now := list.Metadata.ResourceVersion
	for _, c := range []struct {
		situation, query string
		want             []string
	}{
		{"no version: what exists comes first", "watch=true&timeoutSeconds=3", []string{"ADDED orders", "ADDED mails"}},
		{"version 0", "watch=true&resourceVersion=0&timeoutSeconds=3", []string{"ADDED orders", "ADDED mails"}},
		{"no initial events", "watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=3", nil},
		{"version of now", "watch=true&resourceVersion=" + now + "&timeoutSeconds=3", nil},
		{"last bookmark", "watch=true&allowWatchBookmarks=true&resourceVersion=" + now + "&timeoutSeconds=3", []string{"BOOKMARK"}},
		{"initial events without bookmarks", "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=3",
			[]string{"ADDED orders", "ADDED mails"}},
		{"one object", "watch=true&fieldSelector=metadata.name%3Dmails&timeoutSeconds=3", []string{"ADDED mails"}},
	} {
		t.Run(c.situation, func(t *testing.T) {
			t.Parallel()
			w := s.watch(queuesPath + "?" + c.query)
			w.t = t
			w.sees(c.want...)
			if err := w.lines.Decode(&event{}); !errors.Is(err, io.EOF) {
				t.Errorf("read after the timeout of the watch: error = %v, want io.EOF", err)
			}
		})
	}
}

func TestInvalidWatchesAreRejected(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	for _, c := range []struct {
		situation, query string
		code             int
		want             string
	}{
		{"version from an earlier life", "watch=true&resourceVersion=5", http.StatusGone, `"reason":"Expired"`},
		{"version from the future", "watch=true&resourceVersion=18446744073709551615", http.StatusGatewayTimeout, "ResourceVersionTooLarge"},
		{"initial events without match", "watch=true&sendInitialEvents=true", http.StatusUnprocessableEntity, "resourceVersionMatch"},
		{"match without initial events", "watch=true&resourceVersion=1&resourceVersionMatch=NotOlderThan", http.StatusUnprocessableEntity, ""},
		{"unknown field", "watch=true&fieldSelector=x%3Dy", http.StatusBadRequest, "x"},
	} {
		t.Run(c.situation, func(t *testing.T) { s.get(queuesPath+"?"+c.query).wants(t, c.code, c.want) })
	}
	s.get(queuesPath+"?watch=true", "Accept: application/yaml").wants(t, http.StatusNotAcceptable)
}

func TestWatchAsTable(t *testing.T) {
	t.Parallel()
	q := twoQueues()
	s := start(t, nil, extension.Of(queueDefinition(), q))
	w := s.watch(streaming, tableAccept)
	first, second := w.next(), w.next()
	if first.Object.Kind != "Table" || len(first.Object.Rows) != 1 || first.Object.Rows[0].Cells[0] != "orders" || len(first.Object.Columns) != 2 {
		t.Errorf("first event = %+v, want a Table with two columns and the row orders", first)
	}
	if len(second.Object.Columns) != 0 {
		t.Errorf("second event = %+v, want a Table without columns", second)
	}
	if b := w.next(); b.Type != "BOOKMARK" || b.Object.Metadata.ResourceVersion == "" {
		t.Errorf("third event = %+v, want a bookmark with a version", b)
	}
}

func TestWatchOfMetadataInProtobuf(t *testing.T) {
	t.Parallel()
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	w := s.watch(streaming, "Accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	frames := bufio.NewReader(w.response.Body)
	var length uint32
	must(t, binary.Read(frames, binary.BigEndian, &length))
	frame := make([]byte, length)
	_, err := io.ReadFull(frames, frame)
	must(t, err)
	var e metav1.WatchEvent
	must(t, e.Unmarshal(frame))
	if e.Type != "ADDED" || !strings.HasPrefix(string(e.Object.Raw), "k8s\x00") || !strings.Contains(string(e.Object.Raw), "orders") {
		t.Errorf("event = %q %q, want ADDED with orders in protobuf", e.Type, e.Object.Raw)
	}
}

func TestWatchersShareOnePoll(t *testing.T) {
	t.Parallel()
	q := twoQueues()
	definition := queueDefinition()
	definition.PollInterval = 200 * time.Millisecond
	s := start(t, nil, extension.Of(definition, q))
	var all []*watching
	for range 20 {
		w := s.watch(streaming)
		w.sees("ADDED orders", "ADDED mails", "BOOKMARK")
		all = append(all, w)
	}
	opened, began := q.count(), time.Now()
	q.set(queue("team-a", "orders", 9))
	for _, w := range all {
		w.sees("MODIFIED orders", "DELETED mails")
	}
	// On a busy machine the watchers receive the change after several intervals.
	polls, most := q.count()-opened, 5+2*int(time.Since(began)/definition.PollInterval)
	if polls > most {
		t.Errorf("provider polled %d times for 20 watchers, want at most %d", polls, most)
	}
}

func TestWatchSurvivesFailingSource(t *testing.T) {
	t.Parallel()
	q := twoQueues()
	s := start(t, nil, extension.Of(queueDefinition(), q))
	w := s.watch(streaming)
	w.sees("ADDED orders", "ADDED mails", "BOOKMARK")
	q.fail(errors.New("away"))
	before := q.count()
	eventually(t, "polls during the failure", func() bool { return q.count() > before+2 })
	q.set(queue("team-a", "orders", 3, "tier=fast"))
	q.fail(nil)
	w.sees("DELETED mails")
}

func TestDrainEndsWatchesCleanly(t *testing.T) {
	s := start(t, nil, extension.Of(queueDefinition(), twoQueues()))
	w := s.watch(streaming)
	w.sees("ADDED orders", "ADDED mails", "BOOKMARK")
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	w.sees("BOOKMARK") // The last bookmark is the version to resume from.
	if err := w.lines.Decode(&event{}); !errors.Is(err, io.EOF) {
		t.Errorf("read after the drain: error = %v, want io.EOF", err)
	}
	must(t, <-ended)
}

// personal shows each caller a different queue.
type personal struct{}

func (personal) List(_ context.Context, q extension.Query) ([]Queue, error) {
	return []Queue{queue("team", "of-"+q.User.GetName(), 1)}, nil
}

func TestPerCallerViewsAreNotShared(t *testing.T) {
	t.Parallel()
	definition := queueDefinition()
	definition.PerCaller = true
	s := start(t, nil, extension.Of(definition, personal{}))
	alice, bob := s.watch(streaming), s.watch(streaming, "X-Test-User: bob")
	alice.sees("ADDED of-alice", "BOOKMARK")
	bob.sees("ADDED of-bob", "BOOKMARK")
	for range 3 {
		s.get(queuesPath).wants(t, http.StatusOK, "of-alice")
		if a := s.do(http.MethodGet, queuesPath, "X-Test-User: ", "x-test-user: bob"); strings.Contains(string(a.body), "alice") {
			t.Fatalf("list as bob = %s, want no object of alice", a.body)
		}
	}
}

type nosy struct{ saw chan user.Info }

func (n nosy) List(_ context.Context, q extension.Query) ([]Queue, error) {
	n.saw <- q.User
	return nil, nil
}

func TestSharedViewQueryHasNoUser(t *testing.T) {
	n := nosy{make(chan user.Info, 1)}
	s := start(t, nil, extension.Of(queueDefinition(), n))
	s.get(queuesPath).wants(t, http.StatusOK)
	if u := <-n.saw; u != nil {
		t.Errorf("user in the query of a shared view = %v, want nil", u)
	}
}

// TestClientGoInformerSyncs runs an unchanged client-go informer against a hosted resource.
func TestClientGoInformerSyncs(t *testing.T) {
	t.Parallel()
	q := twoQueues()
	s := start(t, nil, extension.Of(queueDefinition(), q))
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: s.url}, &http.Client{Transport: asAlice{s.client.Transport}})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	queues := client.Resource(schema.GroupVersionResource{Group: "stats.example.com", Version: "v1", Resource: "queues"})
	informer := cache.NewSharedInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return queues.List(ctx, o) },
		WatchFuncWithContext: queues.Watch,
	}, client), &unstructured.Unstructured{}, 0)
	changes := make(chan string, 100)
	tell := func(kind watch.EventType, o any) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			changes <- string(kind) + " " + u.GetName()
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tell(watch.Added, o) },
		UpdateFunc: func(_, o any) { tell(watch.Modified, o) },
		DeleteFunc: func(o any) { tell(watch.Deleted, o) },
	})
	must(t, err)
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	defer cancel()
	syncCtx, done := context.WithTimeout(ctx, patience)
	defer done()
	if !cache.WaitForCacheSync(syncCtx.Done(), informer.HasSynced) {
		t.Fatal("informer did not sync, want a synced informer")
	}
	q.set(queue("team-a", "orders", 4, "tier=fast"), queue("team-c", "bills", 1))
	want := map[string]bool{"ADDED orders": true, "ADDED mails": true, "MODIFIED orders": true, "DELETED mails": true, "ADDED bills": true}
	for len(want) > 0 {
		select {
		case c := <-changes:
			if !want[c] {
				t.Errorf("informer delivered %q, want no such event", c)
			}
			delete(want, c)
		case <-syncCtx.Done():
			t.Fatalf("informer did not deliver %v, want all events", want)
		}
	}
}

type asAlice struct{ next http.RoundTripper }

func (a asAlice) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Test-User", "alice")
	return a.next.RoundTrip(r)
}
