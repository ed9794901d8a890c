package growth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"portico.dev/e2e/environment"
)

func kinds() []kind { return []kind{apiServices{}, bindings{}, namespaces{}, &watches{}} }

const (
	// beyond is added to the numbers of objects that perform creates, so that they are not among the filled ones.
	beyond = 90_000
	// effect is how long the effect of a change may take.
	effect = time.Minute
	// again is the interval between two checks whether a user is authorized.
	again = 2 * time.Millisecond
)

// apiServices are APIServices with a Service each. All have the same backend.
type apiServices struct{}

func (apiServices) name() string   { return "APIServices" }
func (apiServices) change() string { return "create one, until its first response, and delete it" }
func (apiServices) end()           {}

func (apiServices) fill(ctx context.Context, f *environment.Front, from, before int) error {
	return f.Register(ctx, from+1, before+1) // number 0 exists
}

func (apiServices) perform(ctx context.Context, f *environment.Front, n int) (time.Duration, error) {
	client, err := environment.NewClient(f.Server, true)
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	took, err := f.Appear(ctx, client, beyond+n)
	if err != nil {
		return 0, err
	}
	name := environment.ServiceOf(beyond + n)
	if err := f.APIService.ApiregistrationV1().APIServices().Delete(ctx, "v1."+environment.GroupName(beyond+n), metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	return took, f.Client.CoreV1().Services(environment.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// bindings are RoleBindings of one namespace, for a user each.
type bindings struct{}

func (bindings) name() string   { return "RoleBindings" }
func (bindings) change() string { return "create one, until its user is authorized, and delete it" }
func (bindings) end()           {}

func (b bindings) fill(ctx context.Context, f *environment.Front, from, before int) error {
	return environment.Concurrency(ctx, writers, from, before, func(ctx context.Context, n int) error { return b.create(ctx, f, n) })
}

func (bindings) create(ctx context.Context, f *environment.Front, n int) error {
	_, err := f.Client.RbacV1().RoleBindings(environment.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: userOf(n)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: userOf(n)}},
	}, metav1.CreateOptions{})
	return err
}

func userOf(n int) string { return "user-" + strconv.Itoa(n) }

func (b bindings) perform(ctx context.Context, f *environment.Front, n int) (time.Duration, error) {
	n += beyond
	began := time.Now()
	if err := b.create(ctx, f, n); err != nil {
		return 0, err
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               userOf(n),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: environment.Namespace, Verb: "list", Version: "v1", Resource: "pods"},
	}}
	ctx, cancel := context.WithTimeoutCause(ctx, effect, fmt.Errorf("the new user is not authorized after %s", effect))
	defer cancel()
	for allowed := false; !allowed; {
		got, err := f.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return 0, err
		}
		if allowed = got.Status.Allowed; !allowed {
			if err := environment.Pause(ctx, again); err != nil {
				return 0, context.Cause(ctx)
			}
		}
	}
	took := time.Since(began)
	return took, f.Client.RbacV1().RoleBindings(environment.Namespace).Delete(ctx, userOf(n), metav1.DeleteOptions{})
}

// namespaces are namespaces without objects of their own.
type namespaces struct{}

func (namespaces) name() string   { return "namespaces" }
func (namespaces) change() string { return "create one, delete it, until it is gone" }
func (namespaces) end()           {}

func (s namespaces) fill(ctx context.Context, f *environment.Front, from, before int) error {
	return environment.Concurrency(ctx, writers, from, before, func(ctx context.Context, n int) error { return s.create(ctx, f, n) })
}

func (namespaces) create(ctx context.Context, f *environment.Front, n int) error {
	_, err := f.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(n)}}, metav1.CreateOptions{})
	return err
}

func namespaceOf(n int) string { return "growth-" + strconv.Itoa(n) }

func (s namespaces) perform(ctx context.Context, f *environment.Front, n int) (time.Duration, error) {
	n += beyond
	ctx, cancel := context.WithTimeoutCause(ctx, effect, fmt.Errorf("the namespace is not gone after %s", effect))
	defer cancel()
	all := f.Client.CoreV1().Namespaces()
	own, err := all.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + namespaceOf(n)})
	if err != nil {
		return 0, err
	}
	defer own.Stop()
	began := time.Now()
	if err := s.create(ctx, f, n); err != nil {
		return 0, err
	}
	if err := all.Delete(ctx, namespaceOf(n), metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	err = events(ctx, own, func(e watch.Event) bool { return e.Type == watch.Deleted })
	return time.Since(began), err
}

// events receives events until done returns true.
func events(ctx context.Context, w watch.Interface, done func(watch.Event) bool) error {
	for {
		select {
		case e, ok := <-w.ResultChan():
			switch {
			case !ok:
				return errors.New("the watch ended too early")
			case e.Type == watch.Error:
				return apierrors.FromObject(e.Object)
			case done(e):
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watches are idle watches of ConfigMaps, each of the same namespace.
type watches struct{ open []*environment.Streams }

const watched = "default"

func (*watches) name() string { return "watches" }
func (*watches) change() string {
	return "create and delete a ConfigMap of another namespace, until a watch of that namespace has both events"
}

func (w *watches) fill(ctx context.Context, f *environment.Front, from, before int) error {
	if from == before {
		return nil
	}
	ask := environment.Ask{Method: http.MethodGet, Path: "/api/v1/namespaces/" + watched + "/configmaps?watch=true", Token: environment.AdminToken, HTTP2: true}
	streams, err := environment.Open(ctx, f.Server, ask, before-from)
	if err != nil {
		return err
	}
	w.open = append(w.open, streams)
	return nil
}

func (w *watches) perform(ctx context.Context, f *environment.Front, n int) (time.Duration, error) {
	for _, s := range w.open {
		if err := s.Broken(); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, effect, fmt.Errorf("the events did not arrive within %s", effect))
	defer cancel()
	maps, name := f.Client.CoreV1().ConfigMaps(environment.Namespace), "changed-"+strconv.Itoa(n)
	own, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return 0, err
	}
	defer own.Stop()
	began := time.Now()
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	err = events(ctx, own, func(e watch.Event) bool { return e.Type == watch.Deleted })
	return time.Since(began), err
}

func (w *watches) end() {
	for _, s := range w.open {
		s.Close()
	}
	w.open = nil
}
