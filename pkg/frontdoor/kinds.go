package frontdoor

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

// Group is one group-version with its kinds, by the same descriptor as the built-in ones. Version, AddToScheme and Resources are
// required; a higher Priority puts the group earlier in discovery (the built-in ones have 15000 to 18000).
type Group = registry.Group

// Resource is everything that the front door knows of a kind. Name, Singular, Object, List and Rules are required. Types need
// generated deep copies; those without a protobuf form are stored as JSON.
type Resource = registry.Resource

// Rules are the validation of a kind; see ValidateAlways and ValidateUpdates.
type Rules = validate.Rules

// ValidateAlways makes rules of a function that is called for every create and update. Metadata is validated besides.
func ValidateAlways[T runtime.Object](check func(T) field.ErrorList) Rules {
	return validate.SameOnUpdate(check)
}

// ValidateUpdates makes rules of a function for creates and another one for updates.
func ValidateUpdates[T runtime.Object](create func(T) field.ErrorList, update func(obj, old T) field.ErrorList) Rules {
	return validate.OnUpdate(create, update)
}

// Printer makes the tables that kubectl prints.
type Printer = columns.Printer

// Columns makes a Printer of columns and of a function that returns their cells for an object.
func Columns[T runtime.Object](cells func(obj T, now time.Time) []any, definitions ...metav1.TableColumnDefinition) Printer {
	return columns.Show(cells, definitions...)
}

// NameColumn defines the column of the name of an object.
func NameColumn() metav1.TableColumnDefinition { return columns.Name() }

// TextColumn defines a column of text.
func TextColumn(name, description string) metav1.TableColumnDefinition {
	return columns.Text(name, description)
}

// AgeColumn defines the column of the time since the creation of an object.
func AgeColumn() metav1.TableColumnDefinition { return columns.Age() }

// Age is the cell of AgeColumn.
func Age(object metav1.Object, now time.Time) string { return columns.AgeOf(object, now) }

// SelectableFields are the fields that field selectors may ask for besides metadata.name and metadata.namespace: their labels, and
// a function that returns their values for an object.
type SelectableFields = selectable.Fields

// FieldsOf makes SelectableFields of a function that returns the values of fields by name ("spec.size"), and of all names.
func FieldsOf[T runtime.Object](values func(obj T) map[string]string, names ...string) *SelectableFields {
	return selectable.Of(selectable.Own(names...), func(set fields.Set, obj T) {
		maps.Copy(set, values(obj))
	})
}

// Part is the spec or the status of a kind, for Resource.Spec and Resource.Status.
type Part = registry.Part

// SpecOf describes the field spec of a kind, which writes to the status subresource leave alone.
func SpecOf[T runtime.Object, F any](of func(T) *F) *Part { return registry.SpecOf(of) }

// StatusOf describes the field status of a kind, which makes it have a status subresource.
func StatusOf[T runtime.Object, F any](of func(T) *F) *Part { return registry.StatusOf(of) }
