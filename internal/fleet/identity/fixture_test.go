package identity

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	manifests "portico.dev/deploy/front"
	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/transport"
)

const (
	frontToken = "token-of-the-front-door"
	adminToken = "token-of-an-administrator"
	robotToken = "token-of-robot"
)

// oddSuffixes make tokens that are not the same in a header.
var oddSuffixes = []string{" x", "\nA: b"}

// frontAccount is the user with frontToken.
var frontAccount = serviceaccount.MakeUsername(manifests.Namespace, manifests.Account)

// cluster is an API server with kube-apiserver's own authentication of front proxies and impersonation.
type cluster struct {
	server *authtest.Server
	trusts bool // the certificates of front proxies
	tokens map[string]user.Info
	rules  *rbac.Rules // of frontAccount

	mu      sync.Mutex // guards the fields below
	users   []user.Info
	headers []http.Header
	// accesses are the SubjectAccessReviews. Requests in the namespace "other" are denied.
	accesses []authorizationv1.SubjectAccessReviewSpec
	refuse   func(path string) int
}

func newCluster(t testing.TB) *cluster {
	c := &cluster{trusts: true, rules: rbac.NewRules(roleOf(t).Rules), tokens: map[string]user.Info{
		frontToken: &user.DefaultInfo{Name: frontAccount, Groups: []string{"system:serviceaccounts", user.AllAuthenticated}},
		adminToken: &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters", user.AllAuthenticated}},
		robotToken: &user.DefaultInfo{Name: "system:serviceaccount:ns:robot", UID: "u-9", Groups: []string{"system:serviceaccounts"}},
	}}
	for _, suffix := range oddSuffixes { // a webhook may accept such tokens
		c.tokens[robotToken+suffix] = c.tokens[robotToken]
	}
	c.server = authtest.Serve(t, c)
	return c
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	received := r.Header.Clone()
	u := c.authenticate(r)
	if u == nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	info, err := request.NewResolver().Info(r)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	ctx := apirequest.WithRequestInfo(apirequest.WithUser(r.Context(), u), info)
	served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, _ := apirequest.UserFrom(r.Context())
		c.serve(w, r, u, received)
	})
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme) // of a Status
	impersonation.WithConstrainedImpersonation(served, c, codecs).ServeHTTP(w, r.WithContext(ctx))
}

// authenticate returns the user of a request, as kube-apiserver does: identity headers of a front proxy precede tokens.
func (c *cluster) authenticate(r *http.Request) user.Info {
	if c.trusts && len(r.TLS.PeerCertificates) > 0 {
		a, _ := headerrequest.New([]string{"X-Remote-User"}, []string{"X-Remote-Uid"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"})
		if response, ok, _ := a.AuthenticateRequest(r); ok {
			return response.User
		}
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	r.Header.Del("Authorization")
	return c.tokens[token]
}

// Authorize implements authorizer.UnconditionalAuthorizer with the rules of frontAccount.
func (c *cluster) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == frontAccount && c.rules.Allow(a) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request, u user.Info, received http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		if code := c.refuse(r.URL.Path); code != 0 {
			w.WriteHeader(code)
			return
		}
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/tokenreviews"):
		answer(w, r, &authenticationv1.TokenReview{}, func(review *authenticationv1.TokenReview) {
			if found := c.tokens[review.Spec.Token]; found != nil && u.GetName() == frontAccount {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: userInfo(found)}
			}
		})
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		answer(w, r, &authorizationv1.SelfSubjectAccessReview{}, func(review *authorizationv1.SelfSubjectAccessReview) {
			asked := review.Spec.ResourceAttributes
			decision, _, _ := c.Authorize(r.Context(), authorizer.AttributesRecord{
				User: u, Verb: asked.Verb, APIGroup: asked.Group, APIVersion: asked.Version, Resource: asked.Resource,
				Subresource: asked.Subresource, Name: asked.Name, ResourceRequest: true,
			})
			review.Status.Allowed = decision == authorizer.DecisionAllow
		})
	case strings.HasSuffix(path, "/subjectaccessreviews"):
		answer(w, r, &authorizationv1.SubjectAccessReview{}, func(review *authorizationv1.SubjectAccessReview) {
			c.accesses = append(c.accesses, review.Spec)
			if review.Status.Allowed = u.GetName() == frontAccount && review.Spec.ResourceAttributes.Namespace != "other"; !review.Status.Allowed {
				review.Status.Reason = "not in other"
			}
		})
	case strings.HasSuffix(path, "/selfsubjectreviews"):
		answer(w, r, &authenticationv1.SelfSubjectReview{}, func(review *authenticationv1.SelfSubjectReview) { review.Status.UserInfo = userInfo(u) })
	default:
		c.users, c.headers = append(c.users, u), append(c.headers, received)
		w.WriteHeader(http.StatusTeapot) // also refuses upgrades
	}
}

func answer[T any](w http.ResponseWriter, r *http.Request, object *T, change func(*T)) {
	if json.NewDecoder(r.Body).Decode(object) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	change(object)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(object)
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	out := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
	for key, values := range u.GetExtra() {
		out.Extra[key] = values
	}
	return out
}

// taken returns the users and headers of clients' requests since the last call.
func (c *cluster) taken() (users []user.Info, headers []http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	users, headers, c.users, c.headers = c.users, c.headers, nil, nil
	return users, headers
}

// roleOf returns the ClusterRole in deploy/front/cluster-rbac.yaml.
func roleOf(t testing.TB) *rbacv1.ClusterRole {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "front", "cluster-rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(string(data))))
	for {
		document, err := documents.Read()
		if err != nil {
			t.Fatalf("no ClusterRole in the file: %v", err)
		}
		role := &rbacv1.ClusterRole{}
		if yaml.Unmarshal(document, role) == nil && role.Kind == "ClusterRole" {
			return role
		}
	}
}

// front is a front door before a cluster.
type front struct {
	*cluster
	server  *authtest.Server
	backend *transport.Backend
	proxy   *proxy.Proxy
	writer  Writer
	user    user.Info
	policy  v1alpha1.TokenPolicy
	tokens  *Tokens
}

// newFront returns a front door whose connections have a certificate in mode FrontProxy.
func newFront(t *testing.T, mode v1alpha1.IdentityMode, rules Rules) *front {
	f := &front{cluster: newCluster(t), user: &user.DefaultInfo{Name: "alice", UID: "u-1", Groups: groupsAnd("dev", "system:masters"),
		Extra: map[string][]string{"Scopes/Key": {"read", "write"}}}}
	options := transport.Options{AllowLoopback: true, Engine: enginetest.Backend(t)}
	f.writer = func(header http.Header, r *filters.Request) error {
		header.Set("Authorization", "Bearer "+frontToken)
		return Impersonation(rules)(header, r)
	}
	if mode == v1alpha1.FrontProxy {
		options.Certificate = certificate(t)
		f.writer = FrontProxy(rules)
	}
	set := transport.New(options)
	t.Cleanup(set.Close)
	var err error
	f.backend, err = set.Backend(transport.Spec{Name: "cluster", ServerName: "127.0.0.1", CABundle: f.cluster.server.RootPEM,
		Endpoints: []transport.Endpoint{{Address: strings.TrimPrefix(f.cluster.server.URL, "https://")}}})
	if err != nil {
		t.Fatal(err)
	}
	f.proxy = proxy.New(proxy.Config{})
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		f.proxy.Drain(now)
	})
	f.tokens = NewTokens(f.own(mode), mode)
	f.server = authtest.Serve(t, http.HandlerFunc(f.serve))
	return f
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// own returns the client of the front door itself.
func (f *front) own(mode v1alpha1.IdentityMode) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if mode != v1alpha1.FrontProxy {
			r.Header.Set("Authorization", "Bearer "+frontToken)
		}
		return f.backend.RoundTrip(r)
	})
}

func certificate(t *testing.T) *pki.KeyPair {
	t.Helper()
	ca, err := pki.NewAuthority("front proxies")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "front-proxy-client", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func (f *front) serve(w http.ResponseWriter, r *http.Request) {
	info, err := request.NewResolver().Info(r)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	u, writer := f.user, f.writer
	if Passes(f.policy, r, isOwn) {
		response, ok, err := f.tokens.AuthenticateRequest(r)
		if err != nil || !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		u, writer = response.User, Token()
	}
	ctx := apirequest.WithUser(apirequest.WithRequestInfo(r.Context(), info), u)
	f.proxy.ServeTarget(w, filters.RequestOf(r.WithContext(ctx)), &proxy.Target{
		Server: f.backend, Host: "127.0.0.1", Path: r.URL.EscapedPath(), Prefix: "/clusters/a", Name: "the API server", Identify: writer,
	})
}

func isOwn(keyID string) bool { return keyID == "front" }

// send sends a request with the lines as the header and returns the status.
func (f *front) send(t *testing.T, lines ...string) int {
	t.Helper()
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "127.0.0.1", Roots: f.server.RootPEM, HTTP1Only: true})
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(f.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	text := "GET /api/v1/namespaces/ns/pods/p/exec HTTP/1.1\r\nHost: " + at.Host + "\r\n" + strings.Join(lines, "\r\n")
	if !slices.Contains(lines, "") { // no body
		text += "\r\n\r\n"
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
