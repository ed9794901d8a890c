package authz

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/auth/nodes"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/metrics"
)

func TestMain(m *testing.M) {
	klog.SetLogger(zapr.NewLogger(zap.NewNop())) // client-go logs each failed call, and these calls fail intentionally
	goleak.VerifyTestMain(m)
}

// server is a webhook over TLS.
type server struct {
	*authtest.Server
	answer func(w http.ResponseWriter, r *http.Request, review *authorizationv1.SubjectAccessReview)

	mu    sync.Mutex // guards heard
	heard []authorizationv1.SubjectAccessReview
}

func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, review *authorizationv1.SubjectAccessReview)) *server {
	t.Helper()
	s := &server{answer: answer}
	s.Server = authtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the caller gave up, on a busy machine even before it had sent its request
		}
		var review authorizationv1.SubjectAccessReview
		if err := json.Unmarshal(body, &review); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.heard = append(s.heard, review)
		s.mu.Unlock()
		s.answer(w, r, &review)
	}))
	return s
}

func (s *server) calls() []authorizationv1.SubjectAccessReview {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// says responds with a status.
func says(status authorizationv1.SubjectAccessReviewStatus) func(http.ResponseWriter, *http.Request, *authorizationv1.SubjectAccessReview) {
	return func(w http.ResponseWriter, _ *http.Request, review *authorizationv1.SubjectAccessReview) {
		review.Status = status
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}
}

var (
	allows    = says(authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "of the webhook"})
	denies    = says(authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "never"})
	isSilent  = says(authorizationv1.SubjectAccessReviewStatus{})
	neverSays = func(_ http.ResponseWriter, r *http.Request, _ *authorizationv1.SubjectAccessReview) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // an empty response could still arrive
	}
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// kubeconfigOf writes a kubeconfig for a server whose certificate root has signed.
func kubeconfigOf(t *testing.T, url string, root []byte) string {
	t.Helper()
	return write(t, "webhook.kubeconfig", fmt.Sprintf(`{"kind":"Config","apiVersion":"v1","current-context":"c",
"contexts":[{"name":"c","context":{"cluster":"w","user":"u"}}],"users":[{"name":"u","user":{"token":"portico"}}],
"clusters":[{"name":"w","cluster":{"server":%q,"certificate-authority-data":%q}}]}`, url, base64.StdEncoding.EncodeToString(root)))
}

// configFile writes an AuthorizationConfiguration with the given authorizers in YAML.
func configFile(t *testing.T, authorizers ...string) string {
	t.Helper()
	return write(t, "authorization.yaml", configText(authorizers...))
}

func configText(authorizers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n" + strings.Join(authorizers, "\n")
}

const rbacEntry = "- {type: RBAC, name: rbac}"

// webhookEntry is an authorizer of a configuration. more are additional fields of its webhook.
func webhookEntry(name, kubeconfig, timeout, policy string, more ...string) string {
	return fmt.Sprintf("- type: Webhook\n  name: %s\n  webhook: {timeout: %s, subjectAccessReviewVersion: v1, "+
		"matchConditionSubjectAccessReviewVersion: v1, failurePolicy: %s, connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}%s}",
		name, timeout, policy, kubeconfig, strings.Join(append([]string{""}, more...), ", "))
}

// readers may get pods by RBAC.
func readers() *rbac.RBAC {
	r := rbac.New(zap.NewNop())
	r.Load(rbac.Policy{
		ClusterRoles: []*rbacv1.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		}}},
		ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{{
			ObjectMeta: metav1.ObjectMeta{Name: "readers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "readers"}},
		}},
	})
	return r
}

// complete sets the required fields of a Config.
func complete(c Config) Config {
	c.RBAC, c.Node, c.Logger = readers(), nodes.New(), zap.NewNop()
	c.Metrics = metrics.NewAuthorization(prometheus.NewPedanticRegistry())
	return c
}

func open(t *testing.T, c Config) *Authorizer {
	t.Helper()
	a, err := New(complete(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.current.Current().close() })
	return a
}

// alice has no rights. reader may get pods.
var (
	alice  = &user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"dev"}, Extra: map[string][]string{"scope": {"all"}}}
	reader = &user.DefaultInfo{Name: "rita", Groups: []string{"readers"}}
	node   = &user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup}}
	master = &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
)

func getPod(u user.Info) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: u, Verb: "get", APIVersion: "v1", Resource: "pods", Namespace: "ns", Name: "p", ResourceRequest: true, Path: "/api/v1/namespaces/ns/pods/p",
	}
}
