package rbac

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

func TestRoleAndBindingChangesTakeEffect(t *testing.T) {
	for name, transform := range map[string]cache.TransformFunc{
		"informers that hold bindings whole": nil, "informers that hold what is needed of them": func(obj any) (any, error) { return TransformBinding(obj), nil },
	} {
		t.Run(name, func(t *testing.T) { changesTakeEffect(t, transform) })
	}
}

func informersOf(group rbacinformers.Interface) Informers {
	return Informers{
		ClusterRoles: group.ClusterRoles(), ClusterRoleBindings: group.ClusterRoleBindings(),
		Roles: group.Roles(), RoleBindings: group.RoleBindings(),
	}
}

func changesTakeEffect(t *testing.T, transform cache.TransformFunc) {
	client := fake.NewSimpleClientset(clusterRole("reader", may("get").inGroup("", "pods")))
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform))
	r := New(zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	// A factory starts the informers that were requested.
	rbac := factory.Rbac().V1()
	rbac.ClusterRoles().Informer()
	rbac.ClusterRoleBindings().Informer()
	rbac.Roles().Informer()
	rbac.RoleBindings().Informer()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, informersOf(rbac)) }()
	stop := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		close(stop)
		factory.Shutdown()
	})
	factory.Start(stop)
	select {
	case <-r.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the authorizer was not ready within a minute, want it ready")
	}
	what := on("get", "", "pods")
	what.User = person("alice")
	await := func(want authorizer.Decision) {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			if decision, _, _ := r.Authorize(t.Context(), what); decision == want {
				return
			}
			select {
			case <-deadline:
				t.Fatalf("the decision did not become %v within a minute, want it", want)
			case <-time.After(time.Millisecond):
			}
		}
	}
	await(authorizer.DecisionNoOpinion)
	bindings := client.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(t.Context(), clusterBinding("b", "reader", subjects("User", "alice")...), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(authorizer.DecisionAllow)
	if err := bindings.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(authorizer.DecisionNoOpinion)
}
