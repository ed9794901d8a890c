package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/tools/drill/faulty"
	"portico.dev/internal/transport"
)

const streaming = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=300"

// listing is a backend that serves a list in pages and then a watch. It keeps the queries and the headers of both.
type listing struct {
	pages        []string // by order; one without metadata.continue is the last
	code         int      // of the list; 0 is 200
	stream       string
	watchCode    int // 0 is 200
	headers      http.Header
	mu           sync.Mutex
	lists, watch []url.Values
	users        []string
}

func (l *listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := r.URL.Query()
	l.users = append(l.users, r.Header.Get("X-Remote-User"))
	w.Header().Set("Content-Type", "application/json")
	maps.Copy(w.Header(), l.headers)
	if r.Header.Get("Accept") != "application/json" || r.Header.Get("Accept-Encoding") != "" {
		http.Error(w, "asked for "+r.Header.Get("Accept"), http.StatusNotAcceptable)
		return
	}
	if q.Has("watch") {
		l.watch = append(l.watch, q)
		if l.watchCode != 0 {
			w.WriteHeader(l.watchCode)
		}
		_, _ = io.WriteString(w, l.stream)
		return
	}
	if l.code != 0 {
		w.WriteHeader(l.code)
	}
	_, _ = io.WriteString(w, l.pages[min(len(l.lists), len(l.pages)-1)])
	l.lists = append(l.lists, q)
}

func page(token string, names ...string) string {
	var items []string
	for _, name := range names {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q},"n":12345678901234567890}`, name))
	}
	return fmt.Sprintf(`{"kind":"NodeList","apiVersion":"metrics.example.com/v1","metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`, token, strings.Join(items, ","))
}

func TestInitialEventsAreGeneratedFromList(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	b := &listing{
		pages:  []string{page("second page/", "a", "b"), page("", "c")},
		stream: `{"type":"ADDED","object":{"kind":"Node","metadata":{"name":"d","resourceVersion":"8"}}}` + "\n", headers: http.Header{"Content-Length": nil},
	}
	w.backend(w.serve(b))
	w.configure(func(t *Destination) { t.InitialEvents = MakeInitialEvents })
	a := w.get("/apis/metrics.example.com/v1/nodes?" + streaming + "&labelSelector=a%3Db&pretty=1")
	object := func(name string) string {
		return `{"type":"ADDED","object":{"apiVersion":"metrics.example.com/v1","kind":"Node","metadata":{"name":"` + name + `"},"n":12345678901234567890}}` + "\n"
	}
	want := object("a") + object("b") + object("c") +
		`{"type":"BOOKMARK","object":{"apiVersion":"metrics.example.com/v1","kind":"Node","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"7"}}}` + "\n" + b.stream
	if a.StatusCode != 200 || a.Header.Get("Content-Type") != "application/json" || string(a.body) != want {
		t.Errorf("response = %d %v %s, want 200 and %s", a.StatusCode, a.Header, a.body, want)
	}
	if fmt.Sprint(b.lists) != "[map[labelSelector:[a=b]] map[continue:[second page/] labelSelector:[a=b]]]" {
		t.Errorf("queries of the lists = %v, want the first page and the second", b.lists)
	}
	if fmt.Sprint(b.watch) != "[map[allowWatchBookmarks:[true] labelSelector:[a=b] resourceVersion:[7] timeoutSeconds:[300] watch:[true]]]" {
		t.Errorf("queries of the watches = %v, want one from resource version 7", b.watch)
	}
	if fmt.Sprint(b.users) != "[alice alice alice]" {
		t.Errorf("users = %v, want alice three times", b.users)
	}
}

func TestUnsupportedInitialEventsAreRejected(t *testing.T) {
	for _, test := range []struct {
		situation string
		backend   *listing
		query     string // empty: streaming
		accept    string
		code      int
		contains  string
	}{
		{situation: "no bookmark is asked for", backend: &listing{pages: []string{page("")}}, query: strings.Replace(streaming, "allowWatchBookmarks=true", "allowWatchBookmarks=0", 1), code: 200},
		{situation: "protobuf or JSON", backend: &listing{pages: []string{page("")}}, accept: "application/vnd.kubernetes.protobuf,application/json", code: 200, contains: "BOOKMARK"},
		{situation: "protobuf only", accept: "application/vnd.kubernetes.protobuf", code: 422, contains: "application/json only"},
		{situation: "metadata only", accept: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", code: 422},
		{situation: "an exact version", query: strings.Replace(streaming, "NotOlderThan", "Exact", 1), code: 422, contains: "requires resourceVersionMatch=NotOlderThan"},
		{situation: "the list is forbidden", backend: &listing{pages: []string{`{"kind":"Status","code":403}`}, code: 403}, code: 403, contains: `"code":403`},
		{situation: "the list is a redirect", backend: &listing{pages: []string{""}, code: 302}, code: 502, contains: "BackendRedirect"},
		{situation: "a list without a version", backend: &listing{pages: []string{`{"kind":"NodeList","apiVersion":"v1","items":[]}`}}, code: 502, contains: "resource version"},
		{situation: "a list of any version", backend: &listing{pages: []string{strings.Replace(page(""), `"7"`, `"0"`, 1)}}, code: 502},
		{situation: "no list", backend: &listing{pages: []string{`{"kind":"Node","apiVersion":"v1","metadata":{"resourceVersion":"7"}}`}}, code: 502},
		{situation: "items that are no objects", backend: &listing{pages: []string{strings.Replace(page("", "a"), `[{`, `[null,{`, 1)}}, code: 502},
		{situation: "HTML", backend: &listing{pages: []string{"<html>"}}, code: 502},
		{situation: "a compressed list", backend: &listing{pages: []string{page("")}, headers: http.Header{"Content-Encoding": {"gzip"}}}, code: 502},
		{situation: "a list of more than 16 MiB", backend: &listing{pages: []string{page("", strings.Repeat("a", maxConverted))}}, code: 502, contains: "TooLarge"},
		{situation: "pages of more than 16 MiB", backend: &listing{pages: []string{page("more", strings.Repeat("a", maxConverted/8))}}, code: 502, contains: "TooLarge"},
		{situation: "a list without end", backend: &listing{pages: []string{page("more")}}, code: 502, contains: "no end"},
		{situation: "the version of the list is too old for a watch", backend: &listing{pages: []string{page("", "a")}, watchCode: 410, stream: `{"kind":"Status","code":410}`}, code: 410, contains: `"code":410`},
	} {
		t.Run(test.situation, func(t *testing.T) {
			if testing.Short() && (test.contains == "TooLarge" || test.contains == "no end") {
				t.Skip("takes seconds")
			}
			w := newTestEnv(t, Config{}, transport.Options{})
			backend := cmp.Or(test.backend, &listing{pages: []string{page("")}})
			w.backend(w.serve(backend))
			w.configure(func(t *Destination) { t.InitialEvents = MakeInitialEvents })
			r := w.request(http.MethodGet, "/apis/metrics.example.com/v1/nodes?"+cmp.Or(test.query, streaming), nil)
			if test.accept != "" {
				r.Header.Set("Accept", test.accept)
			}
			a := w.do(w.client(), r)
			if a.StatusCode != test.code || !strings.Contains(string(a.body), test.contains) || test.code == 200 && test.contains == "" && len(a.body) != 0 {
				t.Errorf("response = %d %.300s, want %d with %q", a.StatusCode, a.body, test.code, test.contains)
			}
			if test.code != 200 && test.code != 410 && len(backend.watch) != 0 {
				t.Errorf("%d watches began, want 0", len(backend.watch))
			}
		})
	}
}

// model is a client's view of the objects of a backend: their resource versions by name.
type model map[string]int64

// apply applies one event, which must be new and in order.
func (m model) apply(kind, name string, version int64) error {
	_, exists := m[name]
	switch {
	case kind == "ADDED" && !exists, kind == "MODIFIED" && exists && version > m[name]:
		m[name] = version
	case kind == "DELETED" && exists:
		delete(m, name)
	default:
		return fmt.Errorf("%s %s at %d comes after %v", kind, name, version, m[name])
	}
	return nil
}

// No event is lost or sent twice between the list and the watch, no matter which writes happen in between: a client that
// follows the stream always ends with the backend's objects.
func TestInitialEventsAreNeitherLostNorDuplicated(t *testing.T) {
	store, err := faulty.New(faulty.Config{Group: "metrics.example.com", ServerName: "unused.default.svc", Address: "127.0.0.1:0", Stores: true})
	if err != nil {
		t.Fatal(err)
	}
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("sendInitialEvents") {
			t.Error("the backend received a request with sendInitialEvents, want none")
		}
		store.ServeHTTP(rw, r)
	})))
	w.configure(func(t *Destination) { t.InitialEvents = MakeInitialEvents })
	const widgets = "/apis/metrics.example.com/v1/namespaces/default/widgets"
	write := func(method, path, body string) int {
		rec := httptest.NewRecorder()
		store.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
		return rec.Code
	}
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for i := range 3 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			turns := time.NewTicker(time.Millisecond)
			defer turns.Stop()
			for ctx.Err() == nil {
				<-turns.C
				name := fmt.Sprintf("w%d-%d", i, random.IntN(20))
				object := `{"apiVersion":"metrics.example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","labels":{"n":"` + strconv.Itoa(random.IntN(1e6)) + `"}}}`
				switch random.IntN(3) {
				case 0:
					write(http.MethodDelete, widgets+"/"+name, "")
				case 1:
					write(http.MethodPut, widgets+"/"+name, object)
				default:
					write(http.MethodPost, widgets, object)
				}
			}
		})
	}
	models := make(chan model)
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() {
			select { // clients begin one after another, while there are writes
			case <-ctx.Done():
			case <-time.After(time.Duration(i) * 20 * time.Millisecond):
			}
			m, err := follow(w, widgets+"?"+strings.Replace(streaming, "300", "30", 1))
			for errors.Is(err, errExpired) { // the backend keeps few events; a slow client begins again
				m, err = follow(w, widgets+"?"+strings.Replace(streaming, "300", "30", 1))
			}
			if err != nil {
				t.Errorf("client %d: follow() failed: %v, want no error", i, err)
			}
			models <- m
		})
	}
	go func() { clients.Wait(); close(models) }()
	// The writes end after a while. Each client then reads until it has the last object.
	timer := time.AfterFunc(time.Second, func() {
		stop()
		writers.Wait()
		if code := write(http.MethodPost, widgets, `{"apiVersion":"metrics.example.com/v1","kind":"Widget","metadata":{"name":"last"}}`); code != http.StatusCreated {
			t.Errorf("status of the last write = %d, want 201", code)
		}
	})
	defer timer.Stop()
	var got []model
	for m := range models {
		got = append(got, m)
	}
	rec := httptest.NewRecorder()
	store.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, widgets, nil))
	var list struct {
		Items []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	want := model{}
	for _, o := range list.Items {
		want[o.Name], _ = strconv.ParseInt(o.ResourceVersion, 10, 64)
	}
	for i, m := range got {
		if !maps.Equal(m, want) {
			t.Fatalf("client %d has %v, want the backend's objects %v", i, m, want)
		}
	}
}

// errExpired is a stream that ended in an error event of code 410.
var errExpired = errors.New("expired")

// follow reads a watch until it has the object named last.
func follow(w *testEnv, path string) (model, error) {
	m := model{}
	resp, err := w.client().Do(w.request(http.MethodGet, path, nil))
	if err != nil {
		return m, err
	}
	defer func() { _ = resp.Body.Close() }()
	var floor int64 // of the bookmark
	decoder := json.NewDecoder(resp.Body)
	for {
		var e struct {
			Type   string
			Object struct {
				metav1.PartialObjectMetadata
				Code int
			}
		}
		if err := decoder.Decode(&e); err != nil {
			return m, fmt.Errorf("the stream ended before the last object: %w", err)
		}
		if e.Type == "ERROR" && e.Object.Code == http.StatusGone {
			return m, errExpired
		}
		version, err := strconv.ParseInt(e.Object.ResourceVersion, 10, 64)
		switch {
		case err != nil || e.Object.Kind != "Widget":
			return m, fmt.Errorf("%s of %+v", e.Type, e.Object)
		case e.Type == "BOOKMARK" && floor != 0:
			return m, errors.New("two bookmarks")
		case e.Type == "BOOKMARK":
			floor = version
		case floor == 0 && e.Type != "ADDED":
			return m, fmt.Errorf("%s among the initial events", e.Type)
		case floor != 0 && e.Type != "DELETED" && version <= floor:
			return m, fmt.Errorf("%s at %d after the bookmark at %d", e.Type, version, floor)
		default:
			if err := m.apply(e.Type, e.Object.Name, version); err != nil {
				return m, err
			}
		}
		if m["last"] != 0 && floor != 0 {
			return m, nil
		}
	}
}
