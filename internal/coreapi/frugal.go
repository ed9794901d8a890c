package coreapi

import (
	"hash/maphash"
	"sync/atomic"
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// frugal is a codec whose decoded objects share the words that many objects have: namespaces, who manages which fields, to
// whom roles are bound. Watch caches keep objects as they were decoded, and in tens of thousands of bindings that is a third
// of all objects that a collection of garbage walks through.
//
// What is shared must not be written to in place. Nobody does: strings cannot be, and a set of managed fields is replaced
// as a whole.
type frugal struct {
	runtime.Codec
	fields *fieldSets
}

func (f frugal) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := f.Codec.Decode(data, defaults, into)
	if err == nil {
		f.share(obj)
	}
	return obj, kind, err
}

func (f frugal) share(obj runtime.Object) {
	with, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok {
		return
	}
	m, ok := with.GetObjectMeta().(*metav1.ObjectMeta)
	if !ok {
		return
	}
	once(&m.Namespace)
	for i := range m.ManagedFields {
		e := &m.ManagedFields[i]
		once(&e.Manager)
		once(&e.Operation)
		once(&e.APIVersion)
		once(&e.FieldsType)
		once(&e.Subresource)
		e.FieldsV1 = f.fields.once(e.FieldsV1)
	}
	switch o := obj.(type) {
	case *rbacv1.RoleBinding:
		shareBinding(&o.RoleRef, o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		shareBinding(&o.RoleRef, o.Subjects)
	}
}

func shareBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	once(&ref.APIGroup)
	once(&ref.Kind)
	once(&ref.Name)
	for i := range subjects {
		s := &subjects[i]
		once(&s.APIGroup)
		once(&s.Kind)
		once(&s.Namespace)
	}
}

// once makes all words that say the same have the same bytes. The runtime forgets those that nobody has any more.
func once[S ~string](s *S) {
	if *s != "" {
		*s = unique.Make(*s).Value()
	}
}

// fieldSets are sets of managed fields that were met lately. Whoever makes many objects makes them alike.
type fieldSets struct {
	seed  maphash.Seed
	known [1 << 10]atomic.Pointer[metav1.FieldsV1]
}

// largestShared bounds what fieldSets keep, to 1 MiB: the larger a set is, the fewer have it.
const largestShared = 1 << 10

func newFieldSets() *fieldSets { return &fieldSets{seed: maphash.MakeSeed()} }

// once is f, or an equal one that was met before.
func (s *fieldSets) once(f *metav1.FieldsV1) *metav1.FieldsV1 {
	raw := f.GetRawBytes()
	if len(raw) == 0 || len(raw) > largestShared {
		return f
	}
	place := &s.known[maphash.Bytes(s.seed, raw)%uint64(len(s.known))]
	if known := place.Load(); known != nil && known.Equal(*f) {
		return known
	}
	place.Store(f)
	return f
}
