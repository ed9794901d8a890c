package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
)

func TestRequestsGoToTheAPIServerWithTheFewest(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *env) {
		e.handleAll(watch)
		e.hold(30)
		if got := e.served(); slices.Max(got)-slices.Min(got) > 3 {
			t.Errorf("30 watches are at the API servers as %v, want about 10 at each", got)
		}
	})
}

// watch begins a response, which ends with the request.
func watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}\n")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func TestAPIServerThatIsNotReadyGetsNoRequests(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *env) {
		e.handleAll(text("ok"))
		e.servers[0].setReady(http.StatusInternalServerError, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]shutdown\x1b failed: reason withheld\nreadyz check failed\n")
		changed := e.cluster.Changed()
		settle(6 * time.Second)
		select {
		case <-changed:
		default:
			t.Error("Changed() is open after the readiness of an API server has changed, want it closed")
		}
		s := e.cluster.State()
		want := EndpointState{Address: e.servers[0].address, Message: "/readyz answers 500: etcd failed: reason withheld, shutdown failed: reason withheld"}
		if s.Endpoints[0] != want || !s.Endpoints[1].Ready || !s.Ready || s.Message != "2 of 3 API servers are ready ("+want.Address+": "+want.Message+")" {
			t.Errorf("State() = %+v, want the first endpoint not ready because of etcd", s)
		}
		for range 30 {
			if a := e.get("/api/v1/nodes"); a.body != "ok" {
				t.Fatalf("GET = %d %s, want ok", a.StatusCode, a.body)
			}
		}
		if got := e.served(); got[0] != 0 || got[1] == 0 || got[2] == 0 {
			t.Errorf("requests reached the API servers as %v, want none at the first", got)
		}
		for _, a := range e.servers {
			a.setReady(http.StatusServiceUnavailable, "")
		}
		settle(6 * time.Second)
		if s := e.cluster.State(); s.Ready || s.Reason != v1alpha1.ReasonNoReadyAPIServer || !strings.Contains(s.Message, "no API server is ready (10.0.0.1:6443: /readyz answers 503; ") {
			t.Errorf("State() = %+v, want no ready API server", s)
		}
		if a := e.get("/api/v1/nodes"); a.body != "ok" {
			t.Errorf("GET while no API server is ready = %d %s, want ok: it is tried", a.StatusCode, a.body)
		}
	})
}

func TestReadinessByStatus(t *testing.T) {
	for code, ready := range map[int]bool{200: true, 401: true, 403: true, 404: true, 429: false, 500: false, 503: false, 302: false} {
		inBubble(t, 1, func(t *testing.T, e *env) {
			e.servers[0].setReady(code, strings.Repeat("x", 1<<20))
			settle(6 * time.Second)
			if s := e.cluster.State(); s.Ready != ready {
				t.Errorf("/readyz answers %d: State() = %+v, want Ready = %v", code, s, ready)
			}
		})
	}
}

func TestProbeIntervals(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		e.servers[1].setReady(http.StatusInternalServerError, "")
		settle(10 * time.Second)
		e.servers[0].probes.Store(0)
		e.servers[1].probes.Store(0)
		conns := e.servers[0].conns.Load()
		settle(time.Minute)
		if n := e.servers[0].probes.Load(); n < 10 || n > 14 {
			t.Errorf("a ready API server got %d probes in a minute, want about 12", n)
		}
		if n := e.servers[1].probes.Load(); n < 50 || n > 70 {
			t.Errorf("an API server that is not ready got %d probes in a minute, want about 60", n)
		}
		if n := e.servers[0].conns.Load() - conns; n > 0 {
			t.Errorf("probes of a ready API server opened %d connections in a minute, want none", n)
		}
	})
}

func TestRestartedAPIServerGetsItsShareWithinTenSeconds(t *testing.T) {
	for _, code := range []int{http.StatusInternalServerError, http.StatusForbidden} { // until it knows the rights of accounts
		inBubble(t, 3, func(t *testing.T, e *env) { testRestart(t, e, code) })
	}
}

func testRestart(t *testing.T, e *env, starting int) {
	e.handleAll(text("ok"))
	for range 10 {
		e.get("/api/v1/nodes")
	}
	e.servers[2].kill()
	for range 40 {
		if a := e.get("/api/v1/nodes"); a.body != "ok" {
			t.Fatalf("GET with a dead API server = %d %s, want ok", a.StatusCode, a.body)
		}
		settle(500 * time.Millisecond)
	}
	if s := e.cluster.State(); s.Endpoints[2].Ready || s.Endpoints[2].Message != "it refused the connection" {
		t.Errorf("State() = %+v, want the third not ready", s)
	}
	e.servers[2].setReady(starting, "")
	e.servers[2].start()
	e.served()
	for range 40 {
		e.get("/api/v1/nodes")
		settle(500 * time.Millisecond)
	}
	if got := e.served(); got[2] != 0 {
		t.Errorf("requests reached the API servers as %v, want none at the third before it is ready", got)
	}
	e.servers[2].setReady(http.StatusOK, "ok")
	for range 10 {
		e.get("/api/v1/nodes")
		settle(time.Second)
	}
	e.served()
	for range 90 {
		e.get("/api/v1/nodes")
	}
	if got := e.served(); got[2] < 15 {
		t.Errorf("ten seconds after the restart, requests reached the API servers as %v, want a third of them at the third", got)
	}
}

// An API server may start again faster than the interval of the probes.
func TestAPIServerThatRestartsBetweenProbesIsNotUsedTooEarly(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *env) {
		e.handleAll(text("ok"))
		for range 30 {
			e.get("/api/v1/nodes")
		}
		for n := e.servers[2].probes.Load(); e.servers[2].probes.Load() == n; {
			settle(100 * time.Millisecond)
		}
		e.servers[2].kill()
		settle(1500 * time.Millisecond)
		e.servers[2].setReady(http.StatusForbidden, "")
		e.servers[2].start()
		e.served()
		for range 40 {
			e.get("/api/v1/nodes")
			settle(100 * time.Millisecond)
		}
		if got := e.served(); got[2] != 0 {
			t.Errorf("requests reached the API servers as %v, want none at the third before it is ready", got)
		}
	})
}

func TestSafeRequestsLeaveAHangingAPIServer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *env) {
		e.handleAll(text("ok"))
		for range 10 {
			e.get("/api/v1/nodes")
		}
		e.servers[0].hang()
		var slowest time.Duration
		for range 100 {
			began := time.Now()
			if a := e.get("/api/v1/nodes"); a.body != "ok" {
				t.Fatalf("GET with a hanging API server = %d %s, want ok", a.StatusCode, a.body)
			}
			slowest = max(slowest, time.Since(began))
			settle(100 * time.Millisecond)
		}
		if slowest > 3*time.Second {
			t.Errorf("slowest request took %s, want at most 3 s", slowest)
		}
		if s := e.cluster.State(); s.Endpoints[0].Ready || s.Endpoints[0].Message != "it did not answer /readyz within 3s" {
			t.Errorf("State() = %+v, want the first not ready because it hangs", s)
		}
	})
}

func TestFailureNamesTheClusterAndItsAPIServers(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		for _, a := range e.servers {
			a.kill()
		}
		settle(10 * time.Second)
		a := e.get("/api/v1/nodes")
		if a.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("GET = %d %s, want 503", a.StatusCode, a.body)
		}
		for _, want := range []string{
			"cluster prod: API server 10.0.0.", "it refused the connection",
			"no API server is ready (10.0.0.1:6443: it refused the connection; 10.0.0.2:6443: it refused the connection)",
		} {
			if !strings.Contains(a.body, want) {
				t.Errorf("GET = %s, want it to contain %q", a.body, want)
			}
		}
	})
}

// Without a decision, each request would wait for a connection.
func TestRequestsFailAtOnceWhileNoAPIServerIsHeard(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		e.handleAll(text("{}"))
		e.get("/apis")
		for _, a := range e.servers {
			a.kill()
			e.listen(a.address) // accepts nothing
		}
		settle(10 * time.Second)
		for path, want := range map[string]int{"/api/v1/nodes": http.StatusServiceUnavailable, "/apis": http.StatusOK} {
			began := time.Now()
			a := e.get(path)
			if took := time.Since(began); a.StatusCode != want || took > 0 {
				t.Errorf("GET %s = %d after %s, want %d at once", path, a.StatusCode, took, want)
			}
			if want != http.StatusOK && !strings.Contains(a.body, "cluster prod: API server 10.0.0.") {
				t.Errorf("GET %s = %s, want the name of the cluster", path, a.body)
			}
		}
		e.servers[0].start()
		settle(3 * time.Second)
		if a := e.get("/api/v1/nodes"); a.body != "{}" {
			t.Errorf("GET after an API server is back = %d %s, want {}", a.StatusCode, a.body)
		}
	})
}

func TestSlowAPIServersGetRequests(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		e.handleAll(text("ok"))
		for _, a := range e.servers {
			slow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			a.ready.Store(&slow)
		}
		settle(10 * time.Second)
		if s := e.cluster.State(); s.Ready {
			t.Fatalf("State() = %+v, want no ready API server", s)
		}
		if a := e.get("/api/v1/nodes"); a.body != "ok" {
			t.Errorf("GET while /readyz is slow = %d %s, want ok", a.StatusCode, a.body)
		}
	})
}

// Shutdown sends GOAWAY on every connection, and refuses new ones.
func TestNoRequestFailsAtAGracefulShutdown(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *env) {
		e.handleAll(text("ok"))
		for i := range 60 {
			if i == 20 {
				go func() { _ = e.servers[1].server.Shutdown(context.Background()) }()
			}
			if a := e.do(http.MethodPost, "/api/v1/nodes"); a.body != "ok" {
				t.Fatalf("POST %d = %d %s, want ok", i, a.StatusCode, a.body)
			}
		}
	})
}

func TestUpgradeGoesToAReadyAPIServer(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		for i, a := range e.servers {
			a.handle(func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Server: %d\r\n\r\n", i)
			})
		}
		e.servers[0].setReady(http.StatusInternalServerError, "")
		settle(6 * time.Second)
		for range 10 {
			if got := e.upgrade(); got != "1" {
				t.Errorf("upgrade reached API server %s, want 1, which is ready", got)
			}
		}
		e.servers[1].kill()
		if got := e.upgrade(); got != "0" {
			t.Errorf("upgrade reached API server %s, want 0, because the other one is dead", got)
		}
	})
}

// upgrade returns the header X-Server of the response to an upgrade. lines are further lines of the request's header.
func (e *env) upgrade(lines ...string) string {
	e.t.Helper()
	raw, err := e.dial(e.t.Context(), frontAddress)
	if err != nil {
		e.t.Fatal(err)
	}
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: DefaultServerName, Roots: e.ca.PEM(), HTTP1Only: true})
	if err != nil {
		e.t.Fatal(err)
	}
	conn := tls.Client(raw, config)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/namespaces/default/pods/web/exec?command=sh HTTP/1.1\r\nHost: front\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n%s\r\n", strings.Join(lines, ""))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		e.t.Fatalf("upgrade = %+v, %v, want 101", resp, err)
	}
	return resp.Header.Get("X-Server")
}

func TestWatchEndsWithItsAPIServerAndContinuesAtAnother(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *env) {
		e.servers[1].setReady(http.StatusInternalServerError, "")
		settle(6 * time.Second)
		e.handleAll(watch)
		ended := make(chan error, 1)
		go func() { ended <- e.get("/api/v1/pods?watch=true").err }()
		settle(time.Second)
		if got := e.served(); got[0] != 1 {
			t.Fatalf("watches are at the API servers as %v, want one at the first", got)
		}
		e.servers[0].kill()
		synctest.Wait()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("the watch ended like a complete response, want an error")
			}
		default:
			t.Error("the watch goes on after its API server has died, want its end")
		}
		e.hold(1)
		if got := e.served(); got[1] != 1 {
			t.Errorf("the next watch is at the API servers as %v, want it at the second", got)
		}
	})
}

func TestUpdateKeepsConnectionsOfRemainingEndpoints(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *env) {
		e.handleAll(watch)
		e.hold(9)
		before := e.servers[0].conns.Load()
		s := Server{Endpoints: []string{e.servers[0].address, e.servers[1].address, e.servers[0].address}, CABundle: e.ca.PEM()}
		if err := e.cluster.Update(s, 7); err != nil {
			t.Fatal(err)
		}
		settle(20 * time.Second)
		state := e.cluster.State()
		if len(state.Endpoints) != 2 || !state.Endpoints[0].Ready || e.servers[0].conns.Load() != before {
			t.Errorf("after Update: State() = %+v and %d new connections, want 2 ready endpoints and none", state, e.servers[0].conns.Load()-before)
		}
		if n := e.servers[2].probes.Swap(0); n > 5 {
			t.Errorf("%d probes before the removal, want at most 5", n)
		}
		settle(20 * time.Second)
		if n := e.servers[2].probes.Load(); n != 0 {
			t.Errorf("a removed endpoint got %d probes, want none", n)
		}
		if err := e.cluster.Update(Server{Endpoints: []string{"host"}}, 0); err == nil {
			t.Error("Update with an endpoint without a port returned no error, want one")
		}
		if err := e.cluster.Update(Server{Endpoints: s.Endpoints, CABundle: []byte("no PEM")}, 0); err == nil {
			t.Error("Update with an invalid CA bundle returned no error, want one")
		}
		if got := e.cluster.State(); len(got.Endpoints) != 2 || !got.Ready {
			t.Errorf("State() after refused updates = %+v, want 2 endpoints as before", got)
		}
	})
}

func TestInvalidServersAreRefused(t *testing.T) {
	for _, s := range []Server{{}, {Endpoints: []string{"a"}}, {Endpoints: []string{":443"}}, {Endpoints: []string{"a:443"}, CABundle: []byte("no PEM")}} {
		if c, err := New(Config{Name: "prod", Server: s, Credentials: &StaticCredentials{}}); err == nil {
			t.Errorf("New with the server %+v = %v, want an error", s, c)
		}
	}
}

func TestRedirectsBeginWithThePrefix(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *env) {
		for location, want := range map[string]string{
			"/api/v1/x/": "/clusters/prod/api/v1/x/",
			"https://" + DefaultServerName + "/a?b=c#d": "/clusters/prod/a?b=c#d",
			"https://10.0.0.1:6443/a":                   "",
		} {
			e.servers[0].handle(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Location"] = []string{location}
				w.WriteHeader(http.StatusFound)
			})
			if got := e.get("/api/v1/x").Header.Get("Location"); got != want {
				t.Errorf("Location %q = %q, want %q", location, got, want)
			}
		}
	}, func(c *Config) { c.Prefix = prefixOfTest })
}
