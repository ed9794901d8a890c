package coreapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"portico.dev/internal/auth/serviceaccount"
	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/pki"
	"portico.dev/internal/store"
)

func TestMain(m *testing.M) {
	// The parallel tests mostly wait for servers. The command line overrides this.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	debug.SetGCPercent(400) // otherwise collections of a small heap take a quarter of the time
	goleak.VerifyTestMain(m,
		// A read that waits for a version leaves a timer for three seconds.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		// The storage of a changed or deleted definition is closed one second later.
		goleak.IgnoreAnyFunction("k8s.io/apiextensions-apiserver/pkg/apiserver.(*crdHandler).tearDown"),
		goleak.IgnoreAnyFunction("k8s.io/apiextensions-apiserver/pkg/apiserver.(*crdHandler).tearDown.func1"),
	)
}

var admin = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// audience is a running server with a separate store.
type testServer struct {
	*Server
	store *store.Store
}

// start runs a store and a server until the test ends, and waits until both are ready.
func start(t testing.TB, change ...func(*Config)) *testServer {
	t.Helper()
	return startIn(t, t.TempDir(), change...)
}

func startIn(t testing.TB, dir string, change ...func(*Config)) *testServer {
	t.Helper()
	s, err := store.New(store.Config{DataDir: dir, Volatile: true, Logger: zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))})
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, "store", s.Run, s.Ready())
	book := &records{}
	cfg := Config{
		Store: s, Groups: cluster.All(), Authorizer: people{}, RuleResolver: people{}, TokenAuthenticator: tokenList{"good": "jane"},
		TokenIssuer: newTestTokens(t, book), Logger: zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)),
	}
	for _, f := range change {
		f(&cfg)
	}
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	book.Interface = clientFor(t, server.ClientConfig(admin))
	runUntilEnd(t, "local groups", server.Run, server.Ready())
	return &testServer{server, s}
}

func runUntilEnd(t testing.TB, name string, run func(context.Context) error, ready <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() { failed <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-failed:
			if err != nil {
				t.Errorf("%s ended with %v, want no error", name, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s is still running a minute after its context ended, want it stopped", name)
		}
	})
	select {
	case <-ready:
	case err := <-failed:
		failed <- err
		t.Fatalf("%s ended before it was ready: %v, want it running", name, err)
	case <-time.After(time.Minute):
		t.Fatalf("%s is not ready after a minute, want ready", name)
	}
}

func (h *testServer) typed(t testing.TB, u user.Info) kubernetes.Interface {
	t.Helper()
	return clientFor(t, h.ClientConfig(u))
}

func clientFor(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// within returns a context with the longest time that a step of these tests may take.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func namespace(t testing.TB, client kubernetes.Interface, name string) *corev1.Namespace {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(within(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// people is a small authorizer: system:masters has all rights, "viewer" may read, "binder" may bind the role "view".
type people struct{}

func (people) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	name := a.GetUser().GetName()
	for _, group := range a.GetUser().GetGroups() {
		if group == user.SystemPrivilegedGroup {
			return authorizer.DecisionAllow, "", nil
		}
	}
	switch {
	case name == "viewer" && a.IsReadOnly():
		return authorizer.DecisionAllow, "viewers read", nil
	case name == "binder" && a.GetVerb() == "bind" && a.GetName() == "view":
		return authorizer.DecisionAllow, "", nil
	case name == "banned":
		return authorizer.DecisionDeny, "banned", nil
	case name == "broken":
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("the rules cannot be read")
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (p people) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(p.Authorize(ctx, a))
}

func (people) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

func (people) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if u.GetName() != "viewer" {
		return nil, nil, false, nil
	}
	resources := []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{
		Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps", "pods"},
	}}
	paths := []authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"get"}, NonResourceURLs: []string{"/version"}}}
	return resources, paths, namespace == "partial", nil
}

// tokenList maps tokens to names of users. It authenticates them for the audience "local".
type tokenList map[string]string

func (l tokenList) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if token == "bad" {
		return nil, false, fmt.Errorf("the signature does not fit")
	}
	name, ok := l[token]
	if !ok {
		return nil, false, nil
	}
	audience := authenticator.Audiences{"local"}
	if wanted, ok := authenticator.AudiencesFrom(ctx); ok && len(wanted.Intersect(audience)) == 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", audience, wanted)
	}
	return &authenticator.Response{Audiences: audience, User: &user.DefaultInfo{
		Name: name, UID: "7", Groups: []string{"people"}, Extra: map[string][]string{"key": {"value"}},
	}}, true, nil
}

// testTokens applies the server's checks. Its tokens are the namespace, the name and the bound object in plain text.
type testTokens struct{ tokens *serviceaccount.Tokens }

func newTestTokens(t testing.TB, of *records) testTokens {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := pki.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "signing.key")
	if err := os.WriteFile(file, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := serviceaccount.New(serviceaccount.Config{Issuer: "https://issuer", Audiences: []string{"local"}, SigningKeyFile: file, Lookup: of})
	if err != nil {
		t.Fatal(err)
	}
	return testTokens{tokens}
}

func (n testTokens) IssueToken(ctx context.Context, namespace, name string, uid types.UID, spec authenticationv1.TokenRequestSpec) (registry.IssuedToken, error) {
	issued, err := n.tokens.Issue(ctx, serviceaccount.IssueRequest{Namespace: namespace, Name: name, UID: uid, Spec: spec})
	if err != nil {
		return registry.IssuedToken{}, err
	}
	token := namespace + "/" + name
	if spec.BoundObjectRef != nil {
		token += "/" + spec.BoundObjectRef.Name
	}
	audiences := spec.Audiences
	if len(audiences) == 0 {
		audiences = n.tokens.Audiences()
	}
	status := authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(issued.Expires)}
	return registry.IssuedToken{Status: status, Audiences: audiences, CredentialID: issued.CredentialID}, nil
}

// records looks up objects for testTokens in the server under test.
type records struct{ kubernetes.Interface }

func (r *records) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return r.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (r *records) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return r.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (r *records) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return r.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (r *records) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return r.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (s *Server) typedOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	return clientFor(t, s.ClientConfig(admin))
}

// clientOver returns a configuration for clients that call h.
func clientOver(h http.Handler) *rest.Config {
	return &rest.Config{Host: "http://in-process.invalid", Transport: InProcess(h), QPS: -1}
}
