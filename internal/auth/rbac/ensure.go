package rbac

import (
	"context"
	"fmt"
	"path"
	"reflect"
	"slices"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"portico.dev/internal/clients"
)

// EnsureBootstrap updates the stored policy to [Bootstrap]. It creates missing objects, adds missing rules, selectors
// and subjects to existing ones, and preserves additions. Objects annotated with
// rbac.authorization.kubernetes.io/autoupdate: "false" are not changed. The namespaces kube-system and kube-public
// must exist.
//
// Several replicas may call it concurrently.
func EnsureBootstrap(ctx context.Context, client clients.Interface) error {
	p, api := Bootstrap(), client.RbacV1()
	// One list instead of a request for each object. Changes that it does not contain yet cause conflicts.
	fromCache := metav1.ListOptions{ResourceVersion: "0"}
	roles, err := api.ClusterRoles().List(ctx, fromCache)
	if err != nil {
		return fmt.Errorf("list ClusterRoles: %w", err)
	}
	bindings, err := api.ClusterRoleBindings().List(ctx, fromCache)
	if err != nil {
		return fmt.Errorf("list ClusterRoleBindings: %w", err)
	}
	storedRoles, storedBindings := make(map[string]*rbacv1.ClusterRole), make(map[string]*rbacv1.ClusterRoleBinding)
	for i := range roles.Items {
		storedRoles[roles.Items[i].Name] = &roles.Items[i]
	}
	for i := range bindings.Items {
		storedBindings[bindings.Items[i].Name] = &bindings.Items[i]
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ensureTogether)
	for _, want := range p.ClusterRoles {
		g.Go(func() error {
			return ensure(ctx, "ClusterRole", api.ClusterRoles(), storedRoles[want.Name], want, extendClusterRole)
		})
	}
	for _, want := range p.ClusterRoleBindings {
		g.Go(func() error {
			return ensure(ctx, "ClusterRoleBinding", api.ClusterRoleBindings(), storedBindings[want.Name], want, extendClusterRoleBinding)
		})
	}
	for _, want := range p.Roles {
		g.Go(func() error { return ensure(ctx, "Role", api.Roles(want.Namespace), nil, want, extendRole) })
	}
	for _, want := range p.RoleBindings {
		g.Go(func() error {
			return ensure(ctx, "RoleBinding", api.RoleBindings(want.Namespace), nil, want, extendRoleBinding)
		})
	}
	return g.Wait()
}

// ensureTogether is the number of objects checked concurrently. At the first start each is a write, and etcd syncs
// concurrent writes together.
const ensureTogether = 16

// objects is the part of a typed client used by ensure.
type objects[T any] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// object is a pointer to an object of one of the four kinds.
type object[T any] interface {
	metav1.Object
	comparable
	DeepCopy() T
}

// extension adds the content of want to next, a copy of the stored object. It returns false if the difference is in
// immutable fields, so that the object must be recreated.
type extension[T any] func(next, want T) (possible bool)

// ensureAttempts limits the attempts after conflicts with other replicas.
const ensureAttempts = 8

// ensure creates or extends an object. have is the object as it was stored, or nil if it is missing or unknown.
func ensure[T object[T]](ctx context.Context, kind string, api objects[T], have, want T, extend extension[T]) error {
	var err error
	var unknown T
	for range ensureAttempts {
		if have == unknown {
			have, err = api.Get(ctx, want.GetName(), metav1.GetOptions{})
		}
		switch {
		case apierrors.IsNotFound(err):
			_, err = api.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
		case err == nil:
			err = extendStored(ctx, api, have, want, extend)
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
		have = unknown
	}
	if err != nil {
		return fmt.Errorf("ensure %s %s: %w", kind, path.Join(want.GetNamespace(), want.GetName()), err)
	}
	return nil
}

// extendStored adds the content of want to a stored object.
func extendStored[T object[T]](ctx context.Context, api objects[T], have, want T, extend extension[T]) error {
	if have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" {
		return nil
	}
	next := have.DeepCopy()
	if !extend(next, want) {
		uid, version := have.GetUID(), have.GetResourceVersion()
		err := api.Delete(ctx, want.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		_, err = api.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
		return err
	}
	next.SetLabels(withDefaults(next.GetLabels(), want.GetLabels()))
	next.SetAnnotations(withDefaults(next.GetAnnotations(), want.GetAnnotations()))
	if reflect.DeepEqual(next, have) {
		return nil
	}
	_, err := api.Update(ctx, next, metav1.UpdateOptions{})
	return err
}

func extendClusterRole(next, want *rbacv1.ClusterRole) bool {
	if want.AggregationRule != nil {
		if next.AggregationRule == nil {
			next.AggregationRule = &rbacv1.AggregationRule{}
		}
		selectors := &next.AggregationRule.ClusterRoleSelectors
		*selectors = union(*selectors, want.AggregationRule.ClusterRoleSelectors)
	}
	next.Rules = withRules(next.Rules, want.Rules)
	return true
}

func extendRole(next, want *rbacv1.Role) bool {
	next.Rules = withRules(next.Rules, want.Rules)
	return true
}

func extendClusterRoleBinding(next, want *rbacv1.ClusterRoleBinding) bool {
	next.Subjects = union(next.Subjects, want.Subjects)
	return next.RoleRef == want.RoleRef
}

func extendRoleBinding(next, want *rbacv1.RoleBinding) bool {
	next.Subjects = union(next.Subjects, want.Subjects)
	return next.RoleRef == want.RoleRef
}

// withRules appends the rules of want that have does not cover.
func withRules(have, want []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if reflect.DeepEqual(have, want) {
		return have // Covers compares every verb of every resource, and bootstrap roles rarely differ
	}
	for _, rule := range want {
		if covered, _ := validation.Covers(have, []rbacv1.PolicyRule{rule}); !covered {
			have = append(have, rule)
		}
	}
	return have
}

func union[T any](have, want []T) []T {
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h T) bool { return reflect.DeepEqual(h, w) }) {
			have = append(have, w)
		}
	}
	return have
}

func withDefaults(have, defaults map[string]string) map[string]string {
	for k, v := range defaults {
		if _, ok := have[k]; ok {
			continue
		}
		if have == nil {
			have = make(map[string]string, len(defaults))
		}
		have[k] = v
	}
	return have
}
