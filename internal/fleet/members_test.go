package fleet

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
)

// expect sends a GET as alice and checks the response.
func (e *env) expect(host, target string, code int, text string) {
	e.t.Helper()
	if got := e.get(host, target, "alice"); got.code != code || !strings.Contains(got.body, text) {
		e.t.Errorf("GET %s%s = %d %s, want %d %s", host, target, got.code, got.body, code, text)
	}
}

func TestClusterChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a", "a.example.com")
		other := e.serveAPI("other")
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Server.Endpoints = []string{other.address} })
		e.expect(own, "/clusters/a/api/v1/pods", 200, "other")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Server.Endpoints = []string{a.address} })
		a.taken()
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.UserPrefix = "front:" })
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		if got := a.taken()[0].header.Get("Impersonate-User"); got != "front:alice" {
			t.Errorf("the user after a change of the prefix is %q, want front:alice", got)
		}
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Maintenance = &v1alpha1.ClusterMaintenance{Mode: v1alpha1.Closed} })
		e.expect(own, "/clusters/a/api/v1/pods", 503, "closed for maintenance")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Maintenance, s.Hosts = nil, []string{"b.example.com"} })
		e.expect("a.example.com", "/api/v1/pods", 200, "front door")
		e.expect("b.example.com", "/api/v1/pods", 200, "a")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Server.CABundle = e.clients.PEM() })
		e.expect(own, "/clusters/a/api/v1/pods", 503, "cluster a")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Server.CABundle = e.ca.PEM() })
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		e.remove("a")
		e.expect(own, "/clusters/a/api/v1/pods", 404, "not found")
		e.expect("b.example.com", "/api/v1/pods", 200, "front door")
	})
}

// TestInvalidCluster checks that a Cluster that cannot be used is no 404, which clients take for the absence of their objects.
func TestInvalidCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start("a")
		c, _ := e.newCluster("b", "b.example.com")
		c.Spec.Server.CABundle = []byte("nonsense")
		e.secrets.Add(secret("b", map[string]string{"token": secretToken}))
		e.add(c)
		settleDown()
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		e.expect("b.example.com", "/api/v1/pods", 503, "spec.server of Cluster b cannot be used")
		if got := e.get(own, "/clusters/b/api/v1/pods", serviceAccountToken("cluster")); got.code != 503 {
			t.Errorf("a token = %d %s, want 503", got.code, got.body)
		}
		if got := e.condition("b", v1alpha1.ConditionAvailable); got.Status != metav1.ConditionFalse || got.Reason != "InvalidServer" {
			t.Errorf("condition = %+v, want False because of InvalidServer", got)
		}
		e.change("b", func(s *v1alpha1.ClusterSpec) { s.Server.CABundle = e.ca.PEM() })
		e.expect(own, "/clusters/b/api/v1/pods", 200, "b")

		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Server.CABundle = []byte("nonsense") })
		for range 2 {
			e.expect(own, "/clusters/a/api/v1/pods", 503, "spec.server of Cluster a cannot be used")
			e.change("b", func(s *v1alpha1.ClusterSpec) { s.Identity.UserPrefix += "x" }) // another Cluster changes
		}
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Server.CABundle = e.ca.PEM() })
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
	})
}

func TestSecretOfACluster(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		c, a := e.newCluster("a")
		e.add(c)
		settleDown()
		e.expect(own, "/clusters/a/api/v1/pods", 503, "the credentials for cluster a cannot be used")
		if got := e.condition("a", v1alpha1.ConditionAvailable); got.Status != metav1.ConditionFalse || got.Reason != "InvalidCredentials" {
			t.Errorf("condition without a Secret = %+v, want False because of InvalidCredentials", got)
		}
		e.secrets.Add(secret("a", map[string]string{"token": "to ken"}))
		settleDown()
		e.expect(own, "/clusters/a/api/v1/pods", 503, "secret ns/a: the token contains bytes")
		modify := func(token string) {
			e.secrets.Modify(secret("a", map[string]string{"token": token + "\n"}))
			settleDown()
		}
		modify("one")
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		if got := e.condition("a", v1alpha1.ConditionAvailable); got.Status != metav1.ConditionTrue {
			t.Errorf("condition with a Secret = %+v, want True", got)
		}
		modify("two")
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.UserPrefix = "x:" })
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		var tokens []string
		connections := map[string]bool{}
		for _, r := range a.taken() {
			tokens = append(tokens, r.header.Get("Authorization"))
			connections[r.connection] = true
		}
		if want := []string{"Bearer one", "Bearer two", "Bearer two"}; !slices.Equal(tokens, want) {
			t.Errorf("the requests have %q, want %q", tokens, want)
		}
		if n := len(connections); n != 1 {
			t.Errorf("the requests came on %d connections, want 1 in spite of changes of the token", n)
		}
		e.secrets.Delete(secret("a", nil))
		settleDown()
		e.expect(own, "/clusters/a/api/v1/pods", 503, "not found")
	})
}

func TestUnchangedCertificateKeepsConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		use := func(name string) (connection string) {
			cert, key, err := e.clients.Issue(pki.Leaf{CommonName: name, Client: true})
			if err != nil {
				t.Fatal(err)
			}
			e.secrets.Modify(secret("a", map[string]string{corev1.TLSCertKey: string(cert), corev1.TLSPrivateKeyKey: string(key)}))
			settleDown()
			e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
			got := a.taken()[0]
			if got.certificate != name {
				t.Errorf("the certificate is %q, want %q", got.certificate, name)
			}
			return got.connection
		}
		first := use("one")
		e.secrets.Add(secret("unrelated", nil))
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.UserPrefix = "x:" })
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		if got := a.taken()[0].connection; got != first || first == "" {
			t.Errorf("with an unchanged Secret, requests have the connections %x and %x, want the same one", first, got)
		}
		use("two")
	})
}

// TestA66HostsOfOthers checks that a Cluster takes host names neither from an older one nor from the front door.
func TestA66HostsOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start("old", "shared.example.com")
		young := e.start("a-young", "shared.example.com", own, "young.example.com")
		e.expect("shared.example.com", "/api/v1/pods", 200, "old")
		e.expect("young.example.com", "/api/v1/pods", 200, "a-young")
		for _, host := range []string{own, "FRONT.example.com", own + ".", own + ":443"} {
			e.expect(host, "/api/v1/pods", 200, "front door")
		}
		if n := len(young.taken()); n != 1 {
			t.Errorf("the Cluster received %d requests, want 1", n)
		}
		e.remove("old")
		e.expect("shared.example.com", "/api/v1/pods", 200, "a-young")
	})
}

// TestRecreatedCluster checks that nothing of a deleted Cluster is used for another one of the same name.
func TestRecreatedCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		registry := prometheus.NewRegistry()
		e.fleet.config.Transport.Metrics = metrics.NewBackends(registry)
		a := e.start("a")
		link := e.fleet.members.Load().byName["a"].link
		c := e.object("a")
		e.clusters.Delete(c)
		e.add(e.object("a")) // before the front door has noticed
		settleDown()
		if e.fleet.members.Load().byName["a"].link == link {
			t.Error("the connection of the deleted Cluster is used")
		}
		e.expect(own, "/clusters/a/api/v1/pods", 200, "a")
		if n := a.open.Load(); n > 4 {
			t.Errorf("%d open connections, want those of one Cluster", n)
		}
		const series = "portico_backend_requests_in_flight"
		if n, err := testutil.GatherAndCount(registry, series); n != 1 || err != nil {
			t.Errorf("%d series %s of the second Cluster, %v; want 1", n, series, err)
		}
		e.remove("a")
		time.Sleep(time.Minute)
		if n, err := testutil.GatherAndCount(registry, series); n != 0 || err != nil {
			t.Errorf("%d series %s without a Cluster, %v; want none", n, series, err)
		}
	})
}

// TestConnectionsOfADeletedClusterEnd checks that nothing remains: goleak and the bubble find goroutines.
func TestConnectionsOfADeletedClusterEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a, b := e.start("a"), e.start("b")
		watch := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		upgraded := make(chan struct{})
		upgrade := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"))
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
			close(upgraded)
		})
		ended := make(chan string, 2)
		a.handle.Store(&watch)
		go func() { e.get(own, "/clusters/a/api/v1/pods?watch=true", "alice"); ended <- "watch" }()
		settleDown()
		a.handle.Store(&upgrade)
		conn := e.connect(true)
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write([]byte("POST /clusters/a/api/v1/namespaces/ns/pods/p/exec HTTP/1.1\r\nHost: " + own +
			"\r\nUser-Agent: client\r\nAuthorization: Bearer alice\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"))
		settleDown()
		answer := make([]byte, 12)
		if _, err := conn.Read(answer); err != nil || !strings.HasSuffix(string(answer), "101") {
			t.Fatalf("the upgrade is answered with %q, %v, want 101", answer, err)
		}
		e.remove("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("the watch goes on a minute after the Cluster was deleted")
		}
		select {
		case <-upgraded:
		default:
			t.Error("the upgraded connection is open a minute after the Cluster was deleted")
		}
		if n := a.open.Load(); n != 0 {
			t.Errorf("%d connections to the deleted cluster are open, want 0", n)
		}
		if b.open.Load() == 0 {
			t.Error("the connections to the other cluster have ended")
		}
	})
}
