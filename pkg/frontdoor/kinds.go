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

// Group is a group-version with its kinds. Built-in groups use the same type. Version, AddToScheme and Resources are
// required. Groups with a higher Priority come first in discovery; the built-in ones have 15000 to 18000.
type Group = registry.Group

// Resource describes a kind. Name, Singular, Object, List and Rules are required. Types need generated deep copy functions.
// Types without a protobuf encoding are stored as JSON.
type Resource = registry.Resource

// Rules validate the objects of a kind; see ValidateAlways and ValidateUpdates.
type Rules = validate.Rules

// ValidateAlways returns Rules that call check for every create and update. Metadata is validated separately.
func ValidateAlways[T runtime.Object](check func(T) field.ErrorList) Rules {
	return validate.SameOnUpdate(check)
}

// ValidateUpdates returns Rules that call create and update for the respective requests.
func ValidateUpdates[T runtime.Object](create func(T) field.ErrorList, update func(obj, old T) field.ErrorList) Rules {
	return validate.OnUpdate(create, update)
}

// Printer prints the tables that kubectl displays.
type Printer = columns.Printer

// Columns returns a Printer with the given columns. cells returns the cells of an object.
func Columns[T runtime.Object](cells func(obj T, now time.Time) []any, definitions ...metav1.TableColumnDefinition) Printer {
	return columns.Show(cells, definitions...)
}

// NameColumn returns the definition of the name column.
func NameColumn() metav1.TableColumnDefinition { return columns.Name() }

// TextColumn returns the definition of a column of strings.
func TextColumn(name, description string) metav1.TableColumnDefinition {
	return columns.Text(name, description)
}

// AgeColumn returns the definition of a column with the time since the creation of an object.
func AgeColumn() metav1.TableColumnDefinition { return columns.Age() }

// Age returns the cell of AgeColumn.
func Age(object metav1.Object, now time.Time) string { return columns.AgeOf(object, now) }

// SelectableFields are the fields that field selectors support in addition to metadata.name and metadata.namespace: their
// labels, and a function that returns their values for an object.
type SelectableFields = selectable.Fields

// FieldsOf returns SelectableFields. names are the names of all fields, such as "spec.size". values returns their values for
// an object.
func FieldsOf[T runtime.Object](values func(obj T) map[string]string, names ...string) *SelectableFields {
	return selectable.Of(selectable.Own(names...), func(set fields.Set, obj T) {
		maps.Copy(set, values(obj))
	})
}

// Part is the spec or the status of a kind, for Resource.Spec and Resource.Status.
type Part = registry.Part

// SpecOf describes the spec of a kind, which writes to the status subresource do not change.
func SpecOf[T runtime.Object, F any](of func(T) *F) *Part { return registry.SpecOf(of) }

// StatusOf describes the status of a kind. A kind with it has a status subresource.
func StatusOf[T runtime.Object, F any](of func(T) *F) *Part { return registry.StatusOf(of) }
