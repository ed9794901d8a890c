// Package selectable is what field selectors may ask of the local groups: which fields each kind has, and their values.
//
// Two tables have to agree. The scheme accepts or refuses the labels of a selector (Register), and the store compares
// their values (Fields). A label that only the first knows selects nothing, silently; so both are made from one list.
package selectable

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// Fields returns the fields of an object that a selector may ask for: its name, its namespace if it has one, and those
// of its kind.
func Fields(obj runtime.Object) (fields.Set, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("read fields of %T: %w", obj, err)
	}
	set := fields.Set{}
	addKindFields(set, obj)
	set[nameField] = object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		set[namespaceField] = namespace
	}
	return set, nil
}

// Attrs returns the labels and the fields of an object: it is a storage.AttrFunc.
func Attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	set, err := Fields(obj)
	if err != nil {
		return nil, nil, err
	}
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("read labels of %T: %w", obj, err)
	}
	return object.GetLabels(), set, nil
}

// Register adds the conversion functions of every kind with fields of its own. Kinds without them keep the library's,
// which knows only the name and the namespace.
func Register(scheme *runtime.Scheme) error {
	for _, kind := range kinds() {
		convert := func(label, value string) (string, string, error) {
			if known, ok := kind.labels[label]; ok {
				return known, value, nil
			}
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		if err := scheme.AddFieldLabelConversionFunc(kind.gvk, convert); err != nil {
			return fmt.Errorf("register field labels of %s: %w", kind.gvk.Kind, err)
		}
	}
	return nil
}
