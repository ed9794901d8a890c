package cluster

import (
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/proxy"
	"portico.dev/internal/respond"
	"portico.dev/internal/transport"
)

// discovery serves documents with ETags to every user but mallory and system:anonymous.
type discovery struct {
	mu   sync.Mutex
	seen []string // "user path (if-none-match)"
}

func (d *discovery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := r.Header.Get("Impersonate-User")
	d.mu.Lock()
	d.seen = append(d.seen, fmt.Sprintf("%s %s (%s)", who, r.URL.Path, r.Header.Get("If-None-Match")))
	d.mu.Unlock()
	switch {
	case who == "mallory", who == "system:anonymous":
		http.Error(w, "you may not", http.StatusForbidden)
		return
	case r.URL.Path == "/version":
		_, _ = io.WriteString(w, `{"gitVersion":"v1.37.1"}`)
		return
	}
	w.Header().Set("ETag", `"1"`)
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("If-None-Match") == `"1"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = fmt.Fprintf(w, `{"path":%q}`, r.URL.Path)
}

func (d *discovery) has(line string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, seen := range d.seen {
		if seen == line {
			return true
		}
	}
	return false
}

func TestDocumentsInTheBackground(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		var d discovery
		e.handleAll(d.ServeHTTP)
		settle(time.Minute)
		if got := e.cluster.State().Version; got != "v1.37.1" {
			t.Errorf("State().Version = %q, want v1.37.1", got)
		}
		d.mu.Lock()
		d.seen = nil
		d.mu.Unlock()
		settle(5 * time.Minute)
		d.mu.Lock()
		defer d.mu.Unlock()
		if n := len(d.seen); n < 9*3 || n > 12*3 {
			t.Errorf("%d documents were fetched in five minutes, want about 30", n)
		}
		for _, seen := range d.seen {
			if strings.Contains(seen, "openapi") || !strings.Contains(seen, `("1")`) && !strings.Contains(seen, "/version") {
				t.Errorf("%s was fetched, want only documents of discovery, with the ETag", seen)
			}
		}
	})
}

func TestDocumentsAreFetchedAsTheirUser(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		var d discovery
		e.handleAll(d.ServeHTTP)
		settle(time.Minute)
		const openAPI = "/openapi/v3/api/v1?hash=AB"
		for _, path := range []string{"/apis", openAPI} {
			for _, who := range []string{"alice", "carol"} {
				if a := e.get(path, "X-Test-User", who); a.StatusCode != http.StatusOK || !strings.Contains(a.body, "path") {
					t.Errorf("GET %s as %s = %d %s, want the document", path, who, a.StatusCode, a.body)
				}
			}
			for _, who := range []string{"mallory", "system:anonymous"} {
				if a := e.get(path, "X-Test-User", who); a.StatusCode != http.StatusForbidden {
					t.Errorf("GET %s as %s = %d %s, want 403 of the API server", path, who, a.StatusCode, a.body)
				}
			}
		}
		if want := `carol /apis ("1")`; !d.has(want) {
			t.Errorf("the API servers saw %q, want %q: the memory is revalidated as the user", d.seen, want)
		}
		for _, a := range e.servers {
			a.kill()
		}
		for _, path := range []string{"/apis", openAPI} {
			a := e.get(path, "X-Test-User", "bob")
			if a.StatusCode != http.StatusOK || !strings.Contains(a.Header.Get("Warning"), "cluster prod does not answer; this document is of ") {
				t.Errorf("GET %s as bob during an outage = %d %s with the warning %q, want it from memory", path, a.StatusCode, a.body, a.Header.Get("Warning"))
			}
			for _, who := range []string{"mallory", "system:anonymous"} {
				if a := e.get(path, "X-Test-User", who); a.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("GET %s as %s during an outage = %d %s, want 503", path, who, a.StatusCode, a.body)
				}
			}
		}
	})
}

func TestFetchesAreSharedByOneUserOnly(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		var alice, bob atomic.Int64
		release := make(chan struct{})
		e.handleAll(func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("Impersonate-User") {
			case "alice":
				alice.Add(1)
			case "bob":
				bob.Add(1)
			}
			<-release
			_, _ = io.WriteString(w, "{}")
		})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { e.get("/openapi/v2", "X-Test-User", "alice") })
			wg.Go(func() { e.get("/openapi/v2", "X-Test-User", "bob") })
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		if alice.Load() != 1 || bob.Load() != 1 {
			t.Errorf("%d and %d fetches for five requests of two users each, want 1 and 1", alice.Load(), bob.Load())
		}
	})
}

func TestIndexOfOpenAPIDocumentsWithAWrongURL(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *env) {
		var fetched atomic.Bool
		e.handleAll(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/openapi/v3":
				_, _ = io.WriteString(w, `{"paths":{"api/v1":{"serverRelativeURL":":not a URL"}}}`)
			case "/openapi/v3/api/v1":
				fetched.Store(true)
			default:
				_, _ = io.WriteString(w, "{}")
			}
		})
		settle(2 * followInterval)
		if !fetched.Load() {
			t.Error("the document with a wrong URL was not fetched, want it at its path")
		}
	}, func(c *Config) { c.SingleUser = true })
}

func TestMemoryOfDocumentsIsLimited(t *testing.T) {
	d := newDocuments(&Cluster{config: Config{Logger: zap.NewNop()}})
	body := make([]byte, 1<<20)
	_, _ = rand.Read(body) // never fails
	packed, err := respond.Pack(body, gzip.DefaultCompression)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		d.put(variant{path: fmt.Sprint(i)}, &document{Document: respond.Document{Gzip: packed}})
	}
	if n := d.known.Len(); n == 0 || n > 8 || d.bytes > maxOfCluster || d.get(variant{path: "99"}) == nil {
		t.Errorf("%d documents with %d bytes are kept, want the last ones with at most %d", n, d.bytes, maxOfCluster)
	}
	for i := range 2 * maxRefused {
		d.recordDecision(identity{key: fmt.Sprint(i)}, statusError(http.StatusForbidden))
	}
	if n := d.refused.Len(); n != maxRefused {
		t.Errorf("%d refused users are known, want %d", n, maxRefused)
	}
	who := identity{known: true, key: fmt.Sprint(2*maxRefused - 1)}
	d.recordDecision(who, errors.New("no answer"))
	if d.mayServeLast(who) {
		t.Error("mayServeLast(a refused user) = true after an outage, want false")
	}
	d.recordDecision(who, nil)
	if !d.mayServeLast(who) {
		t.Error("mayServeLast(a user who has been accepted since) = false, want true")
	}
}

func TestCauseOfAnUnavailableAPIServiceIsReadAsTheUser(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *env) {
		e.handleAll(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !strings.HasPrefix(r.URL.Path, "/apis/apiregistration.k8s.io/"):
				http.Error(w, "service unavailable", http.StatusServiceUnavailable)
			case r.Header.Get("Impersonate-User") != "alice":
				http.Error(w, "you may not", http.StatusForbidden)
			default:
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"status":{"conditions":[{"type":"Available","status":"False","reason":"Dead","message":"no route"}]}}`)
			}
		})
		for who, want := range map[string]string{"alice": "no route", "bob": "service unavailable\n"} {
			if a := e.get("/apis/metrics.k8s.io/v1/nodes", "X-Test-User", who); a.StatusCode != http.StatusServiceUnavailable || !strings.Contains(a.body, want) {
				t.Errorf("GET as %s = %d %s, want 503 with %q", who, a.StatusCode, a.body, want)
			}
		}
	})
}

// TestFetchesOfDocumentsAreRequestsInFlight sends more requests than the limit allows, each for another form of a document.
func TestFetchesOfDocumentsAreRequestsInFlight(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *env) {
		var alice, bob atomic.Int64
		release := make(chan struct{})
		e.handleAll(func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("Impersonate-User") {
			case "alice":
				alice.Add(1)
			case "bob":
				bob.Add(1)
			}
			<-release
			_, _ = io.WriteString(w, "{}")
		})
		var wg sync.WaitGroup
		var refused atomic.Int64
		for i := range 20 {
			wg.Go(func() {
				if got := e.get("/openapi/v2", "X-Test-User", "alice", "Accept", fmt.Sprint("application/json;q=0.", i)); got.StatusCode == http.StatusTooManyRequests {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		wg.Go(func() { e.get("/openapi/v2", "X-Test-User", "bob") })
		synctest.Wait()
		if alice.Load() != 3 || refused.Load() != 17 || bob.Load() != 1 {
			t.Errorf("%d requests of alice and %d of bob arrived and %d are refused, want 3, 1 and 17", alice.Load(), bob.Load(), refused.Load())
		}
		close(release)
		wg.Wait()
	}, func(c *Config) { c.MaxInFlight = 4 })
}

func TestDocumentsAreChargedWhileTheyAreRead(t *testing.T) {
	budget := &transport.Shares{}
	const limit, size = 32 << 20, 1 << 20
	inBubble(t, 1, func(t *testing.T, e *env) {
		more := make(chan struct{})
		e.handleAll(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, size))
			_ = http.NewResponseController(w).Flush()
			<-more
			_, _ = w.Write(make([]byte, size))
		})
		get := func(path string) {
			if got := e.get(path, "X-Test-User", "alice"); got.StatusCode != 200 || len(got.body) != 2*size {
				t.Errorf("GET = %d with %d bytes, want 200 and %d", got.StatusCode, len(got.body), 2*size)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { get("/openapi/v2") })
		synctest.Wait()
		if got := budget.Total(); got < size {
			t.Errorf("%d bytes are charged for a part of %d bytes, want more", got, size)
		}
		close(more)
		wg.Wait()
		if got := budget.Total(); got != 0 {
			t.Errorf("%d bytes are charged after the response, want 0", got)
		}
		if ok, _ := budget.Take("others", limit-size, limit); !ok {
			t.Fatal("Take() = false, want true")
		}
		get("/openapi/v3") // streamed
		budget.Give("others", limit-size)
	}, func(c *Config) {
		c.Proxy = proxy.New(proxy.Config{Lists: proxy.ListMemory{Shares: budget, Limit: limit}})
	})
}
