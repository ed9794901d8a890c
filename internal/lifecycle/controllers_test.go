package lifecycle

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
)

// running starts every controller on w inside a bubble where time costs nothing, and stops and joins them at the end.
func running(t *testing.T, w *env, use func()) {
	runningWith(t, w, w.config(), use)
}

func runningWith(t *testing.T, w *env, cfg Config, use func()) {
	ctx, cancel := context.WithCancel(t.Context())
	c := New(cfg)
	w.informer.Start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run failed: %v, want no error", err)
		}
		w.informer.Shutdown()
	}()
	select {
	case <-c.Ready():
		use()
	case <-time.After(10 * time.Minute): // in a bubble of synctest
		t.Error("the controllers are not ready after 10 minutes, want Ready closed")
	}
}

// soon is longer than every delay and shorter than every resync, unless a test states otherwise.
const soon = 5 * time.Second

// settled lets d pass and waits until all work that is due in it is done.
func settled(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestSystemNamespacesAreCreatedAndRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		running(t, w, func() {
			for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
				if w.gone(name) {
					t.Errorf("namespace %s is missing after Ready, want it to exist", name)
				}
				if _, err := w.client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
					t.Errorf("Get of service account default of %s after Ready failed: %v, want no error", name, err)
				}
			}
			settled(soon)
			if err := w.client.CoreV1().Namespaces().Delete(t.Context(), "kube-public", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			settled(soon)
			if w.gone("kube-public") {
				t.Error("namespace kube-public is missing after its deletion, want it created again")
			}
		})
	})
}

// A start that was killed may have claimed the address of the Service kubernetes and not stored the Service. The next start cannot
// create the Service until the claim is repaired, so the repair does not wait for the Service.
func TestStartRepairsClaimOfServiceKubernetes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		var repaired atomic.Bool
		died := time.Now()
		cfg := w.config()
		cfg.FrontDoor = FrontDoor{
			Address: netip.MustParseAddr("10.0.0.1"), Port: 6443,
			Replicas: func() []netip.AddrPort { return nil }, Changed: func() <-chan struct{} { return nil },
			Services: w.informer.Core().V1().Services(), EndpointSlices: w.informer.Discovery().V1().EndpointSlices(),
		}
		cfg.AllocationsAbandoned = func(context.Context) (bool, error) { return time.Since(died) > 6*time.Second && !repaired.Load(), nil }
		cfg.RepairAllocations = func(context.Context) error {
			if time.Since(died) > 6*time.Second { // a lease: until then the dead process counts as alive
				repaired.Store(true)
			}
			return nil
		}
		w.client.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			if repaired.Load() {
				return false, nil, nil
			}
			taken := field.Invalid(field.NewPath("spec", "clusterIPs"), []string{"10.0.0.1"}, "provided IP is already allocated")
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "kubernetes", field.ErrorList{taken})
		})
		runningWith(t, w, cfg, func() {
			if _, err := w.client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
			if took := time.Since(died); took > 12*time.Second {
				t.Errorf("ready after %s, want at most 12s", took)
			}
		})
	})
}

func TestStartWaitsForStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		refused := 0
		w.client.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			if refused < 3 {
				refused++
				return true, nil, apierrors.NewServiceUnavailable("etcdserver: no leader")
			}
			return false, nil, nil
		})
		running(t, w, func() {
			if refused != 3 || w.gone("default") {
				t.Errorf("ready after %d refusals, default missing %v, want 3 refusals and default present", refused, w.gone("default"))
			}
		})
	})
}

func TestStopBeforeStorageIsReadyReturnsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		w.client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewServiceUnavailable("etcdserver: no leader")
		})
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		c := New(w.config())
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		select {
		case <-c.Ready():
			t.Error("Ready is closed without storage, want not ready")
		default:
		}
	})
}

func TestActiveNamespacesGetDefaultObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
		ctx := t.Context()
		furnished := func(ns string) (account, ca bool) {
			_, accountErr := w.client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
			m, caErr := w.client.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			return accountErr == nil, caErr == nil && len(m.Data) == 1 && m.Data["ca.crt"] == "root"
		}
		check := func(situation, ns string) {
			t.Helper()
			settled(soon)
			if account, ca := furnished(ns); !account || !ca {
				t.Errorf("%s: namespace %s has service account: %v, root CA: %v, want both", situation, ns, account, ca)
			}
		}
		running(t, w, func() {
			check("there before the start", "old")
			if _, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			check("created later", "new")

			if err := w.client.CoreV1().ServiceAccounts("new").Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := w.client.CoreV1().ConfigMaps("new").Delete(ctx, "kube-root-ca.crt", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			check("furniture deleted", "new")

			m, err := w.client.CoreV1().ConfigMaps("new").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			m.Data = map[string]string{"ca.crt": "trust me instead", "more": "x"}
			if _, err := w.client.CoreV1().ConfigMaps("new").Update(ctx, m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			check("root CA tampered with", "new")
		})
	})
}

func TestTerminatingNamespacesGetNoDefaultObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doomed := terminating("doomed", "1")
		doomed.Status.Phase = corev1.NamespaceTerminating
		doomed.Spec.Finalizers = append(doomed.Spec.Finalizers, "example.com/hold")
		w := newEnv(t, doomed)
		running(t, w, func() {
			settled(soon)
			accounts, err := w.client.CoreV1().ServiceAccounts("doomed").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(accounts.Items) > 0 {
				t.Errorf("service accounts of the terminating namespace = %v, error %v, want none", accounts, err)
			}
			maps, err := w.client.CoreV1().ConfigMaps("doomed").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(maps.Items) > 0 {
				t.Errorf("ConfigMaps of the terminating namespace = %v, error %v, want none", maps, err)
			}
		})
	})
}

func TestPanicDoesNotStopOtherControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		panicked := false
		w.client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() == "app" && !panicked {
				panicked = true
				panic("an object nobody thought of")
			}
			return false, nil, nil
		})
		running(t, w, func() {
			if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			settled(soon)
			if _, err := w.client.CoreV1().ServiceAccounts("app").Get(t.Context(), "default", metav1.GetOptions{}); err != nil || !panicked {
				t.Errorf("service account of app: panicked %v, error %v, want a panic and then no error", panicked, err)
			}
		})
	})
}
