// Package selectable defines the field selectors of the local groups: the supported fields of each kind, and their values.
//
// Two tables must agree. The scheme accepts or refuses the labels of a selector (Register), and the store compares their values
// (Attrs). A label that exists only in the first one silently selects nothing. Therefore both come from one Fields value.
package selectable

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// Fields contains the selector fields of one kind in addition to its name and namespace. It is nil for a kind without more
// fields.
type Fields struct {
	// labels maps a label in a selector to the compared field. They are mostly the same, but some labels are older names, and
	// the fields of events.k8s.io are compared under their names in core/v1.
	labels map[string]string
	// add sets the values under the names to which labels maps.
	add func(set fields.Set, obj runtime.Object)
	// namesKind adds the kind to errors for unknown labels.
	namesKind bool
}

// Of returns the Fields of a kind with Go type T.
func Of[T runtime.Object](labels map[string]string, add func(set fields.Set, obj T)) *Fields {
	return &Fields{labels: labels, add: func(set fields.Set, obj runtime.Object) { add(set, obj.(T)) }}
}

// NamingTheKind adds the kind to errors for unknown labels, as kube-apiserver does for some kinds.
func (f *Fields) NamingTheKind() *Fields {
	f.namesKind = true
	return f
}

// Attrs returns the labels of an object and the fields for selectors. It is a storage.AttrFunc.
func (f *Fields) Attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("read labels and fields of %T: %w", obj, err)
	}
	set := fields.Set{}
	if f != nil {
		f.add(set, obj)
	}
	set[nameField] = object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		set[namespaceField] = namespace
	}
	return object.GetLabels(), set, nil
}

// Register makes the scheme accept the fields. A kind without Fields keeps k8s.io/apimachinery's default, which accepts only
// the name and the namespace.
func (f *Fields) Register(scheme *runtime.Scheme, kind schema.GroupVersionKind) error {
	return scheme.AddFieldLabelConversionFunc(kind, func(label, value string) (string, string, error) {
		if known, ok := f.labels[label]; ok {
			return known, value, nil
		}
		if f.namesKind {
			return "", "", fmt.Errorf("field label not supported for %s: %s", kind, label)
		}
		return "", "", fmt.Errorf("field label not supported: %s", label)
	})
}

// Labels returns the labels that selectors may use, each with the compared field. The caller must not modify them.
func (f *Fields) Labels() map[string]string { return f.labels }

// Own returns labels that equal the names of their fields, including metadata.name, which every kind supports.
func Own(names ...string) map[string]string {
	labels := map[string]string{nameField: nameField}
	for _, name := range names {
		labels[name] = name
	}
	return labels
}

// InNamespace returns the Own labels of a namespaced kind.
func InNamespace(names ...string) map[string]string { return Own(append(names, namespaceField)...) }

func WithAliases(labels, aliases map[string]string) map[string]string {
	maps.Copy(labels, aliases)
	return labels
}
