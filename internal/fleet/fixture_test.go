package fleet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	auditlog "portico.dev/internal/audit"
	"portico.dev/internal/auth/authn"
	"portico.dev/internal/filters"
	"portico.dev/internal/fleet/client"
	"portico.dev/internal/fleet/cluster"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routes/sharedreads"
	"portico.dev/internal/routes/sharedwatch"
	"portico.dev/internal/server"
	"portico.dev/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	frontAddress = "10.1.0.1:443"
	secretToken  = "token-of-the-front-door"
)

// env is a front door with Clusters. All connections are in memory and have TLS.
type env struct {
	t           testing.TB
	ca, clients *pki.Authority
	fleet       *Fleet
	handler     http.Handler
	stop        func()
	clusters    *fcache.FakeControllerSource
	secrets     *fcache.FakeControllerSource
	log, access *observer.ObservedLogs
	allow       atomic.Pointer[func(authorizer.Attributes) bool]
	leads       atomic.Bool
	writes      atomic.Int64 // requests that write the status

	mu        sync.Mutex // guards the fields below
	listeners map[string]*enginetest.Listener
	asked     []authorizer.Attributes
	events    []map[string]string // annotations of audit events
	objects   map[string]*v1alpha1.Cluster
	uids      int
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Minute) }) // connections end some time after an error
		e := newEnv(t)
		e.run()
		test(t, e)
	})
}

func newEnv(t testing.TB) *env {
	e := &env{t: t, listeners: map[string]*enginetest.Listener{}, objects: map[string]*v1alpha1.Cluster{},
		clusters: fcache.NewFakeControllerSource(), secrets: fcache.NewFakeControllerSource()}
	t.Cleanup(e.clusters.Shutdown)
	t.Cleanup(e.secrets.Shutdown)
	e.ca, e.clients = newAuthority(t, "serving"), newAuthority(t, "clients")
	e.leads.Store(true)
	e.allowAll()
	cert, key, err := e.clients.Issue(pki.Leaf{CommonName: "front-proxy", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	e.secrets.Add(secret(withCertificate.Name, map[string]string{corev1.TLSCertKey: string(cert), corev1.TLSPrivateKeyKey: string(key)}))
	made, err := client.New(&rest.Config{Host: "https://front", Transport: statusAPI{e}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	logs, observed := observer.New(zap.InfoLevel)
	access, accessed := observer.New(zap.InfoLevel)
	e.log, e.access = observed, accessed
	secrets := informer(e.secrets, &corev1.Secret{})
	p := proxy.New(proxy.Config{})
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		p.Drain(now)
	})
	e.fleet = New(Config{
		Client: made, Clusters: informer(e.clusters, &v1alpha1.Cluster{}), Secrets: secrets, SecretLister: corelisters.NewSecretLister(secrets.GetIndexer()),
		Chain: server.ChainConfig{
			Authenticator: authenticator.RequestFunc(authenticate), Authorizer: e, Ready: func() error { return nil }, Audit: e,
			Metrics: metrics.NewRequests(prometheus.NewRegistry()), Logger: zap.NewNop(), AccessLog: zap.New(access), Drainer: server.NewDrainer(),
			ReservedExtra: filters.ClusterExtra,
		},
		OwnNames: []string{"front.example.com"}, OwnKey: func(id string) bool { return id == "front" },
		Transport: transport.Options{
			Engine: enginetest.Backend(t), Tunnel: &transport.Tunnel{Network: "memory", Received: time.Now, Dial: e.dial},
		},
		SharedReads: sharedreads.New(sharedreads.Config{}), SharedWatches: sharedwatch.New(sharedwatch.Config{}),
		Proxy: p, Metrics: metrics.NewClusters(prometheus.NewRegistry()), Logger: zap.New(logs),
		Election: func() (bool, <-chan struct{}) { return e.leads.Load(), nil },
	})
	local := e.fleet.config.Chain
	front, err := server.NewChain(local, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "front door "+r.RequestURI) }))
	if err != nil {
		t.Fatal(err)
	}
	if e.handler, err = e.fleet.Handler(front); err != nil {
		t.Fatal(err)
	}
	leaf := pki.Leaf{CommonName: "front", DNSNames: []string{"front.example.com", "*.example.com"}, Server: true}
	e.listen(frontAddress, e.handler, e.pair(e.ca, leaf))
	return e
}

func informer(source *fcache.FakeControllerSource, example runtime.Object) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc:  func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) { return source.List(o) },
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) { return source.Watch(o) },
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, withoutWatchList{}), example, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

type withoutWatchList struct{}

func (withoutWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// run runs the fleet until the test or stop ends it.
func (e *env) run() {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.fleet.config.Clusters.RunWithContext(ctx) })
	wg.Go(func() { e.fleet.config.Secrets.RunWithContext(ctx) })
	wg.Go(func() { _ = e.fleet.config.SharedWatches.Run(ctx) }) // it has no errors
	if !cache.WaitForCacheSync(ctx.Done(), e.fleet.config.Clusters.HasSynced, e.fleet.config.Secrets.HasSynced) {
		e.t.Fatal("the informers have not synced")
	}
	wg.Go(func() {
		if err := e.fleet.Run(ctx); err != nil {
			e.t.Errorf("Run() = %v, want no error", err)
		}
	})
	e.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	e.t.Cleanup(e.stop)
	<-e.fleet.Ready()
}

func newAuthority(t testing.TB, name string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (e *env) pair(a *pki.Authority, l pki.Leaf) *pki.KeyPair {
	e.t.Helper()
	cert, key, err := a.Issue(l)
	if err != nil {
		e.t.Fatal(err)
	}
	made, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		e.t.Fatal(err)
	}
	return made
}

func (e *env) dial(ctx context.Context, address string) (net.Conn, error) {
	e.mu.Lock()
	l := e.listeners[address]
	e.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	return l.Dial(ctx)
}

func (e *env) listen(address string, h http.Handler, pair *pki.KeyPair) *http.Server {
	config, p := pki.ServerConfig(pair), new(http.Protocols)
	config.NextProtos = []string{"h2", "http/1.1"}
	config.ClientAuth = tls.RequestClientCert
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	l := enginetest.Listen()
	e.mu.Lock()
	e.listeners[address] = l
	e.mu.Unlock()
	s := &http.Server{Handler: h, TLSConfig: config, Protocols: p, ErrorLog: log.New(io.Discard, "", 0)}
	if a, ok := h.(*apiServer); ok {
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				a.open.Add(1)
			case http.StateClosed, http.StateHijacked:
				a.open.Add(-1)
			}
		}
	}
	go func() { _ = s.ServeTLS(l, "", "") }()
	e.t.Cleanup(func() { _ = s.Close() })
	return s
}

// authenticate is the front door's authentication: the token is "USER" or "USER/GROUP". The token "wrong" is refused.
func authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	token, ok, err := authn.Token(r)
	if err != nil || !ok || token == "wrong" || strings.Contains(token, ".") {
		return nil, false, err
	}
	r.Header.Del("Authorization")
	name, group, _ := strings.Cut(token, "/")
	groups := []string{user.AllAuthenticated}
	if group != "" {
		groups = append(groups, group)
	}
	u := &user.DefaultInfo{Name: name, Groups: groups}
	if name == "spoof" {
		u.Extra = map[string][]string{filters.ClusterExtra: {"b"}}
	}
	return &authenticator.Response{User: u}, true, nil
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (e *env) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	e.mu.Lock()
	e.asked = append(e.asked, a)
	e.mu.Unlock()
	if (*e.allow.Load())(a) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (e *env) allowAll() { e.allowIf(func(authorizer.Attributes) bool { return true }) }

func (e *env) allowIf(f func(authorizer.Attributes) bool) { e.allow.Store(&f) }

// allowRights allows "USER VERB CLUSTER" on clusters/proxy, and "USER VERB RESOURCE NAME" on others.
func (e *env) allowRights(rights ...string) {
	e.allowIf(func(a authorizer.Attributes) bool { return slices.Contains(rights, question(a)) })
}

func question(a authorizer.Attributes) string {
	if a.GetAPIGroup() == v1alpha1.GroupVersion.Group && a.GetResource() == "clusters" && a.GetSubresource() == "proxy" && a.IsResourceRequest() {
		return fmt.Sprintf("%s %s %s", a.GetUser().GetName(), a.GetVerb(), a.GetName())
	}
	return fmt.Sprintf("%s %s %s %s", a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetName())
}

// questions returns what the authorizer was asked since the last call.
func (e *env) questions() (list []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.asked {
		list = append(list, question(a))
	}
	e.asked = nil
	return list
}

// Level implements server.Auditor.
func (e *env) Level(authorizer.Attributes) audit.RequestAuditConfig {
	return audit.RequestAuditConfig{Level: auditinternal.LevelMetadata, OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived}}
}

// Process implements server.Auditor.
func (e *env) Process(_ *auditinternal.Event, more []auditlog.Annotation) {
	annotations := map[string]string{}
	for _, a := range more {
		if a.Value != "" {
			annotations[a.Key] = a.Value
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, annotations)
}

// statusAPI stores the status of Clusters.
type statusAPI struct{ *env }

// RoundTrip implements http.RoundTripper.
func (s statusAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	s.writes.Add(1)
	if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/status") {
		return nil, errors.New("unexpected request: " + r.Method + " " + r.URL.Path)
	}
	var given v1alpha1.Cluster
	if err := json.NewDecoder(r.Body).Decode(&given); err != nil {
		return nil, err
	}
	s.mu.Lock()
	stored := s.objects[given.Name].DeepCopy()
	s.mu.Unlock()
	stored.Status = given.Status
	s.modify(stored)
	body, err := json.Marshal(&given)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, err
}

// add creates a Cluster with a new UID.
func (e *env) add(c *v1alpha1.Cluster) {
	e.mu.Lock()
	e.uids++
	c.UID, c.Generation = types.UID(fmt.Sprint("uid-", e.uids)), 1
	if c.CreationTimestamp.IsZero() {
		c.CreationTimestamp = metav1.NewTime(time.Unix(int64(1_700_000_000+e.uids), 0))
	}
	e.objects[c.Name] = c
	e.mu.Unlock()
	e.clusters.Add(c)
}

func (e *env) modify(c *v1alpha1.Cluster) {
	e.mu.Lock()
	e.objects[c.Name] = c
	e.mu.Unlock()
	e.clusters.Modify(c)
}

// change changes the spec of a Cluster.
func (e *env) change(name string, change func(*v1alpha1.ClusterSpec)) {
	c := e.object(name)
	c.Generation++
	change(&c.Spec)
	e.modify(c)
	settleDown()
}

func (e *env) remove(name string) {
	e.clusters.Delete(e.object(name))
	settleDown()
}

func (e *env) object(name string) *v1alpha1.Cluster {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.objects[name].DeepCopy()
}

// settleDown waits until changes have been processed, and API servers probed.
func settleDown() {
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// newCluster returns a Cluster and its only API server, with the token in the Secret ns/NAME.
func (e *env) newCluster(name string, hosts ...string) (*v1alpha1.Cluster, *apiServer) {
	e.t.Helper()
	a := e.serveAPI(name)
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Hosts = hosts
	c.Spec.Server = v1alpha1.ClusterServer{Endpoints: []string{a.address}, CABundle: e.ca.PEM()}
	c.Spec.Credentials.Secret = &v1alpha1.SecretReference{Namespace: "ns", Name: name}
	c.Spec.Identity = v1alpha1.ClusterIdentity{Mode: v1alpha1.Impersonate, Tokens: v1alpha1.ServiceAccountTokens}
	return c, a
}

// start adds a Cluster with its Secret, and waits until it is served.
func (e *env) start(name string, hosts ...string) *apiServer {
	e.t.Helper()
	c, a := e.newCluster(name, hosts...)
	e.secrets.Add(secret(name, map[string]string{"token": secretToken}))
	e.add(c)
	settleDown()
	a.taken()
	e.questions()
	return a
}

// withCertificate is a Secret with a certificate, which always exists.
var withCertificate = &v1alpha1.SecretReference{Namespace: "ns", Name: "front-proxy"}

func secret(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

// received is a request as an API server has received it.
type received struct {
	target, host string
	header       http.Header
	certificate  string
	connection   string // differs for each connection
}

// apiServer is a kube-apiserver that records requests.
type apiServer struct {
	name, address string
	trusts        atomic.Bool // certificates as those of a front proxy
	notReady      atomic.Pointer[string]
	open          atomic.Int64
	reviews       atomic.Int64
	accesses      atomic.Int64                                                       // SubjectAccessReviews
	allows        atomic.Pointer[func(authorizationv1.SubjectAccessReviewSpec) bool] // decides them; nil allows nothing
	handle        atomic.Pointer[http.HandlerFunc]
	documents     atomic.Pointer[http.HandlerFunc] // nil: there are none
	lacks         atomic.Value                     // resource that the front door has no right to create
	server        *http.Server

	mu       sync.Mutex // guards requests
	requests []received
	tokens   map[string]authenticationv1.UserInfo // known tokens, do not change
}

func (e *env) serveAPI(name string) *apiServer {
	e.mu.Lock()
	address := fmt.Sprintf("10.0.0.%d:6443", len(e.listeners)+1)
	e.mu.Unlock()
	a := &apiServer{name: name, address: address, tokens: map[string]authenticationv1.UserInfo{}}
	a.trusts.Store(true)
	a.server = e.listen(address, a, e.pair(e.ca, pki.Leaf{CommonName: "kube-apiserver", DNSNames: []string{cluster.DefaultServerName}, Server: true}))
	return a
}

// ServeHTTP implements http.Handler.
func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := received{target: r.RequestURI, host: r.Host, header: r.Header.Clone()}
	if key, err := r.TLS.ExportKeyingMaterial("connection", nil, 16); err == nil { // with TLS 1.3 there is no error
		got.connection = string(key)
	}
	if len(r.TLS.PeerCertificates) > 0 {
		got.certificate = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	switch {
	case r.URL.Path == "/readyz" && r.Header.Get("Impersonate-User") == "" && r.Header.Get("X-Remote-User") == "":
		if text := a.notReady.Load(); text != nil {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, *text)
		}
		return
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		a.reviews.Add(1)
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status.User, review.Status.Authenticated = a.tokens[review.Spec.Token], a.tokens[review.Spec.Token].Username != ""
		a.answer(w, review)
		return
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") && (r.Header.Get("Authorization") == "Bearer "+secretToken || got.certificate == withCertificate.Name) &&
		r.Header.Get("Impersonate-User") == "":
		a.accesses.Add(1)
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if allows := a.allows.Load(); allows != nil {
			review.Status.Allowed = (*allows)(review.Spec)
		}
		a.answer(w, review)
		return
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") && r.Header.Get("Impersonate-User") == "":
		var review authorizationv1.SelfSubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		lacks, _ := a.lacks.Load().(string)
		review.Status.Allowed = lacks == "" || review.Spec.ResourceAttributes.Resource != lacks
		a.answer(w, review)
		return
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") && r.Header.Get("X-Remote-User") == "portico-front-check":
		review := authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "kubernetes-admin"}}}
		if a.trusts.Load() {
			review.Status.UserInfo = authenticationv1.UserInfo{Username: "portico-front-check", Groups: r.Header["X-Remote-Group"],
				Extra: map[string]authenticationv1.ExtraValue{"portico-front-check": {"portico-front-check"}}}
		}
		a.answer(w, review)
		return
	case got.header.Get("User-Agent") != "client" && (got.header.Get("User-Agent") != "portico" || r.URL.Path == "/readyz"): // documents; portico: a shared watch
		if h := a.documents.Load(); h != nil {
			(*h)(w, r)
			return
		}
		http.NotFound(w, r)
		return
	}
	a.mu.Lock()
	a.requests = append(a.requests, got)
	a.mu.Unlock()
	if h := a.handle.Load(); h != nil {
		(*h)(w, r)
		return
	}
	_, _ = io.WriteString(w, a.name)
}

// allowRights allows "USER VERB RESOURCE" and "USER VERB PATH" in SubjectAccessReviews.
func (a *apiServer) allowRights(rights ...string) {
	a.allows.Store(new(func(s authorizationv1.SubjectAccessReviewSpec) bool {
		if p := s.NonResourceAttributes; p != nil {
			return slices.Contains(rights, s.User+" "+p.Verb+" "+p.Path)
		}
		return slices.Contains(rights, s.User+" "+s.ResourceAttributes.Verb+" "+s.ResourceAttributes.Resource)
	}))
}

func (a *apiServer) answer(w http.ResponseWriter, object any) {
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(object)
}

// taken returns the requests of clients since the last call.
func (a *apiServer) taken() []received {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.requests
	a.requests = nil
	return list
}

// answered is a response that has been read to its end.
type answered struct {
	code   int
	header http.Header
	body   string
}

// raw sends a request over HTTP/1.1. lines are the request line and the header without Host.
func (e *env) raw(host, requestLine string, lines ...string) answered {
	e.t.Helper()
	conn := e.connect(true)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	lines = append([]string{requestLine, "Host: " + host, "User-Agent: client"}, lines...)
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		e.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		e.t.Fatalf("%s = %v, want a response", requestLine, err)
	}
	return read(resp)
}

// get sends a GET by a user. fields are header lines.
func (e *env) get(host, target, token string, fields ...string) answered {
	e.t.Helper()
	return e.raw(host, "GET "+target+" HTTP/1.1", append(fields, "Authorization: Bearer "+token)...)
}

func read(resp *http.Response) answered {
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		body = append(body, "; "+err.Error()...)
	}
	return answered{resp.StatusCode, resp.Header, string(body)}
}

func (e *env) connect(http1 bool) net.Conn {
	e.t.Helper()
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "front.example.com", Roots: e.ca.PEM(), HTTP1Only: http1})
	if err != nil {
		e.t.Fatal(err)
	}
	conn, err := e.dial(e.t.Context(), frontAddress)
	if err != nil {
		e.t.Fatal(err)
	}
	return tls.Client(conn, config)
}

// condition returns a condition of a Cluster.
func (e *env) condition(name, kind string) metav1.Condition {
	for _, c := range e.object(name).Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

// http2 returns a client of the front door. The host of a request may be any.
func (e *env) http2() *http.Transport {
	p := new(http.Protocols)
	p.SetHTTP2(true)
	return &http.Transport{Protocols: p, DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		conn := e.connect(false).(*tls.Conn)
		return conn, conn.HandshakeContext(e.t.Context())
	}}
}
