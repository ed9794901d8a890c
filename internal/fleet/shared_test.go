package fleet

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/fleet/v1alpha1"
)

const sharedPods = "/clusters/a/api/v1/pods"

// share shares pods of cluster a.
func (e *env) share(maxAge, staleIfError time.Duration) {
	e.change("a", func(s *v1alpha1.ClusterSpec) {
		s.Shared = []v1alpha1.SharedResources{{
			Resources: []string{"pods"}, MaxAge: metav1.Duration{Duration: maxAge}, StaleIfError: &metav1.Duration{Duration: staleIfError}, Watches: true,
		}}
	})
}

// usersOf returns the users of requests, with an empty name for the front door.
func usersOf(list []received) (names []string) {
	for _, r := range list {
		names = append(names, r.header.Get("Impersonate-User"))
	}
	return names
}

// TestA70SharedReadsAreAuthorized checks that only users whom the cluster authorizes get shared responses.
func TestA70SharedReadsAreAuthorized(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		token := serviceAccountToken("cluster")
		a.tokens[token] = authenticationv1.UserInfo{Username: "robot"}
		answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user := r.Header.Get("Impersonate-User"); user != "" {
				w.WriteHeader(http.StatusForbidden)
			}
			_, _ = io.WriteString(w, "for "+r.Header.Get("Impersonate-User")+" "+r.Header.Get("Accept"))
		})
		a.handle.Store(&answer)
		e.share(4*time.Second, 0)
		both := []string{"alice list pods", "robot list pods"}
		a.allowRights(both...)
		expect := func(what, token string, code int, body, age string, sent []string, fields ...string) {
			t.Helper()
			got := e.get(own, sharedPods, token, fields...)
			if got.code != code || got.body != body || got.header.Get("Age") != age {
				t.Errorf("%s: %d %q, Age %q, want %d %q, %q", what, got.code, got.body, got.header.Get("Age"), code, body, age)
			}
			if users := usersOf(a.taken()); !slices.Equal(users, sent) {
				t.Errorf("%s: requests of users %q arrived, want %q", what, users, sent)
			}
		}
		expect("the first request", "alice", 200, "for  ", "", []string{""})
		time.Sleep(2 * time.Second)
		expect("the same user", "alice", 200, "for  ", "2", nil)
		expect("a user of the cluster", token, 200, "for  ", "2", nil)
		expect("a user without rights", "bob", 403, "for bob ", "", []string{"bob"})
		expect("impersonation by a user of the cluster", token, 403, "for alice ", "", []string{"alice"}, "Impersonate-User: alice")
		expect("another form", "alice", 200, "for  application/json;as=Table", "", []string{""}, "Accept: application/json;as=Table")
		expect("a nominated field", "alice", 200, "for  ", "2", nil, "Accept: text/x", "Connection: Accept")
		expect("no-cache", "alice", 403, "for alice ", "", []string{"alice"}, "Cache-Control: no-cache")
		e.allowRights()
		if got := e.get(own, sharedPods, "alice"); got.code != 403 {
			t.Errorf("without a right at the front door: %d %q, want 403", got.code, got.body)
		}
		e.allowAll()
		time.Sleep(3 * time.Second)
		expect("the response is too old", "alice", 200, "for  ", "", []string{""})
		a.allowRights()
		time.Sleep(3 * time.Second)
		expect("rights were just revoked", "alice", 200, "for  ", "3", nil)
		time.Sleep(8 * time.Second)
		expect("rights were revoked a while ago", "alice", 403, "for alice ", "", []string{"alice"})
		a.allowRights(both...)
		time.Sleep(6 * time.Second)
		expect("rights again", "alice", 200, "for  ", "", []string{""})
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.UserPrefix = "x:" })
		a.allowRights("x:alice list pods")
		expect("a changed Cluster", "alice", 200, "for  ", "", []string{""})
		e.secrets.Modify(secret("a", map[string]string{"token": secretToken}))
		settleDown()
		expect("changed credentials", "alice", 200, "for  ", "", []string{""})
	})
}

// TestRefusedFrontDoorSharesNothing checks that users are served if the front door lacks the right.
func TestRefusedFrontDoorSharesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Impersonate-User") == "" {
				w.WriteHeader(http.StatusForbidden)
			}
			_, _ = io.WriteString(w, "for "+r.Header.Get("Impersonate-User"))
		})
		a.handle.Store(&answer)
		e.share(time.Minute, 0)
		a.allowRights("alice list pods", "bob list pods", "alice watch pods")
		for _, user := range []string{"alice", "bob"} {
			e.expectAs(user, sharedPods, 200, "for "+user)
		}
		e.expectAs("alice", sharedPods+"?watch=true", 200, "for alice")
	})
}

func (e *env) expectAs(user, target string, code int, body string) {
	e.t.Helper()
	if got := e.get(own, target, user); got.code != code || got.body != body {
		e.t.Errorf("GET %s by %s = %d %q, want %d %q", target, user, got.code, got.body, code, body)
	}
}

// TestStaleResponsesOfACluster checks that responses are served while the cluster fails, but only to users whom it authorizes.
func TestStaleResponsesOfACluster(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		var fails atomic.Bool
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if fails.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = io.WriteString(w, "pods")
		})
		a.handle.Store(&answer)
		e.share(time.Second, time.Minute)
		a.allowRights("alice list pods", "bob list pods")
		e.expectAs("alice", sharedPods, 200, "pods")
		fails.Store(true)
		time.Sleep(30 * time.Second)
		got := e.get(own, sharedPods, "bob")
		if got.code != 200 || got.body != "pods" || got.header.Get("Age") != "30" || !strings.Contains(got.header.Get("Warning"), "does not answer") {
			t.Errorf("GET while the cluster fails = %d %q, Age %s, Warning %s; want 200 with the response from before", got.code, got.body, got.header.Get("Age"), got.header.Get("Warning"))
		}
		_ = a.server.Close()
		e.expectAs("bob", sharedPods, 200, "pods")
		if got := e.get(own, sharedPods, "carol"); got.code != 503 {
			t.Errorf("GET by an unknown user while the cluster is down = %d %q, want 503", got.code, got.body)
		}
		time.Sleep(15 * time.Second)
		if got := e.get(own, sharedPods, "bob"); got.code != 503 {
			t.Errorf("GET while the cluster is down and authorizes nobody = %d %q, want 503", got.code, got.body)
		}
	})
}

// collection is a collection of a cluster without objects. Its watches send the lines that a test sends.
type collection struct {
	mu    sync.Mutex
	feeds []chan string
}

func (c *collection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[]}`)
		return
	}
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	feed := make(chan string)
	c.mu.Lock()
	c.feeds = append(c.feeds, feed)
	c.mu.Unlock()
	for {
		select {
		case line, ok := <-feed:
			if !ok {
				return
			}
			_, _ = io.WriteString(w, line)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// feed returns the number of watches so far, and the last one.
func (c *collection) feed() (n int, last chan string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = len(c.feeds); n > 0 {
		last = c.feeds[n-1]
	}
	return n, last
}

func podEvent(kind string, version int) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"ns","resourceVersion":"%d"}}}`+"\n", kind, version)
}

// watchers are watches of cluster a that end after their timeoutSeconds.
type watchers struct {
	e      *env
	wg     sync.WaitGroup
	mu     sync.Mutex
	bodies map[string]int // number of watches by what they received
}

func (w *watchers) begin(n int, query, token string) {
	for range n {
		w.wg.Go(func() {
			got := w.e.get(own, sharedPods+"?watch=true&timeoutSeconds=30"+query, token)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.bodies[fmt.Sprint(got.code, " ", got.body)]++
		})
	}
	synctest.Wait()
}

func TestOneWatchServesAllClients(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a, pods := e.start("a"), &collection{}
		handle := http.HandlerFunc(pods.ServeHTTP)
		a.handle.Store(&handle)
		e.share(0, 0)
		a.allowRights("alice watch pods", "bob watch pods")
		w := &watchers{e: e, bodies: map[string]int{}}
		w.begin(50, "&resourceVersion=10", "alice")
		w.begin(50, "&resourceVersion=10&allowWatchBookmarks=true", "bob")
		n, feed := pods.feed()
		if n != 1 {
			t.Fatalf("%d watches of the cluster, want 1 for 100 clients", n)
		}
		feed <- podEvent("ADDED", 11)
		close(feed)
		time.Sleep(time.Second)
		if n, feed = pods.feed(); n != 2 {
			t.Fatalf("%d watches of the cluster, want another one after the end of the first", n)
		}
		feed <- podEvent("BOOKMARK", 12)
		feed <- podEvent("MODIFIED", 13)
		time.Sleep(time.Second)
		w.begin(1, "&resourceVersion=11", "alice") // resumes
		w.wg.Wait()
		added, modified := podEvent("ADDED", 11), podEvent("MODIFIED", 13)
		for body, want := range map[string]int{added + modified: 50, added + podEvent("BOOKMARK", 12) + modified: 50, modified: 1} {
			if got := w.bodies["200 "+body]; got != want {
				t.Errorf("%d watches received %q, want %d; all received %v", got, body, want, w.bodies)
			}
		}
		for _, r := range a.taken() {
			if r.header.Get("Authorization") != "Bearer "+secretToken || r.header.Get("Impersonate-User") != "" || r.header.Get("X-Remote-User") != "" {
				t.Errorf("%s arrived with %v, want the credentials of the front door alone", r.target, r.header)
			} else if strings.Contains(r.target, "watch=true") && !strings.Contains(r.target, "resourceVersion=10") && !strings.Contains(r.target, "resourceVersion=11") {
				t.Errorf("%s arrived, want versions of the cluster", r.target)
			}
		}
	})
}

// TestA70SharedWatchesAreAuthorized checks who gets events, and that a watch does not outlive its Cluster.
func TestA70SharedWatchesAreAuthorized(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a, pods := e.start("a"), &collection{}
		handle := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Impersonate-User") != "" {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			pods.ServeHTTP(w, r)
		})
		a.handle.Store(&handle)
		e.share(0, 0)
		a.allowRights("alice watch pods")
		w := &watchers{e: e, bodies: map[string]int{}}
		w.begin(1, "&resourceVersion=10", "alice")
		_, feed := pods.feed()
		feed <- podEvent("ADDED", 11)
		w.begin(1, "&resourceVersion=10", "bob")
		w.begin(1, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "bob")
		synctest.Wait()
		if w.bodies["403 no\n"] != 2 || len(w.bodies) != 1 {
			t.Errorf("the user without rights received %v, want 403 twice", w.bodies)
		}
		began := time.Now()
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Shared = nil })
		w.wg.Wait()
		if took := time.Since(began); took > 5*time.Second || w.bodies["200 "+podEvent("ADDED", 11)] != 1 {
			t.Errorf("the shared watch ended %s after the change, with %v; want an end at once", took, w.bodies)
		}
	})
}

// TestA71SharedRequestsHaveNoOtherIdentity checks the requests of the front door itself, in the mode with which API servers believe names.
func TestA71SharedRequestsHaveNoOtherIdentity(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a, pods := e.start("a"), &collection{}
		handle := http.HandlerFunc(pods.ServeHTTP)
		a.handle.Store(&handle)
		e.change("a", func(s *v1alpha1.ClusterSpec) {
			s.Identity.Mode, s.Credentials.Secret = v1alpha1.FrontProxy, withCertificate
		})
		e.share(0, 0)
		a.allowRights("alice watch pods", "alice list pods")
		w := &watchers{e: e, bodies: map[string]int{}}
		w.begin(1, "&resourceVersion=10", "alice")
		e.get(own, sharedPods, "alice", "X-Remote-Group: system:masters", "Impersonate_User: root", "X-Remote-User: root")
		w.wg.Wait()
		list := a.taken()
		if len(list) < 3 {
			t.Fatalf("%d requests arrived, want a list, a watch and a read", len(list))
		}
		for _, r := range list {
			user, groups := r.header.Get("X-Remote-User"), r.header["X-Remote-Group"]
			if user != "system:serviceaccount:portico-system:portico-front" || slices.Contains(groups, "system:masters") || r.header.Get("Impersonate-User") != "" {
				t.Errorf("%s arrived as %q in %q, want the account of the front door", r.target, user, groups)
			}
		}
	})
}
