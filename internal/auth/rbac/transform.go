package rbac

import (
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Binding is what decisions, and their reasons, need of a binding of either kind: a quarter of it. Where there are many
// users there are tens of thousands of them, so strings that they have in common are kept once. It never changes.
type Binding struct {
	name, namespace, version string // without a namespace it is a ClusterRoleBinding
	ref                      unique.Handle[rbacv1.RoleRef]
	subjects                 []bindingSubject
	first                    [1]bindingSubject // the array of subjects, where there is one, as in most bindings
}

// bindingSubject is a subject of a binding.
type bindingSubject struct {
	of   unique.Handle[subjectKind]
	name string
}

// subjectKind is what many subjects have in common. Their API group follows from the kind.
type subjectKind struct{ kind, namespace string }

// TransformBinding makes a Binding of a RoleBinding or a ClusterRoleBinding, and leaves other objects as they are. It
// is a transform for the informers that Run listens to; their listers cannot list bindings then.
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

// GetObjectMeta implements metav1.ObjectMetaAccessor: informers need names and resource versions.
func (b *Binding) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: b.name, Namespace: b.namespace, ResourceVersion: b.version}
}

// kind is the kind that it was made of.
func (b *Binding) kind() string {
	if b.namespace == "" {
		return "ClusterRoleBinding"
	}
	return "RoleBinding"
}

// bindings are all of a policy.
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

// once is s, with the same bytes for every equal string.
func once(s string) string { return unique.Make(s).Value() }
