package fleet

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
	"portico.dev/internal/respond"
	"portico.dev/internal/server"
)

func TestRightToUseACluster(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start("a", "a.example.com")
		const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
		const reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
		for _, tt := range []struct {
			line, more string
			verbs      []string
		}{
			{"GET /api/v1/pods", "", []string{"list"}},
			{"GET /api/v1/namespaces/ns/pods/p", "", []string{"get"}},
			{"GET /api/v1/pods?watch=true", "", []string{"watch"}},
			{"POST /api/v1/namespaces/ns/pods", "", []string{"create"}},
			{"DELETE /api/v1/namespaces/ns/pods", "", []string{"deletecollection"}},
			{"PATCH /api/v1/namespaces/ns/pods/p", "", []string{"patch"}},
			{"GET /version", "", []string{"get"}},
			{"POST /version", "", []string{"post"}},
			{"POST " + reviews, "", []string{"get"}},
			{"POST /apis/authentication.k8s.io/v1/selfsubjectreviews", "", []string{"get"}},
			{"POST /apis/authorization.k8s.io/v1/subjectaccessreviews", "", []string{"create"}},
			{"PUT " + reviews + "/x", "", []string{"update"}},
			{"POST /apis/example.com/v1/selfsubjectaccessreviews", "", []string{"create"}},
			{"GET /api/v1/namespaces/ns/pods/p/exec", upgrade, []string{"get", "create"}},
			{"GET /proxy", upgrade, []string{"get", "create"}},
		} {
			var rights, want []string
			for i, verb := range tt.verbs {
				e.allowRights(rights...)
				got := e.sendTo("a.example.com", tt.line, tt.more)
				if got.code != 403 || !strings.Contains(got.body, "requires the right to "+verb+` clusters/proxy \"a\" of clusters.portico.dev`) {
					t.Errorf("%s without the right to %s = %d %s, want 403", tt.line, verb, got.code, got.body)
				}
				rights, want = append(rights, "alice "+verb+" a"), append(want, "alice "+verb+" a")
				if asked := e.questions(); !slices.Equal(asked, want[:i+1]) {
					t.Errorf("%s asked for %q, want %q", tt.line, asked, want[:i+1])
				}
			}
			e.allowRights(rights...)
			if got := e.sendTo("a.example.com", tt.line, tt.more); got.code != 200 && tt.more == "" || got.code == 403 {
				t.Errorf("%s with the right = %d %s, want 200", tt.line, got.code, got.body)
			}
			e.questions()
		}
	})
}

func (e *env) sendTo(host, line, more string) answered {
	e.t.Helper()
	lines := []string{"Authorization: Bearer alice"}
	if more != "" {
		lines = append(lines, more)
	}
	return e.raw(host, line+" HTTP/1.1", append(lines, "Content-Length: 0")...)
}

// TestA62ImpersonationNeedsRightsAtTheFrontDoor checks that the front door authorizes an impersonation, and the use of the cluster by
// both users.
func TestA62ImpersonationNeedsRightsAtTheFrontDoor(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		const list = "alice impersonate-on:user-info:list "
		for name, tt := range map[string]struct {
			rights []string
			code   int
		}{
			"none":                           {nil, 403},
			"only the use":                   {[]string{"alice list a", "bob list a"}, 403},
			"impersonate, bob may not":       {[]string{"alice list a", "alice impersonate users bob"}, 403},
			"impersonate":                    {[]string{"alice impersonate users bob", "bob list a"}, 200},
			"impersonate somebody else":      {[]string{"alice impersonate users carol", "alice list a", "bob list a", "carol list a"}, 403},
			"constrained, objects of others": {[]string{list + "pods ", "alice impersonate:user-info users bob", "bob list a"}, 403},
			"constrained, another cluster":   {[]string{list + "b", "alice impersonate:user-info users bob", "bob list a"}, 403},
			"constrained":                    {[]string{list + "a", "alice impersonate:user-info users bob", "bob list a"}, 200},
		} {
			e.allowRights(tt.rights...)
			got := e.get(own, "/clusters/a/api/v1/pods", "alice", "Impersonate-User: bob")
			if got.code != tt.code {
				t.Errorf("%s: %d %s, want %d", name, got.code, got.body, tt.code)
			}
			requests := a.taken()
			if sent := len(requests) == 1; sent != (tt.code == 200) {
				t.Fatalf("%s: the API server received %d requests", name, len(requests))
			}
			if tt.code == 200 && requests[0].header.Get("Impersonate-User") != "bob" {
				t.Errorf("%s: the API server received user %q, want bob", name, requests[0].header.Get("Impersonate-User"))
			}
		}
	})
}

// TestA62ClientHeadersDoNotArrive sends identity headers through the whole chain.
func TestA62ClientHeadersDoNotArrive(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		hostile := []string{
			"Impersonate_User: root", "X-Remote-User: root", "X-Remote-Group: system:masters", "X-Remote-Extra-Scopes: all", "X_Remote_User: root",
			"Proxy-Authorization: Bearer x", "X-Forwarded-User: root",
		}
		if got := e.get(own, "/clusters/a/api/v1/pods", "alice/dev", hostile...); got.code != 200 {
			t.Fatalf("GET = %d %s, want 200", got.code, got.body)
		}
		got := a.taken()[0]
		for name, want := range map[string]string{
			"Authorization": "Bearer " + secretToken, "Impersonate-User": "alice", "X-Remote-User": "", "X-Remote-Group": "", "X-Remote-Extra-Scopes": "",
			"Impersonate_user": "", "X_remote_user": "", "Proxy-Authorization": "",
		} {
			if value := strings.Join(got.header[name], ", "); value != want {
				t.Errorf("the API server received %s: %q, want %q", name, value, want)
			}
		}
		if groups := got.header["Impersonate-Group"]; !slices.Equal(groups, []string{user.AllAuthenticated, "dev"}) {
			t.Errorf("the API server received the groups %q, want system:authenticated and dev", groups)
		}
	})
}

func serviceAccountToken(keyID string) string {
	return authtest.Token(`{"alg":"RS256","kid":"`+keyID+`"}`,
		`{"iss":"https://cluster","sub":"system:serviceaccount:ns:robot","kubernetes.io":{"namespace":"ns"}}`, nil) + "c2ln"
}

// TestA63TokensOfAClusterHaveNoRightsHere checks that the cluster authorizes its own users, and that the front door's identity is not in
// their requests, also if it is a certificate.
func TestA63TokensOfAClusterHaveNoRightsHere(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		token := serviceAccountToken("cluster")
		a.tokens[token] = authenticationv1.UserInfo{Username: "system:serviceaccount:ns:robot", Groups: []string{"system:masters"}}
		e.allowRights()
		for _, credentials := range []*v1alpha1.SecretReference{{Namespace: "ns", Name: "a"}, withCertificate} {
			e.change("a", func(s *v1alpha1.ClusterSpec) { s.Credentials.Secret = credentials })
			e.questions()
			if got := e.get(own, "/clusters/a/api/v1/pods", token, "Impersonate-User: bob"); got.code != 200 {
				t.Fatalf("GET with a token of the cluster = %d %s, want 200", got.code, got.body)
			}
			got := a.taken()[0]
			if got.header.Get("Authorization") != "Bearer "+token || got.certificate != "" || got.header.Get("Impersonate-User") != "bob" {
				t.Errorf("the API server received %q, certificate %q, Impersonate-User %q; want the token, none, bob",
					got.header.Get("Authorization"), got.certificate, got.header.Get("Impersonate-User"))
			}
			if asked := e.questions(); len(asked) != 0 {
				t.Errorf("the front door was asked %q, want nothing", asked)
			}
		}
		if got := e.get(own, "/api/v1/pods", token); got.code != 401 {
			t.Errorf("the token at the front door = %d, want 401", got.code)
		}
		if got := e.get(own, "/clusters/b/api/v1/pods", token); got.code != 401 {
			t.Errorf("the token at no cluster = %d, want 401", got.code)
		}
	})
}

// TestA63OwnTokensAreNotSentToClusters checks that a cluster does not receive tokens that it could use at the front door.
func TestA63OwnTokensAreNotSentToClusters(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		for _, policy := range []v1alpha1.TokenPolicy{v1alpha1.ServiceAccountTokens, v1alpha1.AllTokens, v1alpha1.NoTokens} {
			e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.Tokens = policy })
			if got := e.get(own, "/clusters/a/api/v1/pods", serviceAccountToken("front")); got.code != 401 {
				t.Errorf("%s: %d, want the 401 of the front door", policy, got.code)
			}
			if n := a.reviews.Load(); n != 0 || len(a.taken()) != 0 {
				t.Errorf("%s: the cluster received the token", policy)
			}
		}
	})
}

func TestTokenWhileClusterIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		token := serviceAccountToken("cluster")
		if got := e.get(own, "/clusters/a/api/v1/pods", token); got.code != 401 {
			t.Errorf("an unknown token = %d %s, want 401", got.code, got.body)
		}
		_ = a.server.Close()
		settleDown()
		if got := e.get(own, "/clusters/a/api/v1/pods", serviceAccountToken("another")); got.code != 503 {
			t.Errorf("a token while the cluster is down = %d %s, want 503", got.code, got.body)
		}
	})
}

// TestA64UsersOfAClusterHaveNoPriority checks that groups that a cluster chooses give no priority at the front door.
func TestA64UsersOfAClusterHaveNoPriority(t *testing.T) {
	ctx := context.WithValue(t.Context(), selectionKey{}, &selection{name: "a"})
	got := userOfCluster(ctx, &user.DefaultInfo{Name: "system:apiserver", Groups: []string{user.SystemPrivilegedGroup, "system:nodes"}})
	if got.GetName() != "cluster:a:system:apiserver" || !slices.Equal(got.GetGroups(), []string{user.AllAuthenticated}) {
		t.Errorf("userOfCluster() = %+v, want cluster:a:system:apiserver in system:authenticated", got)
	}
}

// TestA64ExemptUsersOfAClusterAreLimited fills the only seat of the front door.
func TestA64ExemptUsersOfAClusterAreLimited(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		token := serviceAccountToken("cluster")
		a.tokens[token] = authenticationv1.UserInfo{Username: "robot", Groups: []string{user.SystemPrivilegedGroup}}
		config, served := e.fleet.tokensChain(), make(chan struct{})
		config.MaxInFlight = 1
		h, err := server.NewChain(config, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-served }))
		if err != nil {
			t.Fatal(err)
		}
		codes := make(chan int, 2)
		for range 2 {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			s := &selection{name: "a", member: e.fleet.members.Load().byName["a"], token: true}
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), selectionKey{}, s)))
				codes <- w.Code
			}()
			synctest.Wait()
		}
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Errorf("the second request = %d, want 429", code)
		}
		close(served)
		<-codes
	})
}

// TestA65FrontProxyNeedsTrust checks that no user is sent to API servers that would authenticate the front door instead.
func TestA65FrontProxyNeedsTrust(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		a.trusts.Store(false)
		mode := func(m v1alpha1.IdentityMode, s *v1alpha1.SecretReference) {
			e.change("a", func(spec *v1alpha1.ClusterSpec) { spec.Identity.Mode, spec.Credentials.Secret = m, s })
		}
		expect := func(code int, text string) received {
			t.Helper()
			got := e.get(own, "/clusters/a/api/v1/pods", "alice")
			if got.code != code || !strings.Contains(got.body, text) {
				t.Fatalf("GET = %d %s, want %d %s", got.code, got.body, code, text)
			}
			list := a.taken()
			if len(list) == 1 && code == 200 {
				return list[0]
			} else if len(list) > 0 || code == 200 {
				t.Fatalf("the API server received %d requests", len(list))
			}
			return received{}
		}
		mode(v1alpha1.FrontProxy, &v1alpha1.SecretReference{Namespace: "ns", Name: "a"})
		expect(503, "mode FrontProxy requires a certificate, not a token")
		mode(v1alpha1.FrontProxy, withCertificate)
		expect(503, "cluster a cannot be used in mode FrontProxy: the credentials of the front door lack rights in the cluster: be a front proxy")
		a.trusts.Store(true)
		settleDown()
		if got := expect(200, "a"); got.header.Get("X-Remote-User") != "alice" || got.certificate != "front-proxy" || got.header.Get("Authorization") != "" {
			t.Errorf("the API server received %+v, want alice by the certificate front-proxy", got)
		}
		a.trusts.Store(false)
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Server.Endpoints = append(s.Server.Endpoints, "10.9.9.9:6443") })
		expect(503, "be a front proxy") // other API servers may not trust it
		mode(v1alpha1.Impersonate, withCertificate)
		if got := expect(200, "a"); got.header.Get("X-Remote-User") != "" || got.header.Get("Impersonate-User") != "alice" {
			t.Errorf("the API server received %+v, want alice by impersonation", got)
		}
	})
}

func TestAuditAndAccessLogNameTheCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.start("a")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.UserPrefix = "front:" })
		e.mu.Lock()
		e.events = nil
		e.mu.Unlock()
		e.access.TakeAll()
		e.get(own, "/clusters/a/api/v1/pods", "alice")
		e.get(own, "/clusters/b/api/v1/pods", "alice")
		e.get(own, "/api/v1/pods", "alice")
		settleDown()
		lines := e.access.TakeAll()
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.events) != 3 || len(lines) != 3 {
			t.Fatalf("%d events and %d lines, want 3 and 3", len(e.events), len(lines))
		}
		for i, want := range [][2]string{{"a", "front:alice"}, {"b", ""}, {"", ""}} {
			if got := e.events[i]; got["portico.dev/cluster"] != want[0] || got["portico.dev/cluster-user"] != want[1] {
				t.Errorf("event %d = %v, want %q", i, got, want)
			}
			if got, _ := lines[i].ContextMap()["cluster"].(string); got != want[0] {
				t.Errorf("line %d = %v, want cluster %q", i, lines[i].ContextMap(), want[0])
			}
		}
	})
}

// authorizing makes the front door answer all requests for clusters itself.
func (e *env) authorizing() {
	e.t.Helper()
	answer := http.HandlerFunc(func(w http.ResponseWriter, given *http.Request) {
		r := server.RequestFrom(given)
		if err := selected(r.Context()).member.authorize(r); err != nil {
			respond.Error(w, given, err)
		}
	})
	users, err := server.NewChain(e.fleet.usersChain(), answer)
	if err != nil {
		e.t.Fatal(err)
	}
	tokens, err := server.NewChain(e.fleet.tokensChain(), answer)
	if err != nil {
		e.t.Fatal(err)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, inner := e.fleet.find(r)
		chain := users
		if s.token = strings.Count(r.Header.Get("Authorization"), ".") == 2; s.token {
			chain = tokens
		}
		chain.ServeHTTP(w, inner.WithContext(context.WithValue(inner.Context(), selectionKey{}, s)))
	})
	e.listen(frontAddress, h, e.pair(e.ca, pki.Leaf{CommonName: "front", DNSNames: []string{own}, Server: true}))
}

// TestA68ClusterAuthorizesRequestsThatTheFrontDoorAnswers checks that a right at the front door is not enough.
func TestA68ClusterAuthorizesRequestsThatTheFrontDoorAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		a := e.start("a")
		e.change("a", func(s *v1alpha1.ClusterSpec) { s.Identity.UserPrefix = "front:" })
		token := serviceAccountToken("cluster")
		a.tokens[token] = authenticationv1.UserInfo{Username: "system:serviceaccount:ns:robot"}
		e.authorizing()
		a.allowRights("front:alice list pods", "front:alice get /apis/g/v1", "system:serviceaccount:ns:robot list pods")
		const pods, group = "/clusters/a/api/v1/namespaces/ns/pods", "/clusters/a/apis/g/v1"
		for _, tt := range []struct {
			target, token, more string
			code                int
			message             string
		}{
			{pods, "alice", "", 200, ""},
			{group, "alice", "", 200, ""},
			{pods, "bob", "", 403, `pods is forbidden: User \"front:bob\" cannot list resource \"pods\" in API group \"\" in the namespace \"ns\"`},
			{group, "bob", "", 403, `forbidden: User \"front:bob\" cannot get path \"/apis/g/v1\"`},
			{pods + "/p", "alice", "", 403, `pods \"p\" is forbidden: User \"front:alice\" cannot get resource`},
			{pods, "alice", "Impersonate-User: bob", 403, `User \"front:bob\"`},
			{pods, "bob", "Impersonate-User: alice", 200, ""},
			{pods, "system:admin", "", 403, "is a user of the front door"},
			{pods, token, "", 200, ""},
			{pods + "/p", token, "", 403, `User \"system:serviceaccount:ns:robot\" cannot get`},
			{pods, token, "Impersonate-User: bob", 403, "cannot authorize the impersonation"},
		} {
			got := e.get(own, tt.target, tt.token, cmp.Or(tt.more, "X: y"))
			if got.code != tt.code || !strings.Contains(got.body, tt.message) {
				t.Errorf("GET %s by %.20s (%s) = %d %s, want %d %s", tt.target, tt.token, tt.more, got.code, got.body, tt.code, tt.message)
			}
		}
		before := a.accesses.Load()
		e.get(own, pods, "alice")
		if got := a.accesses.Load(); got != before {
			t.Errorf("%d reviews of a request that was reviewed before, want 0", got-before)
		}
		_ = a.server.Close()
		if got := e.get(own, pods, "alice"); got.code != 200 {
			t.Errorf("GET after a review, while the cluster is down = %d %s, want 200", got.code, got.body)
		}
		if got := e.get(own, pods, "carol"); got.code != 503 || !strings.Contains(got.body, "cluster a does not authorize the request, try again") {
			t.Errorf("GET without a review, while the cluster is down = %d %s, want 503", got.code, got.body)
		}
		time.Sleep(10 * time.Second)
		if got := e.get(own, pods, "alice"); got.code != 503 {
			t.Errorf("GET some time after the review, while the cluster is down = %d %s, want 503", got.code, got.body)
		}
	})
}
