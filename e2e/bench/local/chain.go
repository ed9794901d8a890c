package local

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"portico.dev/e2e/environment"
	"portico.dev/internal/aggregator"
	"portico.dev/internal/audit"
	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authz"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/dispatch"
	"portico.dev/internal/fairness"
	"portico.dev/internal/metrics"
	"portico.dev/internal/overload"
	"portico.dev/internal/request"
	"portico.dev/internal/routetable"
	"portico.dev/internal/server"
	"portico.dev/internal/store"
)

// layer is a layer on which operations are performed. ns and name identify the object, accept is the media type.
type layer interface {
	create(ctx context.Context, ns, name string) error
	get(ctx context.Context, ns, name, version string) error
	list(ctx context.Context, ns, accept string) error
	touch(ctx context.Context, ns, name, with string) error
	watch(ctx context.Context, ns string, opened func(), heard func()) error
	empty(ctx context.Context) error
}

var (
	_ layer = (*library)(nil)
	_ layer = (*inProcess)(nil)
)

// chainServer contains the local groups with their filter chain, in one process and without a listener.
type chainServer struct {
	layers map[string]layer
	made   atomic.Int64 // numbers the objects that are created during measurements
	end    func() error
}

// alice is the user of the requests.
var alice = &user.DefaultInfo{Name: "alice", UID: "u-1", Groups: []string{"dev", "ops", user.AllAuthenticated}}

// openChainServer builds and starts a chainServer with the defaults of `aggregator serve` and an audit log.
func openChainServer(dir string) (h *chainServer, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	running, ctx := errgroup.WithContext(ctx)
	h = &chainServer{layers: map[string]layer{}, end: func() error { cancel(); return running.Wait() }}
	begin := func(run func(context.Context) error, ready <-chan struct{}) error {
		running.Go(func() error { return run(ctx) })
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return running.Wait()
		}
	}
	reg := prometheus.NewRegistry()
	s, err := store.New(store.Config{DataDir: filepath.Join(dir, "etcd")})
	if err != nil {
		return nil, err
	}
	may, err := rights(reg)
	if err != nil {
		return nil, err
	}
	core, err := coreapi.New(coreapi.Config{Store: s, Authorizer: may, RuleResolver: may, Admission: aggregator.Default().Admission, Groups: cluster.All()})
	if err != nil {
		return nil, err
	}
	if err := begin(s.Run, s.Ready()); err != nil {
		return nil, err
	}
	if err := begin(core.Run, core.Ready()); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(core.ClientConfig(&user.DefaultInfo{Name: "system:apiserver", Groups: []string{user.SystemPrivilegedGroup}}))
	if err != nil {
		return nil, err
	}
	for _, ns := range []string{fewIn, manyIn, madeIn} {
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	turns, err := fairness.New(fairness.Config{Client: client, Seats: 600})
	if err != nil {
		return nil, err
	}
	if err := begin(turns.Run, turns.Ready()); err != nil {
		return nil, err
	}
	trail, err := audit.New(audit.Config{LogPath: filepath.Join(dir, "audit.log"), LogMaxBackups: 1, Metrics: metrics.NewAudit(reg), Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	always := make(chan struct{})
	close(always)
	if err := begin(trail.Run, always); err != nil {
		return nil, err
	}
	if h.layers[libraryLayer], err = openLibrary(s); err != nil {
		return nil, err
	}
	return h, h.openChain(dir, core, may, turns, trail, reg)
}

// openChain creates the two layers above the library.
func (h *chainServer) openChain(dir string, core *coreapi.Server, may *authz.Authorizer, turns *fairness.Fairness, trail *audit.Auditor, reg prometheus.Registerer) error {
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(environment.UserToken+`,alice,u-1,"dev,ops"`+"\n"), 0o600); err != nil {
		return err
	}
	who, err := authn.New(authn.Config{TokenFile: tokens, Anonymous: true, Metrics: metrics.NewAuth(reg), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	served := server.ForLocal(server.NewBodyMemory(overload.Limit{}, metrics.NewOverload(reg)), core.Handler())
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	requests := metrics.NewRequests(reg)
	chain := func(local http.Handler) (http.Handler, error) {
		table := routetable.NewTable(nil, true)
		return server.NewChain(server.ChainConfig{
			Authenticator: who, Authorizer: may, Ready: func() error { return nil }, RequestTimeout: time.Minute, Fairness: turns,
			Audit: trail, Metrics: requests, Logger: zap.NewNop(), Drainer: server.NewDrainer(),
		}, &server.Router{Groups: dispatch.New(dispatch.Config{
			Routes:             func() *routetable.Table { return table },
			LocalGroupVersions: func() sets.Set[schema.GroupVersion] { return core.GroupVersions() },
			Local:              local,
		})})
	}
	whole, err := chain(served)
	if err != nil {
		return err
	}
	bare, err := chain(nothing)
	if err != nil {
		return err
	}
	h.layers[handlerLayer] = &inProcess{handler: served, nothing: nothing, prepare: prepared(request.NewResolver(), alice)}
	h.layers[chainLayer] = &inProcess{handler: whole, nothing: bare}
	return nil
}

// rights returns an authorizer that permits alice the measured operations, with one binding.
func rights(reg prometheus.Registerer) (*authz.Authorizer, error) {
	rules := rbac.New(zap.NewNop())
	meta := metav1.ObjectMeta{Name: "bench"}
	rules.Load(rbac.Policy{
		ClusterRoles: []*rbacv1.ClusterRole{{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get", "list", "watch", "create", "patch"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
		}}}},
		ClusterRoleBindings: []*rbacv1.ClusterRoleBinding{{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: alice.Name}},
		}},
	})
	return authz.New(authz.Config{
		Modes: []string{authz.ModeRBAC}, RBAC: rules, Metrics: metrics.NewAuthorization(reg), Logger: zap.NewNop(),
		WebhookVersion: authz.DefaultWebhookVersion,
	})
}
