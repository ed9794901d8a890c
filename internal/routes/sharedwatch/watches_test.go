package sharedwatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"portico.dev/internal/metrics"
)

// env contains running Watches and a server in a bubble.
type env struct {
	*Watches
	t      *testing.T
	server *server
	reg    *prometheus.Registry
	begun  []*client
	others []*server // of other collections
}

func during(t *testing.T, c Config, test func(*env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &env{t: t, server: newServer(), reg: prometheus.NewRegistry()}
		c.Metrics = metrics.NewSharedWatches(h.reg)
		h.Watches = New(c)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- h.Run(ctx) }()
		synctest.Wait()
		test(h)
		for _, c := range h.begun {
			c.end()
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, s := range append(h.others, h.server) {
			s.interrupt()
		}
		synctest.Wait()
		if len(h.streams) != 0 || h.bytes != 0 || h.clients != 0 || len(h.users) != 0 || len(h.lists) != 0 {
			t.Errorf("at the end: %d streams, %d bytes of objects, %d clients, %d users, %d lists, want 0", len(h.streams), h.bytes, h.clients, len(h.users), len(h.lists))
		}
	})
}

// request returns a watch from a version.
func (h *env) request(version string) *Request {
	return &Request{
		Key: "key", Of: "route", Backend: h.server, Path: "/apis/example.com/v1/widgets", Current: func() bool { return true },
		Version: version, Lifetime: time.Hour,
	}
}

// client is a watch whose response is recorded.
type client struct {
	h      *env
	cancel context.CancelFunc
	done   chan struct{}
	shared bool // valid after done is closed

	mu     sync.Mutex // guards the fields below
	header http.Header
	code   int
	text   bytes.Buffer
	pause  time.Duration // before each write
	broken bool
}

// serve serves a watch to its end. It returns false if the watch is not shared.
func serve(ctx context.Context, s *Watches, w http.ResponseWriter, q *Request) bool {
	begun := s.Serve(ctx, w, q)
	if begun == nil {
		return false
	}
	defer begun.Leave()
	begun.Run()
	return true
}

func (h *env) watch(q *Request) *client {
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{h: h, cancel: cancel, done: make(chan struct{}), header: http.Header{}}
	h.begun = append(h.begun, c)
	go func() {
		defer close(c.done)
		c.shared = serve(ctx, h.Watches, c, q)
	}()
	return c
}

func (c *client) Header() http.Header { return c.header }

func (c *client) WriteHeader(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.code = code
}

func (c *client) Write(p []byte) (int, error) {
	c.mu.Lock()
	pause := c.pause
	c.mu.Unlock()
	time.Sleep(pause)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return 0, errors.New("gone")
	}
	return c.text.Write(p)
}

func (c *client) Flush() {}

func (c *client) setPause(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause = d
}

// events returns the received events, one word each: type, name and version.
func (c *client) events() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for line := range strings.Lines(c.text.String()) {
		var e struct {
			Type   string
			Object struct {
				Kind     string
				Code     int
				Metadata struct {
					Name, ResourceVersion string
					Annotations           map[string]string
				}
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			c.h.t.Errorf("line %q is not an event: %v, want JSON", line, err)
		}
		word := e.Type + "/" + e.Object.Metadata.Name + "/" + e.Object.Metadata.ResourceVersion
		if e.Object.Code != 0 {
			word = fmt.Sprint(e.Type, "/", e.Object.Code)
		}
		for name := range e.Object.Metadata.Annotations {
			word += "/" + name
		}
		out = append(out, word)
	}
	return strings.Join(out, " ")
}

// end cancels the watch and reports whether it was shared.
func (c *client) end() bool {
	c.cancel()
	<-c.done
	return c.shared
}

func (c *client) wants(what string) {
	c.h.t.Helper()
	if got := c.events(); got != what {
		c.h.t.Errorf("events = %q, want %q", got, what)
	}
}

func TestOneBackendWatchServesAllClients(t *testing.T) {
	during(t, Config{}, func(h *env) {
		first := h.watch(h.request("100"))
		first.wants("")
		h.server.set("a") // 101
		first.wants("ADDED/a/101")
		second := h.watch(h.request("101"))
		h.server.set("b")
		h.server.set("a")
		h.server.remove("b")
		third := h.watch(h.request("103"))
		first.wants("ADDED/a/101 ADDED/b/102 MODIFIED/a/103 DELETED/b/104")
		second.wants("ADDED/b/102 MODIFIED/a/103 DELETED/b/104")
		third.wants("DELETED/b/104")
		h.server.other()
		h.server.other() // 106
		ahead := h.watch(h.request("106"))
		h.server.set("c")
		ahead.wants("ADDED/c/107")
		between := h.watch(h.request("105"))
		between.wants("ADDED/c/107")
		bookmarks := h.request("107")
		bookmarks.Bookmarks = true
		marked := h.watch(bookmarks)
		h.server.other()
		h.server.bookmark()
		marked.wants("BOOKMARK//108")
		third.wants("DELETED/b/104 ADDED/c/107")
		if n := h.server.requests["watch"]; n != 1 || h.server.requests["list"] != 0 {
			t.Errorf("server received %d watches and %d lists, want 1 and 0", n, h.server.requests["list"])
		}
		if m := h.config.Metrics; testutil.ToFloat64(prometheusOf(h, "portico_shared_watch_clients")) != 6 || m == nil {
			t.Error("portico_shared_watch_clients differs from the number of clients, want 6")
		}
		for _, c := range []*client{first, second, third, ahead, between, marked} {
			if !c.end() || c.code != http.StatusOK || c.header.Get("Content-Type") != "application/json" {
				t.Errorf("ended watch: shared = %t, status %d, header %v, want shared with 200 and JSON", c.shared, c.code, c.header)
			}
		}
	})
}

// prometheusOf returns a registered gauge.
func prometheusOf(h *env, name string) prometheus.Collector {
	families, err := h.reg.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
	for _, f := range families {
		if f.GetName() == name {
			g.Set(f.Metric[0].GetGauge().GetValue())
		}
	}
	return g
}

func TestInitialEventsEndWithBookmark(t *testing.T) {
	during(t, Config{}, func(h *env) {
		h.server.set("a")
		h.server.set("b")
		h.server.remove("b")
		h.server.other() // 104
		q := h.request("")
		q.InitialEvents, q.Bookmarks = true, true
		first := h.watch(q)
		first.wants("ADDED/a/101 BOOKMARK//104/k8s.io/initial-events-end")
		h.server.set("c")
		h.server.remove("a")
		synctest.Wait()
		plain := h.watch(h.request("0"))
		plain.wants("ADDED/c/105")
		without := h.request("104")
		without.InitialEvents = true
		silent := h.watch(without)
		silent.wants("ADDED/c/105")
		h.server.set("c")
		for c, want := range map[*client]string{
			first:  "ADDED/a/101 BOOKMARK//104/k8s.io/initial-events-end ADDED/c/105 DELETED/a/106 MODIFIED/c/107",
			plain:  "ADDED/c/105 MODIFIED/c/107",
			silent: "ADDED/c/105 MODIFIED/c/107",
		} {
			c.wants(want)
			c.end()
		}
		if w, l := h.server.requests["watch"], h.server.requests["list"]; w != 1 || l != 1 {
			t.Errorf("server received %d watches and %d lists, want 1 and 1", w, l)
		}
		// A version that the stream cannot have yet.
		later := h.request("999")
		later.InitialEvents = true
		if c := h.watch(later); c.events() != "" || c.code != 0 {
			t.Error("client received objects that may be older than its version, want none")
		}
	})
}

// The objects are listed when a client requests them, even if the stream began without objects.
func TestInitialEventsAreListedLaterOnDemand(t *testing.T) {
	during(t, Config{}, func(h *env) {
		h.server.set("a")
		first := h.watch(h.request("101"))
		first.wants("")
		h.server.set("b")
		h.server.other() // The list is ahead of the watch.
		q := h.request("")
		q.InitialEvents, q.Bookmarks = true, true
		second := h.watch(q)
		synctest.Wait()
		if got := second.events(); !strings.HasSuffix(got, " BOOKMARK//103/k8s.io/initial-events-end") || len(got) != len("ADDED/a/101 ADDED/b/102 BOOKMARK//103/k8s.io/initial-events-end") {
			t.Errorf("events = %q, want ADDED for a and b and the initial-events-end bookmark", got)
		}
		h.server.set("c")
		first.wants("ADDED/b/102 ADDED/c/104")
		if got := second.events(); !strings.HasSuffix(got, "end ADDED/c/104") {
			t.Errorf("events = %q, want ADDED/c/104 after the bookmark", got)
		}
		third := h.watch(h.request(""))
		if got := third.events(); strings.Count(got, "ADDED") != 3 {
			t.Errorf("events = %q, want 3 ADDED events", got)
		}
		first.end()
		second.end()
		third.end()
	})
}

// A list may be older than events that arrived before its response, and newer than events that arrive after it.
func TestInitialEventsMatchTheirResourceVersion(t *testing.T) {
	event := func(version int, kind, name string) *event {
		e, err := parse([]byte(change{version, kind, name}.line()))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	check := func(h *history, version string, names ...string) {
		t.Helper()
		objects, bookmark, at := h.initial(true)
		var lines [][]byte
		for _, object := range objects {
			lines = append(lines, object)
		}
		lines = append(lines, bookmark)
		text := string(bytes.Join(lines, nil))
		if h.version != version || len(lines) != len(names)+1 || at.place != h.end() || !strings.Contains(string(lines[len(lines)-1]), `"resourceVersion":"`+version+`"`) {
			t.Errorf("objects at version %s from place %d = %s, want %d objects and a bookmark at version %s", h.version, at.place, text, len(names), version)
		}
		for _, name := range names {
			if !strings.Contains(text, `"name":"`+name+`"`) {
				t.Errorf("object %s is missing, want it in %s", name, text)
			}
		}
	}
	widget := func(version int, name string) map[objectKey]json.RawMessage {
		return map[objectKey]json.RawMessage{{"a", name}: json.RawMessage(change{version, "ADDED", name}.object())}
	}

	older := &history{maxFrames: 10, maxBytes: 1 << 20, base: "100"}
	older.add(event(101, "ADDED", "a"))
	older.add(event(103, "ADDED", "b"))
	if err := older.setObjects(&list{version: "102", kind: "Widget", apiVersion: "example.com/v1", objects: widget(101, "a")}); err != nil {
		t.Fatal(err)
	}
	check(older, "103", "a", "b")

	newer := &history{maxFrames: 10, maxBytes: 1 << 20, base: "100"}
	if err := newer.setObjects(&list{version: "105", kind: "Widget", apiVersion: "example.com/v1", objects: widget(104, "b")}); err != nil {
		t.Fatal(err)
	}
	for _, e := range []change{{101, "ADDED", "a"}, {102, "ADDED", "b"}, {103, "DELETED", "a"}, {104, "MODIFIED", "b"}} {
		newer.add(event(e.version, e.kind, e.name))
		check(newer, "105", "b")
	}
	newer.add(event(106, "ADDED", "c"))
	check(newer, "106", "b", "c")
}

func TestWatchEndIsCountedByReason(t *testing.T) {
	reason := func(h *env, name string) float64 {
		families, err := h.reg.Gather()
		if err != nil {
			h.t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if f.GetName() == "portico_shared_watch_ended_total" && l.GetName() == "reason" && l.GetValue() == name {
						return m.GetCounter().GetValue()
					}
				}
			}
		}
		return 0
	}
	t.Run("its time is over", func(t *testing.T) {
		during(t, Config{}, func(h *env) {
			q := h.request("100")
			q.Lifetime = time.Minute
			c := h.watch(q)
			<-c.done
			if c.wants(""); !c.shared || reason(h, metrics.WatchTimeout) != 1 {
				t.Errorf("shared = %t, want true and one timeout in the metrics", c.shared)
			}
		})
	})
	t.Run("the client left", func(t *testing.T) {
		during(t, Config{}, func(h *env) {
			c := h.watch(h.request("100"))
			synctest.Wait()
			if c.end(); reason(h, metrics.WatchClientLeft) != 1 {
				t.Error("disconnect of the client is not counted, want 1")
			}
			time.Sleep(lingers + 2*checkInterval)
			synctest.Wait()
			if len(h.streams) != 0 || len(h.server.watchers) != 0 {
				t.Errorf("%d streams and %d watchers without clients, want 0", len(h.streams), len(h.server.watchers))
			}
		})
	})
	t.Run("a client does not read", func(t *testing.T) {
		during(t, Config{MaxFrames: 10}, func(h *env) {
			slow, quick := h.watch(h.request("100")), h.watch(h.request("100"))
			synctest.Wait()
			slow.setPause(time.Hour)
			for i := range 30 {
				h.server.set(strconv.Itoa(i))
				synctest.Wait()
			}
			if got := strings.Count(quick.events(), "ADDED"); got != 30 {
				t.Errorf("other client received %d ADDED events, want 30", got)
			}
			<-slow.done
			if got := slow.events(); !strings.HasSuffix(got, "ERROR/410") || strings.Count(got, "ADDED") > 11 || reason(h, metrics.WatchSlow) != 1 {
				t.Errorf("events = %q, want ERROR/410 after at most 11 ADDED events", got)
			}
			quick.end()
		})
	})
	t.Run("the server ends its watches now and then", func(t *testing.T) {
		during(t, Config{}, func(h *env) {
			c := h.watch(h.request("100"))
			synctest.Wait()
			for i := range 5 {
				h.server.set(strconv.Itoa(i))
				synctest.Wait()
				h.server.interrupt()
				h.server.set("x" + strconv.Itoa(i))
				time.Sleep(time.Minute)
			}
			if got := strings.Count(c.events(), "ADDED"); got != 10 {
				t.Errorf("client received %d ADDED events, want 10: %s", got, c.events())
			}
			c.end()
		})
	})
	t.Run("the server has forgotten where the stream is", func(t *testing.T) {
		during(t, Config{}, func(h *env) {
			c := h.watch(h.request("100"))
			synctest.Wait()
			h.server.setDown(true)
			h.server.set("a")
			h.server.compact()
			h.server.setDown(false)
			<-c.done
			if c.wants("ERROR/410"); reason(h, metrics.WatchExpired) != 1 {
				t.Error("expired watch is not counted, want 1")
			}
		})
	})
	t.Run("the server is down for a second", func(t *testing.T) {
		during(t, Config{}, func(h *env) {
			c := h.watch(h.request("100"))
			synctest.Wait()
			h.server.setDown(true)
			time.Sleep(time.Second)
			h.server.set("a")
			h.server.setDown(false)
			time.Sleep(time.Minute)
			c.wants("ADDED/a/101")
			c.end()
		})
	})
	t.Run("the server is down", func(t *testing.T) {
		during(t, Config{}, func(h *env) {
			c := h.watch(h.request("100"))
			synctest.Wait()
			h.server.setDown(true)
			began := time.Now()
			<-c.done
			if took := time.Since(began); took < giveUp || took > 2*giveUp || reason(h, metrics.WatchUpstream) != 1 {
				t.Errorf("watch ended after %s, want %s to %s and one upstream error", took, giveUp, 2*giveUp)
			}
			c.wants("") // It watches again from its last version.
		})
	})
	t.Run("the APIRoute changes", func(t *testing.T) {
		during(t, Config{}, func(h *env) {
			q := h.request("100")
			until := time.Now().Add(time.Minute)
			q.Current = func() bool { return time.Now().Before(until) }
			c := h.watch(q)
			<-c.done
			if late := time.Since(until); !c.shared || late < 0 || late > 2*checkInterval {
				t.Errorf("watch ended %s after its validity, shared %t, want at most %s", late, c.shared, 2*checkInterval)
			}
		})
	})
}

func TestA47UnsuitableWatchIsNotShared(t *testing.T) {
	for name, c := range map[string]struct {
		config  Config
		prepare func(*env)
		version string
	}{
		"the server refuses the front door": {prepare: func(h *env) { h.server.refuses = 403 }, version: "100"},
		"the server refuses lists":          {prepare: func(h *env) { h.server.refuses = 405 }},
		"the server is down":                {prepare: func(h *env) { h.server.down = true }, version: "100"},
		"a version that is no number":       {version: "opaque"},
		"a list without a version":          {prepare: func(h *env) { h.server.lists = `{"kind":"WidgetList","apiVersion":"example.com/v1","items":[]}` }},
		"a list in parts": {prepare: func(h *env) {
			h.server.lists = `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"1","continue":"x"},"items":[]}`
		}},
		"a Table": {prepare: func(h *env) {
			h.server.lists = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"rows":[]}`
		}},
		"more objects than there is room for":               {config: Config{MaxBytes: 300}, prepare: func(h *env) { h.server.set("a"); h.server.set("b"); h.server.set("c") }},
		"a version from before the stream":                  {version: "90", prepare: func(h *env) { h.watch(h.request("100")); synctest.Wait() }},
		"more streams than may be":                          {config: Config{MaxStreams: 1}, version: "100", prepare: func(h *env) { q := h.request("100"); q.Key = "other"; h.watch(q); synctest.Wait() }},
		"initial events from a version that is no number":   {version: "opaque"},
		"a version that is no number, of a stream with one": {version: "opaque", prepare: func(h *env) { h.watch(h.request("100")); synctest.Wait() }},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, c.config, func(h *env) {
				if c.prepare != nil {
					c.prepare(h)
				}
				w := h.watch(h.request(c.version))
				<-w.done
				if w.shared || w.code != 0 || w.text.Len() > 0 {
					t.Errorf("shared = %t, status %d, body %s, want an unshared watch without a response", w.shared, w.code, &w.text)
				}
			})
		})
	}
	t.Run("for a while after a failure", func(t *testing.T) {
		during(t, Config{}, func(h *env) {
			h.server.refuses = 403
			for range 3 {
				<-h.watch(h.request("100")).done
			}
			if n := h.server.requests["version"]; n != 1 {
				t.Errorf("server received %d reads of the version, want 1", n)
			}
			h.server.refuses = 0
			time.Sleep(notSharedFor)
			if c := h.watch(h.request("100")); c.events() != "" || !c.end() {
				t.Error("watch after the pause is not shared, want it shared without events")
			}
		})
	})
	t.Run("before Run, and after it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &env{t: t, server: newServer(), Watches: New(Config{})}
			if serve(t.Context(), h.Watches, &client{header: http.Header{}}, h.request("100")) {
				t.Error("watch before Run is shared, want it unshared: Run does not wait for it")
			}
		})
	})
}

// A client lists, watches, and resumes from its version or lists again if required. In all interleavings it must receive every later
// change once and in order.
type modelClient struct {
	h       *env
	random  *rand.Rand
	objects map[string]int
	has     int // the version up to which it has received everything
	mutex   sync.Mutex
	failure string
}

func (c *modelClient) fail(format string, args ...any) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.failure == "" {
		c.failure = fmt.Sprintf(format, args...)
	}
}

// run watches until ctx ends.
func (c *modelClient) run(ctx context.Context) {
	listed := false
	for ctx.Err() == nil {
		q := c.h.request("")
		q.Bookmarks = c.random.IntN(2) == 0
		initial := !listed && c.random.IntN(3) == 0
		if initial {
			q.InitialEvents, q.Bookmarks, c.objects = true, true, nil
		} else if !listed {
			c.has, c.objects = c.h.server.state()
		}
		listed = true
		if !initial {
			q.Version = strconv.Itoa(c.has)
		}
		watching, cancel := context.WithTimeout(ctx, time.Duration(1+c.random.IntN(5000))*time.Millisecond)
		reader := &modelReader{client: c, initial: initial, expected: map[string]int{}, pause: time.Duration(c.random.IntN(3)*c.random.IntN(40)) * time.Millisecond}
		shared := serve(watching, c.h.Watches, reader, q)
		cancel()
		if reader.again || !shared || reader.initial {
			listed = false // Unshared watches are served without the cache.
			time.Sleep(time.Duration(c.random.IntN(300)) * time.Millisecond)
		}
	}
}

// modelReader is one response.
type modelReader struct {
	client   *modelClient
	initial  bool // The initial objects are being sent.
	expected map[string]int
	again    bool // It must list again.
	pause    time.Duration
}

func (r *modelReader) Header() http.Header { return http.Header{} }
func (r *modelReader) WriteHeader(int)     {}
func (r *modelReader) Flush()              { time.Sleep(r.pause) }

func (r *modelReader) Write(line []byte) (int, error) {
	var e struct {
		Type   string
		Object struct {
			Code     int
			Metadata struct {
				Name, ResourceVersion string
				Annotations           map[string]string
			}
		}
	}
	c := r.client
	if err := json.Unmarshal(line, &e); err != nil {
		c.fail("%v in %q", err, line)
		return len(line), nil
	}
	version, _ := strconv.Atoi(e.Object.Metadata.ResourceVersion)
	name := e.Object.Metadata.Name
	switch {
	case e.Type == "ERROR":
		r.again = true
	case r.initial && e.Type == "ADDED":
		if _, twice := r.expected[name]; twice {
			c.fail("%s came twice among the initial events", name)
		}
		r.expected[name] = version
	case r.initial && e.Type == "BOOKMARK" && e.Object.Metadata.Annotations["k8s.io/initial-events-end"] != "":
		r.initial, c.objects, c.has = false, r.expected, version
		if want := c.h.server.at(version); fmt.Sprint(want) != fmt.Sprint(c.objects) {
			c.fail("at %d it has %v, and the server had %v", version, c.objects, want)
		}
	case r.initial:
		c.fail("%s among the initial events", e.Type)
	case e.Type == "BOOKMARK":
		if next := c.h.server.after(c.has); len(next) > 0 && next[0].version <= version {
			c.fail("a bookmark says %d, and %v did not come", version, next[0])
		}
		c.has = max(c.has, version)
	default:
		next := c.h.server.after(c.has)
		if len(next) == 0 || next[0] != (change{version, e.Type, name}) {
			c.fail("after %d came %s of %s at %d, want %v", c.has, e.Type, name, version, next)
		}
		c.has = version
		if c.objects[name] = version; e.Type == "DELETED" {
			delete(c.objects, name)
		}
	}
	return len(line), nil
}

// at returns the objects at a version.
func (s *server) at(version int) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects := map[string]int{}
	for _, c := range s.changes {
		if c.version > version {
			break
		}
		if objects[c.name] = c.version; c.kind == "DELETED" {
			delete(objects, c.name)
		}
	}
	return objects
}

func TestModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			during(t, Config{MaxFrames: 12}, func(h *env) {
				random := rand.New(rand.NewPCG(seed, 1))
				ctx, cancel := context.WithCancel(context.Background())
				var running sync.WaitGroup
				clients := make([]*modelClient, 8)
				for i := range clients {
					c := &modelClient{h: h, random: rand.New(rand.NewPCG(seed, uint64(2+i)))}
					clients[i] = c
					running.Go(func() { c.run(ctx) })
				}
				for range 2000 {
					time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
					switch n := random.IntN(200); {
					case n < 110:
						h.server.set(strconv.Itoa(random.IntN(8)))
					case n < 150:
						h.server.remove(strconv.Itoa(random.IntN(8)))
					case n < 180:
						h.server.other()
					case n < 190:
						h.server.bookmark()
					case n < 196:
						h.server.interrupt()
					case n < 198:
						h.server.compact()
					default:
						h.server.setDown(true)
						time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
						h.server.setDown(false)
					}
				}
				time.Sleep(time.Minute) // All clients catch up.
				cancel()
				running.Wait()
				version, objects := h.server.state()
				for i, c := range clients {
					if c.failure != "" {
						t.Errorf("client %d: %s, want no failure", i, c.failure)
					}
					if c.has > version || len(h.server.after(c.has)) == 0 && fmt.Sprint(c.objects) != fmt.Sprint(objects) {
						t.Errorf("client %d has %v at version %d, want %v at version %d", i, c.objects, c.has, objects, version)
					}
				}
				h.server.mu.Lock()
				defer h.server.mu.Unlock()
				if h.server.requests["watch"] > 1500 {
					t.Errorf("server received %d watches, want at most 1500", h.server.requests["watch"])
				}
			})
		})
	}
}
