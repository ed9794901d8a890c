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

// EnsureBootstrap brings the stored policy up to [Bootstrap]. What is missing is created; what is there gets the rules,
// selectors and subjects that it lacks, and keeps what was added. An object that carries
// rbac.authorization.kubernetes.io/autoupdate: "false" is left as it is. The namespaces kube-system and kube-public must exist.
//
// Several replicas may do this at once.
func EnsureBootstrap(ctx context.Context, client clients.Interface) error {
	p, api := Bootstrap(), client.RbacV1()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ensureTogether)
	for _, want := range p.ClusterRoles {
		g.Go(func() error { return ensure(ctx, "ClusterRole", api.ClusterRoles(), want, extendClusterRole) })
	}
	for _, want := range p.ClusterRoleBindings {
		g.Go(func() error {
			return ensure(ctx, "ClusterRoleBinding", api.ClusterRoleBindings(), want, extendClusterRoleBinding)
		})
	}
	for _, want := range p.Roles {
		g.Go(func() error { return ensure(ctx, "Role", api.Roles(want.Namespace), want, extendRole) })
	}
	for _, want := range p.RoleBindings {
		g.Go(func() error {
			return ensure(ctx, "RoleBinding", api.RoleBindings(want.Namespace), want, extendRoleBinding)
		})
	}
	return g.Wait()
}

// ensureTogether is how many objects are checked at once. At a first start each is a write, and etcd syncs once for all
// that come together.
const ensureTogether = 16

// objects is the part of a typed client that ensure needs.
type objects[T any] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// object is a pointer to one of the four kinds.
type object[T any] interface {
	metav1.Object
	comparable
	DeepCopy() T
}

// extension gives next, a copy of what is stored, what want has. It reports false when that takes a new object, because
// the difference is in immutable fields.
type extension[T any] func(next, want T) (possible bool)

// ensureAttempts bounds the retries after conflicts with another replica.
const ensureAttempts = 8

func ensure[T object[T]](ctx context.Context, kind string, api objects[T], want T, extend extension[T]) error {
	var err error
	for range ensureAttempts {
		if err = ensureOnce(ctx, api, want, extend); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("ensure %s %s: %w", kind, path.Join(want.GetNamespace(), want.GetName()), err)
	}
	return nil
}

func ensureOnce[T object[T]](ctx context.Context, api objects[T], want T, extend extension[T]) error {
	have, err := api.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
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
	_, err = api.Update(ctx, next, metav1.UpdateOptions{})
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

// withRules adds the rules of want that the rules of have do not cover already.
func withRules(have, want []rbacv1.PolicyRule) []rbacv1.PolicyRule {
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
