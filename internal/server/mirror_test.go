package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/dispatch/dispatchtest"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routes/mirror"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/sharedreads"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

const mirroring = `
metadata: {name: v1.example.com, uid: u, generation: 1}
spec:
  backends: [{name: first}, {name: second, service: {namespace: ns, name: second}}, {name: spare, service: {namespace: ns, name: spare}}]
  rules:
  - {name: never, matches: [{resources: [nevers]}], backendRefs: [{name: first}], mirror: {backend: second, percent: 0}}
  - {name: shared, matches: [{resources: [shareds]}], backendRefs: [{name: first}], mirror: {backend: second}, sharedReads: {maxAge: 1m}}
  - {name: spared, matches: [{resources: [spareds]}], backendRefs: [{name: spare}], fallback: first, mirror: {backend: second}}
  - {name: all, backendRefs: [{name: first}], mirror: {backend: second, ignore: [spec.seen]}}
`

// copies is a Mirror that runs until the test ends, and the results of its copies.
type copies struct {
	*mirror.Mirror
	metrics *metrics.Mirror
}

// mirrorReads lets atOnce copies be sent concurrently. With one, they are sent in order.
func mirrorReads(t *testing.T, router *testRouter, atOnce int) *copies {
	t.Helper()
	c := &copies{metrics: metrics.NewMirror(prometheus.NewRegistry())}
	c.Mirror = mirror.New(mirror.Config{Metrics: c.metrics, MaxInFlight: atOnce})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	router.Mirror = c.Mirror
	return c
}

func (c *copies) count(result string) int {
	return int(testutil.ToFloat64(c.metrics.Reads.WithLabelValues("v1.example.com", "second", result)))
}

// are waits until the expected number of copies has a result, and checks the results.
func (c *copies) are(t *testing.T, want map[string]int) {
	t.Helper()
	total := 0
	for _, n := range want {
		total += n
	}
	got := map[string]int{}
	eventually(t, "the copies came to something", func() bool {
		clear(got)
		sum := 0
		for _, result := range []string{metrics.MirrorSame, metrics.MirrorStatus, metrics.MirrorBody, metrics.MirrorFailed, metrics.MirrorDropped} {
			if n := c.count(result); n > 0 {
				got[result], sum = n, sum+n
			}
		}
		return sum >= total
	})
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("results of the copies = %v, want %v", got, want)
	}
}

// requests records the requests to a backend.
type requests struct {
	mu  sync.Mutex
	all []*http.Request
}

func (q *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q.mu.Lock()
	q.all = append(q.all, r.Clone(context.Background()))
	q.mu.Unlock()
	saying("{}").ServeHTTP(w, r)
}

func (q *requests) list() []*http.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.all)
}

func saying(body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	})
}

func backendsFor(t *testing.T) *transport.Set {
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	return set
}

func TestMirroredResponseIsComparedWithOriginal(t *testing.T) {
	set := backendsFor(t)
	aborts := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for name, c := range map[string]struct {
		first, second http.Handler
		want          string
	}{
		"the same":                  {saying(`{"metadata":{"uid":"a"},"spec":{"seen":1}}`), saying(`{"spec":{"seen":2},"metadata":{"uid":"b"}}`), metrics.MirrorSame},
		"another body":              {saying(`{"spec":{"n":1}}`), saying(`{"spec":{"n":2}}`), metrics.MirrorBody},
		"another code":              {saying(`{}`), refusing(404), metrics.MirrorStatus},
		"both have none":            {refusing(404), refusing(404), metrics.MirrorSame},
		"it fails where none fails": {saying(`{}`), refusing(503), metrics.MirrorStatus},
		"it does not answer":        {saying(`{}`), aborts, metrics.MirrorFailed},
		"it redirects":              {saying(`{}`), http.RedirectHandler("/elsewhere", http.StatusFound), metrics.MirrorFailed},
		"it is not available":       {saying(`{}`), nil, metrics.MirrorFailed},
	} {
		t.Run(name, func(t *testing.T) {
			router := routerOf(dispatchtest.Table(t, set, mirroring, map[string]http.Handler{"first": c.first, "second": c.second}))
			sent := mirrorReads(t, router, 1)
			direct := httptest.NewRecorder()
			c.first.ServeHTTP(direct, httptest.NewRequest(http.MethodGet, "/", nil))
			w := httptest.NewRecorder()
			chainFor(&user.DefaultInfo{Name: "alice"}, router).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil))
			if w.Code != direct.Code || w.Body.String() != direct.Body.String() {
				t.Errorf("response to the client = %d %s, want %d %s", w.Code, w.Body, direct.Code, direct.Body)
			}
			sent.are(t, map[string]int{c.want: 1})
		})
	}
}

func TestOnlyComparableReadsAreMirrored(t *testing.T) {
	set := backendsFor(t)
	const path = "/apis/example.com/v1/namespaces/a/widgets"
	get := func(target string, header ...string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return r
	}
	with := func(method, target, body string) *http.Request {
		return httptest.NewRequest(method, target, strings.NewReader(body))
	}
	for name, c := range map[string]struct {
		r    *http.Request
		want bool
	}{
		"a list":                       {get(path), true},
		"a get":                        {get(path + "/w"), true},
		"of the status":                {get(path + "/w/status"), true},
		"with a selector":              {get(path + "?labelSelector=a%3Db&limit=5"), true},
		"of any version":               {get(path + "?resourceVersion=0"), true},
		"without a cache":              {get(path, "Cache-Control", "no-cache"), true},
		"of a rule with a share of 0":  {get("/apis/example.com/v1/nevers"), false},
		"of a rule with shared reads":  {get("/apis/example.com/v1/shareds"), true},
		"the fallback answers":         {get("/apis/example.com/v1/spareds"), false},
		"a version of the past":        {get(path + "?resourceVersion=5"), false},
		"another page":                 {get(path + "?limit=5&continue=abc"), false},
		"a watch":                      {get(path + "?watch=1&timeoutSeconds=1"), false},
		"another subresource":          {get(path + "/w/restart"), false},
		"a log":                        {get(path + "/w/log"), false},
		"a proxy":                      {get(path + "/w/proxy/x"), false},
		"conditional":                  {get(path, "If-None-Match", `"a"`), false},
		"a part":                       {get(path, "Range", "bytes=0-1"), false},
		"with a body":                  {with(http.MethodGet, path, "{}"), false},
		"HEAD":                         {httptest.NewRequest(http.MethodHead, path, nil), false},
		"POST":                         {with(http.MethodPost, path, "{}"), false},
		"PUT":                          {with(http.MethodPut, path+"/w", "{}"), false},
		"PATCH":                        {with(http.MethodPatch, path+"/w", "{}"), false},
		"DELETE":                       {httptest.NewRequest(http.MethodDelete, path+"/w", nil), false},
		"a DELETE that calls itself a": {get(path+"/w", "X-HTTP-Method-Override", "DELETE"), true}, // it is a GET for who does not know the header, and for the first backend too
	} {
		t.Run(name, func(t *testing.T) {
			second := &requests{}
			router := routerOf(dispatchtest.Table(t, set, mirroring, map[string]http.Handler{"first": saying("{}"), "second": second}))
			router.SharedReads = sharedreads.New(sharedreads.Config{})
			sent := mirrorReads(t, router, 1)
			h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
			h.ServeHTTP(httptest.NewRecorder(), c.r)
			// A mirrored request follows. Copies are sent in order, so its copy is the last.
			want := map[string]int{metrics.MirrorSame: 1}
			if c.want {
				want[metrics.MirrorSame]++
			}
			h.ServeHTTP(httptest.NewRecorder(), get(path+"/last"))
			sent.are(t, want)
			if n := len(second.list()); n != want[metrics.MirrorSame] {
				t.Errorf("%d copies were sent, want %d", n, want[metrics.MirrorSame])
			}
		})
	}
}

// A cached response is not compared, because no request was sent.
func TestSharedReadIsMirroredOnce(t *testing.T) {
	second := &requests{}
	router := routerOf(dispatchtest.Table(t, backendsFor(t), mirroring, map[string]http.Handler{"first": saying("{}"), "second": second}))
	router.SharedReads = sharedreads.New(sharedreads.Config{})
	sent := mirrorReads(t, router, 1)
	h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/shareds", nil))
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil))
	sent.are(t, map[string]int{metrics.MirrorSame: 2})
}

// A response that Portico made, or that broke off, is not a response of the backend.
func TestLocalAndBrokenResponsesAreNotCompared(t *testing.T) {
	set := backendsFor(t)
	breaks := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(w, strings.Repeat("x", 50000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	none := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for name, first := range map[string]http.Handler{"it broke off": breaks, "there was none": none, "the backend is not available": nil} {
		second := &requests{}
		router := routerOf(dispatchtest.Table(t, set, mirroring, map[string]http.Handler{"first": first, "second": second}))
		sent := mirrorReads(t, router, 1)
		func() {
			defer func() { _ = recover() }() // a response that breaks off
			chainFor(&user.DefaultInfo{Name: "alice"}, router).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil))
		}()
		last := sent.Begin("v1.example.com", "second", "/last")
		last.Send = func(context.Context, http.ResponseWriter) error { return io.EOF }
		sent.End(last)
		sent.are(t, map[string]int{metrics.MirrorFailed: 1})
		if n := len(second.list()); n != 0 {
			t.Errorf("%s: %d copies were sent, want 0", name, n)
		}
	}
}

// A copy is a GET of the same user, without the client's credentials. Flow control and
// audit do not count it as a request.
func TestA46MirroredReadOmitsClientCredentials(t *testing.T) {
	const target = "/apis/example.com/v1/namespaces/a/widgets?labelSelector=a%3Db"
	set := backendsFor(t)
	hang, second := make(chan struct{}), &requests{}
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		second.ServeHTTP(w, r)
		<-hang
	})
	table := dispatchtest.Table(t, set, mirroring, map[string]http.Handler{"first": saying("{}"), "second": slow})
	b := newBench("alice *")
	b.config.MaxInFlight = 1
	router := routerOf(table)
	const clients = 3
	sent := mirrorReads(t, router, clients)
	b.handler = router.build().ServeHTTP
	h := b.chain(t)
	do := func(headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			r.Header.Add(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	secrets := []string{
		"Authorization: Bearer secret", "Proxy-Authorization: Bearer secret", "Cookie: token=secret", "X-Remote-User: secret", "X-Remote-Group: secret",
		"X_Remote_User: secret", "Sec-Websocket-Protocol: base64url.bearer.authorization.k8s.io.secret", "X-Forwarded-For: secret",
	}
	// The clients receive their responses before any copy is answered, although only one request may be in flight.
	for range clients {
		if w := do(append(slices.Clone(secrets), "Test-User: alice", "Test-Group: g", "Accept: application/json", "Accept-Encoding: gzip")...); w.Code != http.StatusOK || w.Body.String() != "{}" {
			t.Fatalf("response to a client = %d %s, want 200 {}", w.Code, w.Body)
		}
	}
	route, _ := table.Lookup(routing.GroupVersionOf("v1.example.com"))
	eventually(t, "the copies are sent", func() bool { return len(second.list()) >= clients })
	if n := route.Parts[1].Backend.Report().InFlight; n != clients {
		t.Errorf("requests in flight at the second backend = %d, want %d", n, clients)
	}
	close(hang)
	sent.are(t, map[string]int{metrics.MirrorSame: clients})
	if n := len(b.events); n != clients {
		t.Errorf("%d audit events, want %d", n, clients)
	}
	for _, r := range second.list() {
		if r.Method != http.MethodGet || r.RequestURI != target || r.ContentLength != 0 {
			t.Errorf("copy = %s %s with %d bytes, want GET %s without a body", r.Method, r.RequestURI, r.ContentLength, target)
		}
		if r.Header.Get("X-Remote-User") != "alice" || !slices.Equal(r.Header["X-Remote-Group"], []string{"g"}) || r.Header.Get("Accept") != "application/json" {
			t.Errorf("header of the copy = %v, want user alice, group g and Accept application/json", r.Header)
		}
		for name, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), "secret") {
				t.Errorf("copy has the field %s: %s, want no credential", name, values)
			}
		}
	}
	// A request with an upgrade is not copied.
	for _, header := range []string{"Upgrade: websocket", "Upgrade: SPDY/3.1"} {
		do("Test-User: alice", "Connection: Upgrade", header)
	}
	do("Test-User: alice")
	sent.are(t, map[string]int{metrics.MirrorSame: clients + 1})
	if n := len(second.list()); n != clients+1 {
		t.Errorf("%d copies were sent after requests with an upgrade, want %d", n, clients+1)
	}
}

// A queued copy is dropped if the APIRoute has changed, because other rules would apply to the comparison.
func TestMirroredReadOfOldSpecIsDropped(t *testing.T) {
	set := backendsFor(t)
	hang, second := make(chan struct{}), &requests{}
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		second.ServeHTTP(w, r)
		<-hang
	})
	handlers := map[string]http.Handler{"first": saying("{}"), "second": slow}
	before, after := dispatchtest.Table(t, set, mirroring, handlers), dispatchtest.Table(t, set, strings.Replace(mirroring, "generation: 1", "generation: 2", 1), handlers)
	router := routerOf(before)
	var mu sync.Mutex
	table := before
	router.Routes = func() *routetable.Table {
		mu.Lock()
		defer mu.Unlock()
		return table
	}
	const inFlight = 2
	sent := mirrorReads(t, router, inFlight)
	h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
	for range inFlight + 1 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil))
	}
	eventually(t, "the copies are sent", func() bool { return len(second.list()) >= inFlight })
	mu.Lock()
	table = after
	mu.Unlock()
	close(hang)
	sent.are(t, map[string]int{metrics.MirrorSame: inFlight, metrics.MirrorDropped: 1})
}

// With several replicas, the replica that reaches the selected backend counts the requests and sends the copies. A copy is not sent to another replica: that
// replica would apply its rules to it.
func TestReceivingReplicaCountsAndMirrorsRequest(t *testing.T) {
	set := backendsFor(t)
	var asked atomic.Int64
	elsewhere := dispatchtest.Backend(t, set, "elsewhere", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		refusing(503).ServeHTTP(w, nil)
	}))
	aborts := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	text := strings.Replace(rollingBack, "FALLBACK", "mirror: {backend: spare}, ", 1)
	for name, c := range map[string]struct {
		second, spare           http.Handler
		code                    int
		elsewhere, copied, gone int64
	}{
		"the copy is not answered":         {saying("{}"), aborts, 200, 0, 1, 0},
		"the backend is reached elsewhere": {nil, saying("{}"), 503, 8, 0, 0},
		"the backend does not answer here": {aborts, saying("{}"), 503, 4, 0, 1},
		"all is well":                      {saying("{}"), saying("{}"), 200, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			spare := &requests{}
			copied := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				spare.ServeHTTP(httptest.NewRecorder(), r)
				c.spare.ServeHTTP(w, r)
			})
			table := dispatchtest.Table(t, set, text, map[string]http.Handler{"first": saying("{}"), "second": c.second, "spare": copied})
			route, _ := table.Lookup(routing.GroupVersionOf("v1.example.com"))
			route.Parts[1].Replicas = []string{"other"}
			router := routerOf(table)
			router.Replicas, router.PeerMetrics = oneReplica{elsewhere}, metrics.NewPeers(prometheus.NewRegistry())
			router.ReachedBy = func(*routetable.Route) []string { return []string{"other"} }
			sent, found := mirrorReads(t, router, 1), rollbacksOf(router)
			h := chainFor(&user.DefaultInfo{Name: "alice"}, router)
			for range 8 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil))
				if w.Code != c.code && len(*found) == 0 {
					t.Errorf("response = %d %s, want %d", w.Code, w.Body, c.code)
				}
			}
			last := sent.Begin("v1.example.com", "second", "/last")
			last.Send = func(context.Context, http.ResponseWriter) error { return io.EOF }
			sent.End(last)
			sent.are(t, map[string]int{metrics.MirrorFailed: 1})
			copies := 8 * c.copied
			if c.gone > 0 {
				copies = 4 // of the first backend, which receives the requests after the rollback
			}
			distinct := map[string]bool{} // an unanswered copy is repeated
			for _, r := range spare.list() {
				distinct[r.Header.Get("Audit-Id")] = true
			}
			if n := int64(len(distinct)); n != copies || asked.Load() != c.elsewhere || int64(len(*found)) != c.gone {
				t.Errorf("%d copies, %d requests to the other replica and %d rollbacks, want %d, %d and %d", n, asked.Load(), len(*found), copies, c.elsewhere, c.gone)
			}
		})
	}
}

// A failed copy is counted as a copy, and logged in the log of copies, which is limited. It is not counted as a failed request.
func TestFailedMirrorIsNotCountedAsFailedRequest(t *testing.T) {
	set := backendsFor(t)
	aborts := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	half := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = io.WriteString(w, strings.Repeat("x", 50000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	for name, c := range map[string]struct {
		first, second http.Handler
		copies        map[string]int
		warnings      int
	}{
		"the copy is not answered":   {saying("{}"), aborts, map[string]int{metrics.MirrorFailed: 1}, 0},
		"the copy is half answered":  {saying("{}"), half, map[string]int{metrics.MirrorFailed: 1}, 0},
		"the client gets no answer":  {aborts, saying("{}"), map[string]int{}, 1},
		"the client gets half of it": {half, saying("{}"), map[string]int{}, 1},
	} {
		core, logs := observer.New(zap.WarnLevel)
		counted := metrics.NewRequests(prometheus.NewRegistry())
		router := routerOf(dispatchtest.Table(t, set, mirroring, map[string]http.Handler{"first": c.first, "second": c.second}))
		router.Proxy = proxy.New(proxy.Config{Logger: zap.New(core), Requests: counted})
		sent := mirrorReads(t, router, 1)
		func() {
			defer func() { _ = recover() }() // a response that breaks off
			chainFor(&user.DefaultInfo{Name: "alice"}, router).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil))
		}()
		sent.are(t, c.copies)
		if n := logs.Len(); n != c.warnings {
			t.Errorf("%s: %d warnings %v, want %d", name, n, logs.All(), c.warnings)
		}
		if n := testutil.CollectAndCount(counted.Terminations); n > 0 && c.warnings == 0 {
			t.Errorf("%s: %d kinds of terminated requests, want 0", name, n)
		}
	}
}

// A58: a copy is compared with the response to the request that was sent, which had none of the fields that Connection nominates.
func TestA58MirroredReadOmitsNominatedFields(t *testing.T) {
	first, second := &requests{}, &requests{}
	router := routerOf(dispatchtest.Table(t, backendsFor(t), mirroring, map[string]http.Handler{"first": first, "second": second}))
	sent := mirrorReads(t, router, 1)
	r := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/widgets", nil)
	r.Header = http.Header{"Accept": {"a/b"}, "If-None-Match": {`"x"`}, "X-Tenant": {"t"}, "Connection": {"accept, If-None-Match"}}
	chainFor(&user.DefaultInfo{Name: "alice"}, router).ServeHTTP(httptest.NewRecorder(), r)
	sent.are(t, map[string]int{metrics.MirrorSame: 1})
	for name, backend := range map[string]*requests{"first": first, "second": second} {
		for _, got := range backend.list() {
			if got.Header["Accept"] != nil || got.Header["If-None-Match"] != nil || got.Header.Get("X-Tenant") != "t" {
				t.Errorf("backend %s received the header %v, want no field that Connection nominates", name, got.Header)
			}
		}
	}
}
