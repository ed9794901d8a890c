package rbac

import (
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Binding contains the parts of a RoleBinding or ClusterRoleBinding that decisions and their reasons need, a quarter
// kind the object. Servers with many users have tens of thousands of bindings, so shared strings are interned. It is
// immutable.
type Binding struct {
	name, namespace, version string // namespace is empty for a ClusterRoleBinding
	ref                      unique.Handle[rbacv1.RoleRef]
	subjects                 []bindingSubject
	first                    [1]bindingSubject // backing array of subjects if there is one, as in most bindings
}

// bindingSubject is a subject in a binding.
type bindingSubject struct {
	kind unique.Handle[subjectKind]
	name string
}

// subjectKind holds the values that many subjects share. The API group is determined by the kind.
type subjectKind struct{ kind, namespace string }

// TransformBinding converts a RoleBinding or ClusterRoleBinding to a Binding and returns other objects unchanged. It
// is a transform for the informers passed to Run. Listers of such informers cannot list bindings.
func TransformBinding(obj any) any {
	switch b := obj.(type) {
	case *rbacv1.RoleBinding:
		return trimBinding(&b.ObjectMeta, b.RoleRef, b.Subjects)
	case *rbacv1.ClusterRoleBinding:
		return trimBinding(&b.ObjectMeta, b.RoleRef, b.Subjects)
	}
	return obj
}

func trimBinding(m *metav1.ObjectMeta, ref rbacv1.RoleRef, subjects []rbacv1.Subject) *Binding {
	b := &Binding{
		name: m.Name, namespace: once(m.Namespace), version: m.ResourceVersion,
		ref: unique.Make(rbacv1.RoleRef{APIGroup: once(ref.APIGroup), Kind: once(ref.Kind), Name: once(ref.Name)}),
	}
	if b.subjects = b.first[:0]; len(subjects) > 1 {
		b.subjects = make([]bindingSubject, 0, len(subjects))
	}
	for _, s := range subjects {
		b.subjects = append(b.subjects, bindingSubject{unique.Make(subjectKind{s.Kind, s.Namespace}), s.Name})
	}
	return b
}

// GetObjectMeta implements metav1.ObjectMetaAccessor. Informers need names and resource versions.
func (b *Binding) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: b.name, Namespace: b.namespace, ResourceVersion: b.version}
}

// kind returns the kind of the original object.
func (b *Binding) kind() string {
	if b.namespace == "" {
		return "ClusterRoleBinding"
	}
	return "RoleBinding"
}

// bindings returns all bindings of the policy.
func (p *Policy) bindings() []*Binding {
	all := make([]*Binding, 0, len(p.Bindings)+len(p.ClusterRoleBindings)+len(p.RoleBindings))
	all = append(all, p.Bindings...)
	for _, b := range p.ClusterRoleBindings {
		all = append(all, trimBinding(&b.ObjectMeta, b.RoleRef, b.Subjects))
	}
	for _, b := range p.RoleBindings {
		all = append(all, trimBinding(&b.ObjectMeta, b.RoleRef, b.Subjects))
	}
	return all
}

// once returns the interned string equal to s.
func once(s string) string { return unique.Make(s).Value() }
