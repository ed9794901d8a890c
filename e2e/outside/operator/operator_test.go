package operator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"example.com/outside/operator"
	"portico.dev/pkg/apitest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs the operator until the test ends.
func start(t *testing.T, env *apitest.Env) client.Client {
	t.Helper()
	m, err := ctrl.NewManager(env.Config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	must(t, err)
	must(t, (&operator.Reconciler{Client: m.GetClient()}).SetupWithManager(m))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(env.Config, client.Options{})
	must(t, err)
	return c
}

func eventually(t *testing.T, what string, condition func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var last error
	if err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	}); err != nil {
		t.Fatalf("%s: condition not met in time: %v, want no error", what, last)
	}
}

func wanted(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app", Labels: map[string]string{operator.Label: ""}}}
}

// Each spec has a separate namespace, and the suite removes all of them.
func TestOperator(t *testing.T) {
	env := apitest.Start(t)
	c := start(t, env)
	specs := map[string]func(t *testing.T, namespace string){
		"a Secret is made": func(t *testing.T, namespace string) {
			must(t, c.Create(t.Context(), wanted(namespace)))
			eventually(t, "the secret is there", func(ctx context.Context) error {
				return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "app"}, &corev1.Secret{})
			})
		},
		"a Secret that is deleted is made again": func(t *testing.T, namespace string) {
			must(t, c.Create(t.Context(), wanted(namespace)))
			var first corev1.Secret
			key := client.ObjectKey{Namespace: namespace, Name: "app"}
			eventually(t, "the secret is there", func(ctx context.Context) error { return c.Get(ctx, key, &first) })
			must(t, c.Delete(t.Context(), &first))
			eventually(t, "another one is there", func(ctx context.Context) error {
				var second corev1.Secret
				if err := c.Get(ctx, key, &second); err != nil || second.UID != first.UID {
					return err
				}
				return apierrors.NewNotFound(corev1.Resource("secrets"), "another app")
			})
		},
		"the Secret goes with its owner": func(t *testing.T, namespace string) {
			owner := wanted(namespace)
			must(t, c.Create(t.Context(), owner))
			key := client.ObjectKeyFromObject(owner)
			eventually(t, "the secret is there", func(ctx context.Context) error { return c.Get(ctx, key, &corev1.Secret{}) })
			must(t, c.Delete(t.Context(), owner))
			eventually(t, "the secret is gone", func(ctx context.Context) error {
				if err := c.Get(ctx, key, &corev1.Secret{}); !apierrors.IsNotFound(err) {
					return apierrors.NewAlreadyExists(corev1.Resource("secrets"), "app")
				}
				return nil
			})
		},
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) { spec(t, env.In(t).Namespace()) })
	}
	var left corev1.NamespaceList
	must(t, c.List(t.Context(), &left))
	for _, n := range left.Items {
		if strings.HasPrefix(n.Name, "test-") {
			t.Errorf("namespace %s exists after the suite, want it removed", n.Name)
		}
	}
}
