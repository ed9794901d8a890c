package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-helpers/auth/rbac/validation"

	"portico.dev/internal/coreapi/registry"
)

// Users cannot grant permissions that they do not hold. Otherwise permission to write a RoleBinding would be permission to
// become cluster-admin. The verbs "escalate" and "bind" lift the rule. Members of system:masters, who have all permissions
// without a role, are exempt.

// guardRole refuses a Role or ClusterRole with permissions that its author does not hold.
func guardRole(ctx context.Context, e *registry.Environment, obj, old runtime.Object) error {
	if grantsNothing(obj, old) {
		return nil
	}
	resource, rules, aggregates := roleContent(obj)
	object, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if e.IsPrivileged(ctx) || mayEscalate(ctx, e) {
		return nil
	}
	if err := holds(ctx, e, object.GetNamespace(), rules); err != nil {
		return forbidden(resource, object.GetName(), err)
	}
	if old != nil {
		_, _, aggregated := roleContent(old)
		aggregates = aggregates || aggregated
	}
	if aggregates {
		// An aggregated role includes the rules of all present and future roles that its selectors match. A role that loses its
		// aggregation rule keeps these rules, and they can no longer be restricted through the other roles.
		if err := holds(ctx, e, "", Everything); err != nil {
			return forbidden(resource, object.GetName(), errors.New("must have cluster-admin privileges to use the aggregationRule"))
		}
	}
	return nil
}

// Everything contains the rules of cluster-admin.
var Everything = []rbacv1.PolicyRule{
	{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
}

// roleContent returns the rules of a role. aggregates reports whether it includes the rules of the roles that it selects.
func roleContent(obj runtime.Object) (resource string, rules []rbacv1.PolicyRule, aggregates bool) {
	switch role := obj.(type) {
	case *rbacv1.ClusterRole:
		return "clusterroles", role.Rules, role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) > 0
	case *rbacv1.Role:
		return "roles", role.Rules, false
	}
	return "", nil, false
}

// guardBinding refuses a binding to permissions that its author does not hold, unless the author may bind the role.
func guardBinding(ctx context.Context, e *registry.Environment, obj, old runtime.Object) error {
	if grantsNothing(obj, old) {
		return nil
	}
	resource, ref := bindingContent(obj)
	object, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	namespace := object.GetNamespace()
	if e.IsPrivileged(ctx) || mayBind(ctx, e, namespace, ref) {
		return nil
	}
	rules, err := storedRules(ctx, e, namespace, ref)
	if err != nil {
		return err
	}
	if err := holds(ctx, e, namespace, rules); err != nil {
		return forbidden(resource, object.GetName(), err)
	}
	return nil
}

// storedRules reads the current rules of a referenced role. The stored rules of an aggregated role do not count. They are
// computed from the current roles that it selects.
func storedRules(ctx context.Context, e *registry.Environment, namespace string, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	resource := "clusterroles"
	if ref.Kind == "Role" {
		resource = "roles"
	} else {
		namespace = ""
	}
	roles := e.Storage(rbacv1.Resource(resource))
	obj, err := roles.Get(registry.ReadContext(ctx, rbacv1.GroupName, resource, namespace, ref.Name), ref.Name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	_, rules, aggregates := roleContent(obj)
	if !aggregates {
		return rules, nil
	}
	if e.Aggregate == nil {
		return Everything, nil
	}
	list, err := roles.List(registry.ReadContext(ctx, rbacv1.GroupName, resource, "", ""), &metainternalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := list.(*rbacv1.ClusterRoleList)
	pointers := make([]*rbacv1.ClusterRole, len(all.Items))
	for i := range all.Items {
		pointers[i] = &all.Items[i]
	}
	return e.Aggregate(pointers)[ref.Name], nil
}

func bindingContent(obj runtime.Object) (resource string, ref rbacv1.RoleRef) {
	switch binding := obj.(type) {
	case *rbacv1.ClusterRoleBinding:
		return "clusterrolebindings", binding.RoleRef
	case *rbacv1.RoleBinding:
		return "rolebindings", binding.RoleRef
	}
	return "", rbacv1.RoleRef{}
}

// grantsNothing reports whether an update changes only fields that the garbage collector writes, which must be able to delete
// any role. Labels are not among them: a label can add the rules of a role to an aggregated role that the author holds.
func grantsNothing(obj, old runtime.Object) bool {
	if old == nil {
		return false
	}
	same := obj.DeepCopyObject()
	next, err := meta.Accessor(same)
	if err != nil {
		return false
	}
	before, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	next.SetOwnerReferences(before.GetOwnerReferences())
	next.SetFinalizers(before.GetFinalizers())
	next.SetManagedFields(before.GetManagedFields())
	return apiequality.Semantic.DeepEqual(same, old)
}

func forbidden(resource, name string, err error) error {
	return apierrors.NewForbidden(rbacv1.Resource(resource), name, err)
}

// mayEscalate reports whether the author may write arbitrary rules into the role in the request's path. A POST has no name in
// the path, so a permission for single names does not cover it.
func mayEscalate(ctx context.Context, e *registry.Environment) bool {
	info, ok := apirequest.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || info.APIGroup != rbacv1.GroupName || info.Resource != "roles" && info.Resource != "clusterroles" {
		return false
	}
	return e.Allowed(ctx, "escalate", authorizer.AttributesRecord{
		APIGroup: info.APIGroup, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name,
	})
}

// mayBind reports whether the author may bind subjects to the role of ref in namespace, or in all namespaces if it is empty.
func mayBind(ctx context.Context, e *registry.Environment, namespace string, ref rbacv1.RoleRef) bool {
	resource, ok := map[string]string{"ClusterRole": "clusterroles", "Role": "roles"}[ref.Kind]
	return ok && e.Allowed(ctx, "bind", authorizer.AttributesRecord{
		APIGroup: ref.APIGroup, Resource: resource, Namespace: namespace, Name: ref.Name,
	})
}

// holds returns an error that lists the missing rules unless the author has all of the rules in namespace.
func holds(ctx context.Context, e *registry.Environment, namespace string, rules []rbacv1.PolicyRule) error {
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		return errors.New("no user on the request")
	}
	resources, paths, _, err := e.Rules.RulesFor(ctx, u, namespace)
	held := heldRules(resources, paths)
	covered, missing := validation.Covers(held, rules)
	if covered {
		return nil
	}
	message := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.GetName(), u.GetGroups(), strings.Join(describeRules(missing), "\n"))
	if err != nil {
		message += fmt.Sprintf("; resolution errors: %v", err)
	}
	return errors.New(message)
}

func heldRules(resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo) []rbacv1.PolicyRule {
	held := make([]rbacv1.PolicyRule, 0, len(resources)+len(paths))
	for _, rule := range resources {
		held = append(held, rbacv1.PolicyRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
		})
	}
	for _, rule := range paths {
		held = append(held, rbacv1.PolicyRule{Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs()})
	}
	return held
}

// describeRules returns a line with the missing verbs per resource or URL, because Covers splits rules into single verbs.
func describeRules(rules []rbacv1.PolicyRule) []string {
	verbs := map[string][]string{}
	for _, rule := range rules {
		var parts []string
		for _, field := range []struct {
			name   string
			values []string
		}{
			{"APIGroups", rule.APIGroups}, {"Resources", rule.Resources},
			{"NonResourceURLs", rule.NonResourceURLs}, {"ResourceNames", rule.ResourceNames},
		} {
			if len(field.values) > 0 {
				parts = append(parts, fmt.Sprintf("%s:%q", field.name, field.values))
			}
		}
		thing := strings.Join(parts, ", ")
		verbs[thing] = append(verbs[thing], rule.Verbs...)
	}
	lines := make([]string, 0, len(verbs))
	for thing, missing := range verbs {
		slices.Sort(missing)
		lines = append(lines, fmt.Sprintf("{%s, Verbs:%q}", thing, missing))
	}
	slices.Sort(lines)
	return lines
}
