package server

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/routes/sharedwatch"
	"portico.dev/internal/transport"
)

// sharingWatches is an APIRoute that lets watches share one upstream watch.
const sharingWatches = `
metadata: {name: v1.example.com, uid: u, generation: 1}
spec:
  backends: [{name: first}, {name: second, service: {namespace: ns, name: second}}]
  rules:
  - {name: testers, matches: [{headers: [{name: X-Canary, value: always}]}], backendRefs: [{name: second}]}
  - {name: all, backendRefs: [{name: first}], sharedReads: {maxAge: 1m, callers: All, watches: true}}
`

// watchedBackend sends one event to each watch at once, and further ones on send. It records the users of the watches.
type watchedBackend struct {
	mu       sync.Mutex // guards the fields below
	users    []string
	queries  []string
	accepts  []string
	watchers map[chan string]bool
}

func (b *watchedBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if !r.URL.Query().Has("watch") && !strings.Contains(r.URL.Path, "/watch/") {
		_, _ = w.Write([]byte(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"5"},"items":[]}`))
		return
	}
	events := make(chan string, 100)
	b.mu.Lock()
	b.users = append(b.users, r.Header.Get("X-Remote-User"))
	b.queries = append(b.queries, r.URL.RawQuery)
	b.accepts = append(b.accepts, r.Header.Get("Accept"))
	if b.watchers == nil {
		b.watchers = map[chan string]bool{}
	}
	b.watchers[events] = true
	b.mu.Unlock()
	_ = http.NewResponseController(w).Flush() // the client may have disconnected
	for {
		select {
		case event := <-events:
			switch event {
			case endsWatch:
				b.forget(events)
				return
			case abortsWatch:
				b.forget(events)
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write([]byte(event))
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			b.forget(events)
			return
		}
	}
}

func (b *watchedBackend) forget(events chan string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watchers, events)
}

// endsWatch and abortsWatch are lines that end a watch.
const endsWatch, abortsWatch = "end\n", "abort\n"

// send sends an event to all watches.
func (b *watchedBackend) send(version int) { b.sendLarge(version, 0) }

// sendLarge sends an event with additional bytes.
func (b *watchedBackend) sendLarge(version, bytes int) {
	b.sendLine(fmt.Sprintf(`{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w%[1]d","namespace":"a","resourceVersion":"%[1]d"}%[2]s}}`,
		version, strings.Repeat(" ", bytes)))
}

func (b *watchedBackend) sendLine(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for events := range b.watchers {
		events <- line + "\n"
	}
}

func (b *watchedBackend) seen() (users, queries []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.users...), append([]string(nil), b.queries...)
}

// runSharedWatches runs shared watches until the test ends.
func runSharedWatches(t testing.TB, c sharedwatch.Config) *sharedwatch.Watches {
	watches := sharedwatch.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- watches.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return watches
}

// openWatch opens a watch, and returns a scanner of its lines.
func openWatch(t *testing.T, server *httptest.Server, target string, header ...string) *bufio.Scanner {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("watch of %s = %s, want 200", target, resp.Status)
	}
	return bufio.NewScanner(resp.Body)
}

// asUser serves the chain with the user in a request header.
func asUser(router *testRouter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get("X-Test-User")
		r.Header.Del("X-Test-User")
		chainFor(&user.DefaultInfo{Name: name}, router).ServeHTTP(w, r)
	})
}

func TestEquivalentWatchesShareOneBackendWatch(t *testing.T) {
	t.Parallel()
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	const path = "/apis/example.com/v1/namespaces/a/widgets"
	const plain = path + "?watch=true&resourceVersion=5"
	for name, c := range map[string]struct {
		one, other string
		header     []string // of the other
		shared     bool
		first      bool // the first one is not shared either
	}{
		"of another user":                     {plain, plain, []string{"X-Test-User", "bob"}, true, false},
		"for another time":                    {plain, plain + "&timeoutSeconds=60", nil, true, false},
		"with bookmarks":                      {plain, plain + "&allowWatchBookmarks=true", nil, true, false},
		"of another client":                   {plain, plain, []string{"User-Agent", "other"}, true, false},
		"that takes anything":                 {plain, plain, []string{"Accept", "*/*"}, true, false},
		"that takes protobuf too":             {plain, plain, []string{"Accept", "application/vnd.kubernetes.protobuf,application/json"}, true, false},
		"with the same selector":              {plain + "&labelSelector=a", plain + "&labelSelector=a", nil, true, false},
		"with another selector":               {plain + "&labelSelector=a", plain + "&labelSelector=b", nil, false, false},
		"with another spelling of a selector": {plain + "&labelSelector=b%3D%3Dc,a&fieldSelector=x%3D1,y!%3D2", "/apis/example.com/v1/namespaces/a/widgets?fieldSelector=y!%3D2,x%3D%3D1&resourceVersion=5&labelSelector=a,%20b=c,a&watch=1", nil, true, false},
		"with a selector of nothing":          {plain, plain + "&labelSelector=&fieldSelector=", nil, true, false},
		"with a selector that does not parse": {plain, plain + "&labelSelector=a%3D%3D%3Db", nil, false, false},
		"with two selectors":                  {plain + "&labelSelector=a", plain + "&labelSelector=a&labelSelector=a", nil, false, false},
		"from a version of the future":        {plain, path + "?watch=true&resourceVersion=999999999999", nil, false, false},
		"with a lifetime of no number":        {plain, plain + "&timeoutSeconds=x", nil, false, false},
		"of another spelling of the path":     {plain, strings.Replace(plain, "/widgets", "/widgets/", 1), nil, false, false},
		"with a parameter that is not known":  {plain, plain + "&x=y", nil, false, false},
		"in another namespace":                {plain, strings.Replace(plain, "/a/", "/b/", 1), nil, false, false},
		"as a Table":                          {plain, plain, []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}, false, false},
		"in protobuf only":                    {plain, plain, []string{"Accept", "application/vnd.kubernetes.protobuf"}, false, false},
		"of another backend":                  {plain, plain, []string{"X-Canary", "always"}, false, false},
		"by the deprecated path":              {plain, "/apis/example.com/v1/watch/namespaces/a/widgets?resourceVersion=5", nil, false, false},
		"with a match that is not understood": {plain, plain + "&resourceVersionMatch=Exact", nil, false, false},
		"from a version of before":            {plain, path + "?watch=true&resourceVersion=4", nil, false, false},
		"from no number":                      {plain, path + "?watch=true&resourceVersion=x", nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := &watchedBackend{}, &watchedBackend{}
			router := routerOf(dispatchtest.Table(t, set, sharingWatches, map[string]http.Handler{"first": first, "second": second}))
			router.SharedWatches = runSharedWatches(t, sharedwatch.Config{})
			server := httptest.NewServer(asUser(router))
			t.Cleanup(server.CloseClientConnections)
			t.Cleanup(server.Close)
			one := openWatch(t, server, c.one, "X-Test-User", "alice")
			other := openWatch(t, server, c.other, append([]string{"X-Test-User", "alice"}, c.header...)...)
			eventually(t, "the backend has the watches", func() bool {
				a, _ := first.seen()
				b, _ := second.seen()
				return len(a)+len(b) == map[bool]int{true: 1, false: 2}[c.shared]
			})
			first.send(6)
			second.send(6)
			for _, events := range []*bufio.Scanner{one, other} {
				if !events.Scan() || !strings.Contains(events.Text(), `"name":"w6"`) {
					t.Errorf("event of the watch = %q with the error %v, want w6", events.Text(), events.Err())
				}
			}
			users, queries := first.seen()
			if users[0] != "system:kube-aggregator" || strings.Contains(queries[0], "timeoutSeconds") || !strings.Contains(queries[0], "resourceVersion=5") {
				t.Errorf("users of the upstream watches = %v with the queries %v, want system:kube-aggregator, resourceVersion=5 and no timeoutSeconds", users, queries)
			}
		})
	}
}

// Portico watches the backend under its identity, so each client must be authorized before it receives events.
func TestA47SharedWatchAuthorizesEachClient(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	backend := &watchedBackend{}
	router := routerOf(dispatchtest.Table(t, set, sharingWatches, map[string]http.Handler{"first": backend}))
	router.SharedWatches = runSharedWatches(t, sharedwatch.Config{})
	b := newBench("alice watch widgets")
	b.handler = router.build().ServeHTTP
	server := httptest.NewServer(b.chain(t))
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	const path = "/apis/example.com/v1/namespaces/a/widgets?watch=true&resourceVersion=5"
	alice := openWatch(t, server, path, "Test-User", "alice")
	eventually(t, "the backend has the watch", func() bool { users, _ := backend.seen(); return len(users) == 1 })
	backend.send(6)
	if !alice.Scan() {
		t.Fatalf("watch of alice ended with the error %v, want the event w6", alice.Err())
	}
	if w := b.do(t, http.MethodGet, path, "Test-User: mallory"); w.Code != http.StatusForbidden {
		t.Errorf("watch of mallory = %d %s, want 403", w.Code, w.Body)
	}
	if users, _ := backend.seen(); len(users) != 1 {
		t.Errorf("users of the upstream watches = %v, want one", users)
	}
}

// A client-go informer requests initial events first. The backend, which does not support them, is listed and watched once for all informers.
func TestInformersShareOneWatchOfBackend(t *testing.T) {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	backend := &watchedBackend{}
	lists := atomic.Int64{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			backend.ServeHTTP(w, r)
			return
		}
		lists.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"w4","namespace":"a","resourceVersion":"4"}}]}`))
	})
	router := routerOf(dispatchtest.Table(t, set, sharingWatches, map[string]http.Handler{"first": h}))
	router.SharedWatches = runSharedWatches(t, sharedwatch.Config{})
	server := httptest.NewServer(asUser(router))
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var informers []cache.SharedIndexInformer
	for range 3 {
		informer := dynamicinformer.NewFilteredDynamicInformer(client, schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
			"a", 0, cache.Indexers{}, nil).Informer()
		informers = append(informers, informer)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	eventually(t, "all informers have the objects", func() bool {
		return !slices.ContainsFunc(informers, func(i cache.SharedIndexInformer) bool { return !i.HasSynced() || len(i.GetStore().ListKeys()) != 1 })
	})
	eventually(t, "the backend has the watch", func() bool { users, _ := backend.seen(); return len(users) > 0 })
	backend.send(6)
	eventually(t, "all informers have the event", func() bool {
		return !slices.ContainsFunc(informers, func(i cache.SharedIndexInformer) bool {
			_, ok, _ := i.GetStore().GetByKey("a/w6")
			return !ok || i.LastSyncResourceVersion() != "6"
		})
	})
	if users, _ := backend.seen(); len(users) != 1 || lists.Load() != 1 {
		t.Errorf("watches of the backend by %v and %d lists, want one each", users, lists.Load())
	}
}
