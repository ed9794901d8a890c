package apitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portico.dev/pkg/frontdoor"
)

// Env is a running server for a test. Its methods fail the test on errors. They must be called from the test's goroutine.
type Env struct {
	*Environment

	t      testing.TB
	client *kubernetes.Clientset // the administrator's client
	serial *atomic.Int64         // for unique names; shared by all Envs of a server
}

// Start starts a server for a test and stops it after the test and its subtests.
func Start(t testing.TB) *Env {
	t.Helper()
	return StartWith(t, &Environment{})
}

// StartWith starts the server of e and stops it after the test and its subtests. If e.Logger is nil, warnings and errors go
// to the test's log.
func StartWith(t testing.TB, e *Environment) *Env {
	t.Helper()
	if e.Logger == nil {
		e.Logger = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	}
	if _, err := e.Start(); err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	env := &Env{Environment: e, t: t, serial: &atomic.Int64{}}
	var err error
	if env.client, err = kubernetes.NewForConfig(e.Config); err != nil {
		t.Fatalf("client of the administrator: %v", err)
	}
	return env
}

// In returns an Env of the same server for a subtest. Objects created through it are removed at the end of the subtest.
func (e *Env) In(t testing.TB) *Env {
	return &Env{Environment: e.Environment, t: t, client: e.client, serial: e.serial}
}

// callTimeout limits the duration of a method of Env.
const callTimeout = time.Minute

func (e *Env) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}

func (e *Env) must(what string, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("%s: %v", what, err)
	}
}

// Namespace creates a namespace for the test and returns its name. It deletes the namespace at the end of the test. The test
// fails if the namespace does not terminate, because a finalizer or an extension server blocks its deletion.
func (e *Env) Namespace() string {
	e.t.Helper()
	ctx, cancel := e.context()
	defer cancel()
	made, err := e.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	e.must("create a namespace", err)
	e.t.Cleanup(func() { e.deleteNamespace(made) })
	return made.Name
}

func (e *Env) deleteNamespace(made *corev1.Namespace) {
	ctx, cancel := e.context()
	defer cancel()
	namespaces := e.client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, made.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(made.UID))}); err != nil {
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // deleted by the test
			e.t.Errorf("delete namespace %s: %v", made.Name, err)
		}
		return
	}
	var left *corev1.Namespace
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		now, err := namespaces.Get(ctx, made.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != made.UID {
			return true, nil
		}
		left = now
		return false, nil
	})
	if err != nil && left != nil {
		e.t.Errorf("namespace %s has not terminated within %s: %v", made.Name, callTimeout, left.Status.Conditions)
	}
}

// User returns a client configuration for a user without permissions. Use Grant to add some.
func (e *Env) User(name string, groups ...string) *rest.Config {
	e.t.Helper()
	u, err := e.AddUser(User{Name: name, Groups: groups}, e.Config)
	e.must("user "+name, err)
	return u.Config()
}

// Grant grants rules to a user, in a namespace or, if namespace is empty, in the cluster. It returns when the rules are in
// effect. The roles are deleted at the end of the test.
func (e *Env) Grant(user, namespace string, rules ...rbacv1.PolicyRule) {
	e.t.Helper()
	ctx, cancel := e.context()
	defer cancel()
	roles := e.client.RbacV1()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("granted-%s-%d", rfc1123(user), e.serial.Add(1))}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}
	if namespace == "" {
		ref.Kind = "ClusterRole"
		_, err := roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		e.must("grant rights to "+user, err)
		_, err = roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		e.must("grant rights to "+user, err)
		e.t.Cleanup(func() { e.revoke(roles.ClusterRoleBindings().Delete, roles.ClusterRoles().Delete, meta.Name) })
	} else {
		_, err := roles.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		e.must("grant rights to "+user, err)
		_, err = roles.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		e.must("grant rights to "+user, err)
		e.t.Cleanup(func() { e.revoke(roles.RoleBindings(namespace).Delete, roles.Roles(namespace).Delete, meta.Name) })
	}
	for _, rule := range rules {
		e.awaitRight(ctx, user, namespace, rule)
	}
}

type deleteFunc func(ctx context.Context, name string, options metav1.DeleteOptions) error

func (e *Env) revoke(binding, role deleteFunc, name string) {
	ctx, cancel := e.context()
	defer cancel()
	for _, remove := range []deleteFunc{binding, role} {
		if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.t.Errorf("revoke %s: %v", name, err)
		}
	}
}

// awaitRight waits until the authorizer allows the first verb on the first resource or path of a rule.
func (e *Env) awaitRight(ctx context.Context, user, namespace string, rule rbacv1.PolicyRule) {
	e.t.Helper()
	if len(rule.Verbs) == 0 {
		return
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user}}
	switch {
	case len(rule.Resources) > 0 && len(rule.APIGroups) > 0:
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
		}
		if len(rule.ResourceNames) > 0 {
			review.Spec.ResourceAttributes.Name = rule.ResourceNames[0]
		}
	case len(rule.NonResourceURLs) > 0:
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: rule.Verbs[0], Path: rule.NonResourceURLs[0]}
	default:
		return
	}
	e.must("wait for the rights of "+user, wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		answer, err := e.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	}))
}

// rfc1123 replaces the characters that an object name must not contain.
func rfc1123(name string) string {
	out := []byte(name)
	for i, c := range out {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			out[i] = '-'
		}
	}
	return "u" + string(out) + "u"
}

// WriteKubeconfig writes the administrator's kubeconfig to a temporary file and returns its name.
func (e *Env) WriteKubeconfig() string {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "kubeconfig")
	e.must("write a kubeconfig", os.WriteFile(file, e.KubeConfig, 0o600))
	return file
}

// Snapshot contains the state of all objects at one point in time.
type Snapshot = frontdoor.Snapshot

// Snapshot returns the state of all objects.
func (e *Env) Snapshot() *Snapshot {
	e.t.Helper()
	ctx, cancel := e.context()
	defer cancel()
	s, err := e.front.Snapshot(ctx)
	e.must("snapshot", err)
	return s
}

// Restore resets all objects to a snapshot: it deletes objects created since, and restores objects that were changed or
// deleted. Watches see these changes.
func (e *Env) Restore(s *Snapshot) {
	e.t.Helper()
	ctx, cancel := e.context()
	defer cancel()
	e.must("restore", e.front.Restore(ctx, s))
}

// Advance advances the server's clock by d: service account tokens expire, and expired Events are deleted. It does not affect
// timestamps of objects, certificates, and leases of leader election, which their holders evaluate.
func (e *Env) Advance(d time.Duration) {
	e.t.Helper()
	ctx, cancel := e.context()
	defer cancel()
	e.must("advance", e.front.Advance(ctx, d))
}
