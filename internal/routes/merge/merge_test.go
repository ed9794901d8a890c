package merge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"portico.dev/internal/filters"
)

// env is two servers of widgets and the owner of each namespace.
type env struct {
	merger *Merger
	stores []*store

	mu       sync.Mutex
	owner    map[string]int
	epoch    int64
	watching map[*context.CancelCauseFunc]bool
}

var namespaces = []string{"a", "b", "c"}

func newEnv() *env {
	merger := New(0)
	merger.initialPart = 3
	return &env{
		merger: merger, stores: []*store{newStore(1000), newStore(5)}, owner: map[string]int{"a": 0, "b": 1, "c": 0}, epoch: 1,
		watching: map[*context.CancelCauseFunc]bool{},
	}
}

func (w *env) collection() *Collection {
	w.mu.Lock()
	defer w.mu.Unlock()
	owner := map[string]int{}
	for namespace, i := range w.owner {
		owner[namespace] = i
	}
	c := &Collection{ID: "uid", Epoch: w.epoch, Lifetime: time.Hour}
	for i, s := range w.stores {
		c.Sources = append(c.Sources, Source{Name: fmt.Sprintf("store-%d", i), Get: s.get, Owns: func(namespace string) bool { return owner[namespace] == i }})
	}
	return c
}

// move transfers a namespace and its objects to the other store. The original objects stay, as after a migration.
func (w *env) move(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.owner[namespace]
	to := 1 - from
	there := w.stores[to].now()
	for key, c := range w.stores[from].now() {
		if c.namespace != namespace {
			continue
		}
		kind := "ADDED"
		if _, has := there[key]; has {
			kind = "MODIFIED"
		}
		w.stores[to].write(kind, c.namespace, c.name, c.n)
		delete(there, key)
	}
	for _, c := range there {
		if c.namespace == namespace { // left over from an earlier move
			w.stores[to].write("DELETED", c.namespace, c.name, c.n)
		}
	}
	w.owner[namespace] = to
	w.epoch++
	for cancel := range w.watching {
		(*cancel)(ErrMoved)
	}
}

// truth returns the number of each widget that clients must see.
func (w *env) truth() map[string]int {
	out := map[string]int{}
	for i, s := range w.stores {
		for key, c := range s.now() {
			if w.owner[c.namespace] == i {
				out[key] = c.n
			}
		}
	}
	return out
}

// serve sends a request and returns the response while it is written.
func (w *env) serve(ctx context.Context, query string, watch bool, accept string) *http.Response {
	ctx, cancel := context.WithCancelCause(ctx)
	if watch {
		w.mu.Lock()
		w.watching[&cancel] = true
		w.mu.Unlock()
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/example.com/v1/widgets?"+query, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	reader, writer := io.Pipe()
	answer := &pipe{header: http.Header{}, writer: writer, begun: make(chan struct{})}
	c := w.collection()
	go func() {
		w.merger.Serve(answer, filters.RequestOf(r), c, watch)
		w.mu.Lock()
		delete(w.watching, &cancel)
		w.mu.Unlock()
		_ = writer.Close()
	}()
	<-answer.begun
	return &http.Response{StatusCode: answer.code, Header: answer.header, Body: &cancelled{reader, func() { cancel(nil); _ = reader.Close() }}}
}

type pipe struct {
	header http.Header
	writer *io.PipeWriter
	once   sync.Once
	code   int
	begun  chan struct{}
}

func (p *pipe) Header() http.Header { return p.header }

func (p *pipe) WriteHeader(code int) { p.once.Do(func() { p.code = code; close(p.begun) }) }

func (p *pipe) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	return p.writer.Write(b)
}

func (p *pipe) Flush() {}

// client follows widgets like a reflector of client-go: it lists, watches from the list's version, and resumes after the last version.
type client struct {
	t       *testing.T
	env     *env
	random  *rand.Rand
	widgets map[string]int
	version string
	relists int
	last    string // the version of the last bookmark
}

type widget struct {
	Metadata struct {
		Namespace, Name, ResourceVersion, Continue string
		Annotations                                map[string]string
	}
	N    int
	Code int
}

func (w *widget) key() string { return w.Metadata.Namespace + "/" + w.Metadata.Name }

func (c *client) list(ctx context.Context) bool {
	c.relists++
	widgets, token, version := map[string]int{}, "", ""
	for {
		query := ""
		if c.random.IntN(2) == 0 {
			query = fmt.Sprintf("limit=%d", 1+c.random.IntN(4))
		}
		if token != "" {
			query = fmt.Sprintf("limit=%d&continue=%s", 1+c.random.IntN(4), token)
		}
		resp := c.env.serve(ctx, query, false, "")
		var list struct {
			widget
			Items []widget
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if ctx.Err() != nil {
			return false
		}
		if resp.StatusCode == http.StatusGone && token != "" {
			widgets, token, version = map[string]int{}, "", ""
			continue
		}
		if resp.StatusCode != http.StatusOK || err != nil || json.Unmarshal(body, &list) != nil {
			c.t.Errorf("list: %d %s %v, want 200 and a list", resp.StatusCode, body, err)
			return false
		}
		for _, o := range list.Items {
			if _, has := widgets[o.key()]; has {
				c.t.Errorf("%s is listed twice, want it once", o.key())
			}
			widgets[o.key()] = o.N
		}
		if version != "" && version != list.Metadata.ResourceVersion {
			c.t.Errorf("the resourceVersion of a page = %s, want %s as in the previous page", list.Metadata.ResourceVersion, version)
		}
		version = list.Metadata.ResourceVersion
		if token = list.Metadata.Continue; token == "" {
			break
		}
		time.Sleep(time.Duration(c.random.IntN(1500)) * time.Millisecond) // in the time of the bubble
	}
	c.widgets, c.version, c.last = widgets, version, version
	return true
}

func (c *client) run(ctx context.Context) {
	streamed := c.random.IntN(2) == 0
	for ctx.Err() == nil {
		if c.version == "" && streamed {
			c.relists++
			c.watch(ctx, "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
			continue
		}
		if c.version == "" && !c.list(ctx) {
			return
		}
		c.watch(ctx, "watch=true&allowWatchBookmarks=true&resourceVersion="+c.version)
	}
}

func (c *client) watch(ctx context.Context, query string) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+c.random.IntN(20))*time.Second)
	defer cancel()
	resp := c.env.serve(ctx, query, true, "")
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusGone {
		c.version = ""
		return
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		if ctx.Err() == nil {
			c.t.Errorf("watch: %d %s, want 200", resp.StatusCode, body)
		}
		return
	}
	initial := strings.Contains(query, "sendInitialEvents")
	widgets := c.widgets
	if initial {
		widgets = map[string]int{}
	}
	decoder := json.NewDecoder(resp.Body)
	for {
		var e struct {
			Type   string
			Object widget
		}
		if err := decoder.Decode(&e); err != nil {
			return
		}
		switch n, has := widgets[e.Object.key()]; e.Type {
		case "ERROR":
			if e.Object.Code != http.StatusGone {
				c.t.Errorf("error event %+v, want one with the code 410", e.Object)
			}
			c.version = ""
			return
		case "BOOKMARK":
			if !IsPosition(e.Object.Metadata.ResourceVersion) {
				c.t.Errorf("resourceVersion of a bookmark = %q, want a position", e.Object.Metadata.ResourceVersion)
			}
			if order, err := resourceversion.CompareResourceVersion(c.last, e.Object.Metadata.ResourceVersion); c.last != "" && !c.env.stores[0].words && (err != nil || order > 0) && !initial {
				c.t.Errorf("a bookmark goes back from %s to %s (%v), want ascending positions", c.last, e.Object.Metadata.ResourceVersion, err)
			}
			c.last = e.Object.Metadata.ResourceVersion
			if e.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true" {
				if !initial {
					c.t.Error("unexpected end of the initial events, want it once and only if requested")
				}
				initial, c.widgets = false, widgets
			}
		case "ADDED":
			if has {
				c.t.Errorf("ADDED of the existing %s, want MODIFIED", e.Object.key())
			}
			widgets[e.Object.key()] = e.Object.N
		case "MODIFIED":
			if !has || e.Object.N <= n {
				c.t.Errorf("MODIFIED of %s to %d, known %d (exists: %t), want a larger number", e.Object.key(), e.Object.N, n, has)
			}
			widgets[e.Object.key()] = e.Object.N
		case "DELETED":
			if !has {
				c.t.Errorf("DELETED of the unknown %s, want an existing object", e.Object.key())
			}
			delete(widgets, e.Object.key())
		}
		if !initial {
			c.version = e.Object.Metadata.ResourceVersion
		}
	}
}

// TestMergedWatchLosesAndDuplicatesNoEvent combines writes, broken watches, compactions and moves of namespaces.
func TestMergedWatchLosesAndDuplicatesNoEvent(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	w := newEnv()
	w.stores[0].words = seed%5 == 4
	n := 0
	count := func() int { n++; return n }
	known := map[string]bool{}
	write := func() {
		namespace, name := namespaces[random.IntN(3)], fmt.Sprintf("w%d", random.IntN(6))
		w.mu.Lock()
		s := w.stores[w.owner[namespace]]
		w.mu.Unlock()
		key := namespace + "/" + name
		_, known[key] = s.now()[key]
		switch {
		case !known[key]:
			s.write("ADDED", namespace, name, count())
		case random.IntN(3) == 0:
			s.write("DELETED", namespace, name, count())
		default:
			s.write("MODIFIED", namespace, name, count())
		}
		// Clients must not see an object with the same name on the server that does not own the namespace.
		if other := w.stores[1-w.owner[namespace]]; random.IntN(3) == 0 {
			if _, has := other.now()[key]; has {
				other.write("MODIFIED", namespace, name, count())
			} else {
				other.write("ADDED", namespace, name, count())
			}
		}
	}
	for range 20 {
		write()
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	clients := make([]*client, 4)
	for i := range clients {
		clients[i] = &client{t: t, env: w, random: rand.New(rand.NewPCG(seed, uint64(i)+2))}
		running.Go(func() { clients[i].run(ctx) })
	}
	for range 150 {
		switch random.IntN(20) {
		case 0:
			w.stores[random.IntN(2)].breakOff()
		case 1:
			w.stores[random.IntN(2)].compact()
		case 2:
			w.move(namespaces[random.IntN(3)])
		default:
			write()
		}
		time.Sleep(time.Duration(random.IntN(600)) * time.Millisecond) // in the time of the bubble
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for i, c := range clients {
		if fmt.Sprint(c.widgets) != fmt.Sprint(w.truth()) {
			t.Errorf("client %d sees\n%v\nwant\n%v", i, c.widgets, w.truth())
		}
		if c.relists > 40 {
			t.Errorf("client %d listed %d times, want at most 40", i, c.relists)
		}
	}
	stop()
	running.Wait()
}

// get returns a whole response.
func (w *env) get(t *testing.T, query string, watch bool, accept string) (int, string) {
	t.Helper()
	resp := w.serve(t.Context(), query, watch, accept)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestUnsupportedMergedRequestsAreRejected(t *testing.T) {
	w := newEnv()
	w.stores[0].write("ADDED", "a", "one", 1)
	_, body := w.get(t, "", false, "")
	var list widget
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, query, accept string
		watch               bool
		code                int
		says                string
	}{
		{"a version of one of the servers", "resourceVersion=1001", "", false, 410, "list again"},
		{"a watch from one", "watch=true&resourceVersion=1001", "", true, 410, "list again"},
		{"a version of other sources", "resourceVersion=1" + strings.Repeat("0", 56), "", false, 410, "list again"},
		{"a continue token of a server", "continue=1000@a/one", "", false, 410, "list again"},
		{"a version with a continue token", "continue=x&resourceVersion=" + list.Metadata.ResourceVersion, "", false, 400, "not allowed when using continue"},
		{"initial events without the match", "watch=true&sendInitialEvents=true", "", true, 400, "NotOlderThan"},
		{"a limit that is none", "limit=many", "", false, 400, "limit must be a number"},
		{"protobuf", "", "application/vnd.kubernetes.protobuf", false, 406, "application/json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if code, body := w.get(t, c.query, c.watch, c.accept); code != c.code || !strings.Contains(body, c.says) {
				t.Errorf("GET with the query %q = %d %s, want %d with %q", c.query, code, body, c.code, c.says)
			}
		})
	}
	t.Run("a server is down", func(t *testing.T) {
		w.stores[1].down = errors.New("connection refused")
		for _, query := range []string{"", "limit=2", "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"} {
			if code, body := w.get(t, query, strings.HasPrefix(query, "watch"), ""); code != 503 || !strings.Contains(body, "backend store-1, which stores some of the objects, did not answer: connection refused") {
				t.Errorf("GET with the query %q = %d %s, want 503 that names store-1 and the error", query, code, body)
			}
		}
	})
}

func TestMergedTableCombinesColumns(t *testing.T) {
	w := newEnv()
	w.stores[0].tables, w.stores[0].columns = true, []string{"Name", "Size", "Age"}
	w.stores[1].tables, w.stores[1].columns = true, []string{"Name", "Age", "Colour"}
	w.stores[0].write("ADDED", "a", "one", 1)
	w.stores[1].write("ADDED", "b", "two", 2)
	w.stores[1].write("ADDED", "a", "one", 2) // store 1 does not own the namespace
	const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	for _, query := range []string{"", "limit=5"} {
		_, body := w.get(t, query, false, accept)
		var table struct {
			ColumnDefinitions []struct{ Name string }
			Rows              []struct{ Cells []any }
		}
		if err := json.Unmarshal([]byte(body), &table); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(table), "{[{Name} {Size} {Age}] [{[Name of one Size of one Age of one]} {[Name of two <nil> Age of two]}]}"; got != want {
			t.Errorf("table of the query %q = %s, want %s", query, got, want)
		}
	}
	t.Run("a watch", func(t *testing.T) {
		resp := w.serve(t.Context(), "watch=true", true, accept)
		defer func() { _ = resp.Body.Close() }()
		decoder, columns := json.NewDecoder(resp.Body), ""
		for _, want := range []string{"Name of one", "Name of two", "Name of three"} {
			var e struct {
				Object struct {
					ColumnDefinitions []struct{ Name string }
					Rows              []struct{ Cells []string }
				}
			}
			if want == "Name of three" {
				w.stores[1].write("ADDED", "b", "three", 3)
			}
			if err := decoder.Decode(&e); err != nil {
				t.Fatal(err)
			}
			if len(e.Object.Rows) != 1 || e.Object.Rows[0].Cells[0] != want || len(e.Object.Rows[0].Cells) != 3 {
				t.Errorf("watch event = %+v, want one row with %s and 3 cells", e, want)
			}
			columns += fmt.Sprint(e.Object.ColumnDefinitions)
		}
		if columns != "[{Name} {Size} {Age}][][]" {
			t.Errorf("columns of the events = %s, want them in the first event only", columns)
		}
	})
	t.Run("one has none", func(t *testing.T) {
		w.stores[1].tables = false
		if code, body := w.get(t, "", false, accept); code != 200 || !strings.Contains(body, `"WidgetList"`) || strings.Count(body, `"kind":"Widget"`) != 3 {
			t.Errorf("list with one source without tables = %d %s, want 200 and objects", code, body)
		}
		if code, _ := w.get(t, "", false, "application/json;as=Table;v=v1;g=meta.k8s.io"); code != 406 {
			t.Errorf("list of tables only = %d, want 406", code)
		}
	})
}

// TestClientResumesFromBookmark checks that a bookmark with the next position follows each batch of events.
func TestClientResumesFromBookmark(t *testing.T) {
	w := newEnv()
	w.stores[0].write("ADDED", "a", "one", 1)
	watch := func(version string) (*json.Decoder, func()) {
		resp := w.serve(t.Context(), "watch=true&allowWatchBookmarks=true&resourceVersion="+version, true, "")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("watch: %d, want 200", resp.StatusCode)
		}
		return json.NewDecoder(resp.Body), func() { _ = resp.Body.Close() }
	}
	next := func(from *json.Decoder, kind string) widget {
		t.Helper()
		var e struct {
			Type   string
			Object widget
		}
		if err := from.Decode(&e); err != nil || e.Type != kind {
			t.Fatalf("event = %+v, %v, want %s", e, err, kind)
		}
		return e.Object
	}
	_, body := w.get(t, "", false, "")
	var list widget
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	events, end := watch(list.Metadata.ResourceVersion)
	w.stores[1].write("ADDED", "b", "two", 2)
	if got := next(events, "ADDED"); got.N != 2 {
		t.Errorf("object of the event = %+v, want two", got)
	}
	at := next(events, "BOOKMARK").Metadata.ResourceVersion
	end()
	events, end = watch(at)
	defer end()
	w.stores[0].write("ADDED", "a", "three", 3)
	if got := next(events, "ADDED"); got.N != 3 {
		t.Errorf("object of the event after the bookmark = %+v, want three and not two again", got)
	}
	next(events, "BOOKMARK")
}

// TestExpiredSourceVersionReturns410 checks that the client gets a 410, both if the server sends it as a response and as an event.
func TestExpiredSourceVersionReturns410(t *testing.T) {
	w := newEnv()
	w.stores[0].write("ADDED", "a", "one", 3)
	_, body := w.get(t, "", false, "")
	var list widget
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{3, 6} { // an even and an odd version
		w.stores[0].write("MODIFIED", "a", "one", n)
		w.stores[0].compact()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resp := w.serve(ctx, "watch=true&resourceVersion="+list.Metadata.ResourceVersion, true, "")
		body, err := bufio.NewReader(resp.Body).ReadString('\n')
		_ = resp.Body.Close()
		if told := resp.StatusCode == http.StatusGone || strings.Contains(body, `"ERROR"`); !told || !strings.Contains(body, `"code":410`) {
			t.Errorf("watch from a compacted version = %d %s %v, want an error with the code 410", resp.StatusCode, body, err)
		}
	}
}

func TestMergedListKeepsObjectsUnchanged(t *testing.T) {
	w := newEnv()
	w.stores[0].write("ADDED", "a", "one", 1)
	_, body := w.get(t, "", false, "")
	if want := w.stores[0].object(w.stores[0].log[0]); !bytes.Contains([]byte(body), []byte(want)) {
		t.Errorf("list = %s, want it to contain %s", body, want)
	}
}

func TestPositionsAreOrderedAndDecodable(t *testing.T) {
	c := &Collection{ID: "uid", Epoch: 3, Sources: []Source{{Name: "a"}, {Name: "b"}}}
	order := [][]string{{"", "7"}, {"1", "7"}, {"1", "8"}, {"2", "8"}, {"2", "10"}, {"18446744073709551615", "10"}}
	for i, versions := range order {
		got, err := c.versions(c.position(versions))
		if want := strings.Replace(fmt.Sprint(versions), "[ ", "[0 ", 1); err != nil || fmt.Sprint(got) != want {
			t.Errorf("versions of the position of %v = %v, %v, want %s", versions, got, err, want)
		}
		if i == 0 {
			continue
		}
		if is, err := resourceversion.CompareResourceVersion(c.position(order[i-1]), c.position(versions)); err != nil || is >= 0 {
			t.Errorf("comparison of the positions of %v and %v = %d, %v, want -1", order[i-1], versions, is, err)
		}
	}
	for _, other := range []*Collection{
		{ID: "other", Epoch: 3, Sources: c.Sources}, {ID: "uid", Epoch: 4, Sources: c.Sources}, {ID: "uid", Epoch: 3, Sources: c.Sources[:1]},
		{ID: "uid", Epoch: 3, Sources: []Source{{Name: "b"}, {Name: "a"}}},
	} {
		for _, versions := range [][]string{{"1", "2"}, {"x", "2"}} {
			if got, err := other.versions(c.position(versions)); err == nil {
				t.Errorf("%+v accepts a position of another collection: %v, want an error", other, got)
			}
		}
	}
	for _, not := range []string{"", "0", "12345", "18446744073709551615", strings.Repeat("1", 36), "1" + strings.Repeat("x", 36)} {
		if IsPosition(not) {
			t.Errorf("IsPosition(%q) = true, want false", not)
		}
	}
}

func FuzzPositions(f *testing.F) {
	c := &Collection{ID: "uid", Epoch: 3, Sources: []Source{{Name: "a"}, {Name: "b"}}}
	f.Add(c.position([]string{"1", "2"}))
	f.Add(c.position([]string{"x", "2"}))
	f.Add(c.encodeContinue(continuation{Source: 1, Versions: []string{"1", "2"}}))
	f.Fuzz(func(t *testing.T, text string) {
		if versions, err := c.versions(text); err == nil && len(versions) != 2 {
			t.Errorf("versions of %q = %v, want 2 versions or an error", text, versions)
		}
		if at, err := c.decodeContinue(text); err == nil && (at.Source > 1 || len(at.Versions) != 2) {
			t.Errorf("continuation of %q = %+v, want 2 versions and the source 0 or 1, or an error", text, at)
		}
	})
}

// Lists of one collection wait for each other if a source hangs. Lists of other collections do not wait.
func TestHangingSourceDoesNotDelayOtherCollections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv()
		hung := w.collection()
		hung.ID = "hung"
		hung.Sources[0].Get = func(ctx context.Context, _ bool, _ []string, _ url.Values) (*http.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var lists sync.WaitGroup
		for range 2 * maxLists {
			lists.Go(func() {
				answer := httptest.NewRecorder()
				w.merger.Serve(answer, filters.RequestOf(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/widgets", nil)), hung, false)
				if answer.Code != http.StatusServiceUnavailable {
					t.Errorf("list with a source that hangs = %d %s, want 503", answer.Code, answer.Body)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if code, body := w.get(t, "", false, ""); code != http.StatusOK || time.Since(began) > 0 {
			t.Errorf("list of another collection = %d %s after %s, want 200 at once", code, body, time.Since(began))
		}
		lists.Wait()
		if len(w.merger.lists) != 0 {
			t.Errorf("the merger keeps the state of %d collections after all lists, want 0", len(w.merger.lists))
		}
	})
}

// TestWatchDuringObjectMoveReturns410 checks that the client gets a 410 to list again, and not the error of a dead server.
func TestWatchDuringObjectMoveReturns410(t *testing.T) {
	for _, query := range []string{"watch=true", "watch=true&resourceVersion="} {
		asked := make(chan struct{}, 2)
		waits := func(ctx context.Context, _ bool, _ []string, _ url.Values) (*http.Response, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		own := func(namespace string) bool { return namespace == "a" }
		c := &Collection{ID: "uid", Epoch: 1, Lifetime: time.Hour, Sources: []Source{
			{Name: "one", Owns: own, Get: waits}, {Name: "two", Owns: func(namespace string) bool { return !own(namespace) }, Get: waits}}}
		if strings.HasSuffix(query, "=") {
			query += c.position([]string{"1", "2"})
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-asked; cancel(ErrMoved) }()
		answer := httptest.NewRecorder()
		New(0).Serve(answer, filters.RequestOf(httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/example.com/v1/widgets?"+query, nil)), c, true)
		if answer.Code != http.StatusGone || !strings.Contains(answer.Body.String(), `"reason":"Expired"`) {
			t.Errorf("watch with the query %q = %d %s, want 410 with the reason Expired", query, answer.Code, answer.Body)
		}
	}
}
