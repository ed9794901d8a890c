package rbac

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// roles are the compiled roles of a policy, by what a binding refers to them with.
type roles struct {
	cluster    map[string]*role
	namespaced map[[2]string]*role
	targets    targets
}

func compileRoles(p Policy) roles {
	all := roles{
		cluster:    make(map[string]*role, len(p.ClusterRoles)),
		namespaced: make(map[[2]string]*role, len(p.Roles)),
		targets:    make(targets),
	}
	for name, rules := range Aggregate(p.ClusterRoles) {
		all.cluster[name] = compile(rules, all.targets)
	}
	for _, r := range p.Roles {
		all.namespaced[[2]string{r.Namespace, r.Name}] = compile(r.Rules, all.targets)
	}
	return all
}

func compile(rules []rbacv1.PolicyRule, known targets) *role {
	r := &role{rules: rules}
	r.table.add(rules, some, known)
	return r
}

// find returns the role that a binding in namespace refers to. The errors read as those of Kubernetes.
func (all roles) find(namespace string, to rbacv1.RoleRef) (*role, error) {
	switch {
	case to.Kind == "ClusterRole":
		if found := all.cluster[to.Name]; found != nil {
			return found, nil
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrole"}, to.Name)
	case to.Kind == "Role" && namespace != "":
		if found := all.namespaced[[2]string{namespace, to.Name}]; found != nil {
			return found, nil
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: "role"}, to.Name)
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", to.Kind)
}
