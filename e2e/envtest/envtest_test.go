package envtest

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// poll waits until condition returns nil.
func poll(t *testing.T, condition func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = condition()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("condition not met in time: %v: %v, want no error", err, last)
	}
}

func TestUsersHaveTheRightsThatRBACGivesThem(t *testing.T) {
	env := &envtest.Environment{}
	admin := newClient(t, start(t, env))
	user, err := env.AddUser(envtest.User{Name: "alice", Groups: []string{"readers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	alice, ctx := newClient(t, user.Config()), testContext(t)
	if err := alice.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("default")); !apierrors.IsForbidden(err) {
		t.Fatalf("List without the right = %v, want Forbidden", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers", Namespace: "default"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "read-configmaps"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "read-configmaps"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := admin.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	poll(t, func() error { return alice.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("default")) })
	if err := alice.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}}); !apierrors.IsForbidden(err) {
		t.Errorf("Create without the right = %v, want Forbidden", err)
	}
}

func TestTwoEnvironmentsAtOnce(t *testing.T) {
	var both [2]envtest.Environment
	var clients [2]client.Client
	var starting sync.WaitGroup
	for i := range both {
		starting.Go(func() {
			both[i].UseExistingCluster = new(false)
			patient(&both[i])
			config, err := both[i].Start()
			if err != nil {
				t.Errorf("Start of an environment failed: %v, want no error", err)
				return
			}
			if clients[i], err = client.New(config, client.Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		for i := range both {
			if err := both[i].Stop(); err != nil {
				t.Errorf("Stop of an environment failed: %v, want no error", err)
			}
		}
	})
	if t.Failed() {
		return
	}
	ctx := testContext(t)
	object := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "here", Namespace: "default"}}
	}
	if err := clients[0].Create(ctx, object()); err != nil {
		t.Fatal(err)
	}
	if err := clients[1].Get(ctx, client.ObjectKeyFromObject(object()), object()); !apierrors.IsNotFound(err) {
		t.Errorf("Get of an object of the other environment = %v, want NotFound", err)
	}
}

// A stop ends the processes at once, even with an open watch, and removes all files.
func TestStopLeavesNothing(t *testing.T) {
	before := running(t)
	env := &envtest.Environment{UseExistingCluster: new(false)}
	patient(env)
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	certDir, dataDir := env.ControlPlane.APIServer.CertDir, env.ControlPlane.Etcd.DataDir
	own, err := filepath.Glob(filepath.Join(certDir, "portico-*"))
	if err != nil || len(own) != 1 {
		t.Errorf("directories of the server's files = %v %v, want 1", own, err)
	}
	if n := len(running(t)) - len(before); n != 2 {
		t.Errorf("%d processes of the environment, want 2", n)
	}
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Watch(testContext(t), &corev1.ConfigMapList{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	began := time.Now()
	if err := env.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 9*time.Second { // the front door's grace period is 10 s, and this program's 0.2 s
		t.Errorf("the stop took %s, want at most 9 s", took)
	}
	if left := running(t); len(left) > len(before) {
		t.Errorf("%d processes after the stop: %q; want 0", len(left)-len(before), left)
	}
	for _, dir := range []string{certDir, dataDir} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("directory %s after the stop: error = %v, want it not to exist", dir, err)
		}
	}
}

// Without a kube-controller-manager no controller finalizes a namespace. The front door's controllers do so if the flag enables
// them.
func TestControllersRunWhenTheyAreAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		controllers []string
		finalized   bool
	}{
		"by default":      {},
		"--controllers=*": {controllers: []string{"*"}, finalized: true},
	} {
		t.Run(name, func(t *testing.T) {
			env := &envtest.Environment{}
			if c.controllers != nil {
				env.ControlPlane.GetAPIServer().Configure().Append("controllers", c.controllers...)
			}
			admin, ctx := newClient(t, start(t, env)), testContext(t)
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short"}}
			if err := admin.Create(ctx, ns); err != nil {
				t.Fatal(err)
			}
			if err := admin.Delete(ctx, ns); err != nil {
				t.Fatal(err)
			}
			if c.finalized {
				poll(t, func() error {
					err := admin.Get(ctx, client.ObjectKeyFromObject(ns), ns)
					if apierrors.IsNotFound(err) {
						return nil
					}
					return cmp.Or(err, errors.New("the namespace is still there"))
				})
				return
			}
			if err := admin.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil || ns.Status.Phase != corev1.NamespaceTerminating {
				t.Errorf("phase of the namespace without controllers = %s, %v; want Terminating", ns.Status.Phase, err)
			}
			if err := admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "default"}, &corev1.ServiceAccount{}); !apierrors.IsNotFound(err) {
				t.Errorf("Get of the service account default without controllers = %v, want NotFound", err)
			}
		})
	}
}
