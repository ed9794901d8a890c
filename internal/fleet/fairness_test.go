package fleet

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/ptr"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
)

// flood sends n requests of each user. Each request is sent when the last one waits or has its response, so that no more of them than one
// is on its way to a cluster. The result has the number of responses by code, and is complete after wait.
type flood struct {
	mu    sync.Mutex
	codes map[int]int
	wg    sync.WaitGroup
}

func (e *env) flood(n int, target string, users ...string) *flood {
	f := &flood{codes: map[int]int{}}
	for _, user := range users {
		for range n {
			f.wg.Go(func() {
				got := e.get(own, target, user)
				f.mu.Lock()
				defer f.mu.Unlock()
				f.codes[got.code]++
			})
			synctest.Wait()
		}
	}
	return f
}

func (f *flood) expect(t *testing.T, when string, want map[int]int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !maps.Equal(f.codes, want) {
		t.Errorf("%s, the requests have the codes %v, want %v", when, f.codes, want)
	}
}

// withSeats limits the requests in flight of the front door.
func (e *env) withSeats(n int) {
	e.fleet.config.Chain.MaxInFlight = n
	h, err := e.fleet.Handler(e.handler)
	if err != nil {
		e.t.Fatal(err)
	}
	e.listen(frontAddress, h, e.pair(e.ca, pki.Leaf{CommonName: "front", DNSNames: []string{own}, Server: true}))
}

// hangFor makes requests of users hang until the returned function is called.
func (a *apiServer) hangFor(hangs func(user string) bool) (release func()) {
	released := make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs(r.Header.Get("Impersonate-User")) {
			<-released
		}
		_, _ = w.Write([]byte(a.name))
	})
	a.handle.Store(&h)
	return sync.OnceFunc(func() { close(released) })
}

// TestHangingClusterTakesNoSeats fills a cluster that hangs. The front door has fewer seats than the requests that wait.
func TestHangingClusterTakesNoSeats(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.withSeats(5)
		a, _ := e.start("a"), e.start("b")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Limits.MaxRequestsInFlight = ptr.To[int32](20) })
		release := a.hangFor(func(string) bool { return true })
		defer release()
		var users []string
		for i := range 10 {
			users = append(users, fmt.Sprint("user-", i))
		}
		waiting := e.flood(10, "/clusters/a/api/v1/pods", users...)
		waiting.expect(t, "while the cluster hangs", map[int]int{http.StatusTooManyRequests: 80})
		for range 10 {
			for target, text := range map[string]string{"/clusters/b/api/v1/pods": "b", "/api/v1/pods": "front door"} {
				began := time.Now()
				e.expect(own, target, 200, text)
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("GET %s took %s, want no wait for the other cluster", target, took)
				}
			}
		}
		if got := e.get(own, "/clusters/a/api/v1/pods", "alice"); got.code != 429 || !strings.Contains(got.body, "cluster a") {
			t.Errorf("another request for the cluster = %d %s, want a 429 that names the cluster", got.code, got.body)
		}
		release()
		waiting.wg.Wait()
		waiting.expect(t, "at the end", map[int]int{http.StatusTooManyRequests: 80, http.StatusOK: 20})
	})
}

// TestUsersShareACluster checks that the flood of one user leaves room for the others in the same cluster.
func TestUsersShareACluster(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Limits.MaxRequestsInFlight = ptr.To[int32](20) })
		release := a.hangFor(func(user string) bool { return user == "mallory" })
		defer release()
		waiting := e.flood(100, "/clusters/a/api/v1/pods", "mallory")
		waiting.expect(t, "while the requests hang", map[int]int{http.StatusTooManyRequests: 84})
		others := e.flood(1, "/clusters/a/api/v1/pods", "alice", "bob", "carol")
		others.wg.Wait()
		others.expect(t, "during the flood", map[int]int{http.StatusOK: 3})
		release()
		waiting.wg.Wait()
	})
}
