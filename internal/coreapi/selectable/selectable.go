// Package selectable is what field selectors may ask of the local groups: which fields each kind has, and their values.
//
// Two tables have to agree. The scheme accepts or refuses the labels of a selector (Register), and the store compares
// their values (Attrs). A label that only the first knows selects nothing, silently; so both are of one value.
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

// Fields is what selectors of one kind may say besides its name and namespace. The nil Fields is for a kind that has no more.
type Fields struct {
	// labels maps what a client writes to the field that is compared: mostly the same, but some are older names, and the
	// fields of events.k8s.io are compared under their names in core/v1.
	labels map[string]string
	// add sets the values under the names that labels maps to.
	add func(set fields.Set, obj runtime.Object)
	// namesKind has refusals of unknown labels say the kind.
	namesKind bool
}

// Of are the fields of a kind whose Go type is T.
func Of[T runtime.Object](labels map[string]string, add func(set fields.Set, obj T)) *Fields {
	return &Fields{labels: labels, add: func(set fields.Set, obj runtime.Object) { add(set, obj.(T)) }}
}

// NamingTheKind has clients that ask for an unknown label told of which kind, as kube-apiserver does for some.
func (f *Fields) NamingTheKind() *Fields {
	f.namesKind = true
	return f
}

// Attrs returns the labels of an object and the fields that a selector may ask for: it is a storage.AttrFunc.
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

// Register has the scheme accept the fields. A kind without fields of its own keeps the library's, which knows only the
// name and the namespace.
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

// Labels are what a client may write, each with the field that is compared. The caller must not change them.
func (f *Fields) Labels() map[string]string { return f.labels }

// Own maps labels that are also the names of their fields; every kind can be selected by name.
func Own(names ...string) map[string]string {
	labels := map[string]string{nameField: nameField}
	for _, name := range names {
		labels[name] = name
	}
	return labels
}

// InNamespace are Own labels of a kind that is in namespaces.
func InNamespace(names ...string) map[string]string { return Own(append(names, namespaceField)...) }

func WithAliases(labels, aliases map[string]string) map[string]string {
	maps.Copy(labels, aliases)
	return labels
}
