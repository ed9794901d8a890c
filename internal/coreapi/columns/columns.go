// Package columns defines the kubectl output of the local groups: for every kind kube-apiserver's columns, in the same order,
// with the same cells.
//
// kubectl requests a Table and prints it. It prints a kind without columns as NAME and CREATED AT, which users and scripts that
// read the output of `kubectl get` would report as an error.
package columns

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Convertor returns a TableConvertor for the kind of p. Ages are relative to now.
func Convertor(p Printer, now func() time.Time) rest.TableConvertor {
	return convertor{Printer: p, now: now}
}

// Printer defines the table of one kind.
type Printer struct {
	Columns []metav1.TableColumnDefinition
	// Row returns the cells of one object, one for each column. Cells must have types that JSON decodes to (string, int64,
	// bool), because a deep copy of metav1.Table panics for other types.
	Row func(obj runtime.Object, now time.Time) (metav1.TableRow, error)
	// Order sorts a list before printing. If it is nil, the list keeps its order.
	Order func(items []runtime.Object)
	// Among returns a printer for the objects of a list that depends on the other objects. If it is nil, each object is printed
	// independently.
	Among func(items []runtime.Object) Printer
}

// Show returns a printer for a function of the kind's Go type.
func Show[T runtime.Object](cells func(obj T, now time.Time) []any, columns ...metav1.TableColumnDefinition) Printer {
	return Printer{Columns: columns, Row: func(obj runtime.Object, now time.Time) (metav1.TableRow, error) {
		typed, ok := obj.(T)
		if !ok {
			return metav1.TableRow{}, fmt.Errorf("print a table of %T: got %T", *new(T), obj)
		}
		return metav1.TableRow{Cells: cells(typed, now)}, nil
	}}
}

type convertor struct {
	Printer
	now func() time.Time
}

// ConvertToTable converts an object or a list. Every row contains its object: the handler reduces it according to
// includeObject.
func (c convertor) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	items := []runtime.Object{obj}
	if meta.IsListType(obj) {
		items = items[:0]
		if err := meta.EachListItem(obj, func(item runtime.Object) error {
			items = append(items, item)
			return nil
		}); err != nil {
			return nil, fmt.Errorf("read items of %T: %w", obj, err)
		}
	}
	if c.Order != nil {
		c.Order(items)
	}
	shown := c.Printer
	if c.Among != nil && meta.IsListType(obj) {
		shown = c.Among(items)
	}
	table := &metav1.Table{Rows: make([]metav1.TableRow, 0, len(items))}
	now := c.now()
	for _, item := range items {
		row, err := shown.Row(item, now)
		if err != nil {
			return nil, err
		}
		row.Object = runtime.RawExtension{Object: item}
		table.Rows = append(table.Rows, row)
	}
	describeList(table, obj)
	if opts, ok := options.(*metav1.TableOptions); !ok || !opts.NoHeaders {
		table.ColumnDefinitions = shown.Columns
	}
	return table, nil
}

// describeList copies the list metadata with which a client watches and requests the next page.
func describeList(table *metav1.Table, obj runtime.Object) {
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
		return
	}
	if object, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = object.GetResourceVersion()
	}
}

// kube-apiserver's texts for empty cells. Each column uses one of the three.
const (
	None    = "<none>"
	Unknown = "<unknown>"
	Unset   = "<unset>"
)

// ShownAtMost limits the addresses or ports that a cell lists. Others are only counted.
const ShownAtMost = 3

func Text(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

func Number(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description}
}

// Wide marks a column that kubectl prints only with -o wide.
func Wide(column metav1.TableColumnDefinition) metav1.TableColumnDefinition {
	column.Priority = 1
	return column
}

// Name returns the first column of nearly every kind. kubectl uses the format to add the resource as a prefix when it prints
// several kinds.
func Name() metav1.TableColumnDefinition {
	column := Text("Name", metav1.ObjectMeta{}.SwaggerDoc()["name"])
	column.Format = "name"
	return column
}

func Age() metav1.TableColumnDefinition {
	return Text("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
}

// Condition returns the status of a condition, with its reason unless the status is True.
func Condition(conditions []metav1.Condition, kind string) string {
	for _, c := range conditions {
		switch {
		case c.Type != kind:
		case c.Status == metav1.ConditionTrue:
			return string(c.Status)
		default:
			return string(c.Status) + " (" + c.Reason + ")"
		}
	}
	return string(metav1.ConditionUnknown)
}

func Since(then, now time.Time) string {
	if then.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(then))
}

// AgeOf returns the cell of the Age column.
func AgeOf(object metav1.Object, now time.Time) string {
	return Since(object.GetCreationTimestamp().Time, now)
}

func OrElse(value, otherwise string) string {
	return cmp.Or(value, otherwise)
}

// Clipped joins the first values and counts the others.
func Clipped(values []string, otherwise string) string {
	if len(values) == 0 {
		return otherwise
	}
	if len(values) <= ShownAtMost {
		return strings.Join(values, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(values[:ShownAtMost], ","), len(values)-ShownAtMost)
}

func YesNo(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "boolean", Description: description}
}

func ContainerNames() metav1.TableColumnDefinition {
	return Text("Containers", "Names of each container in the template.")
}

func ContainerImages() metav1.TableColumnDefinition {
	return Text("Images", "Images referenced by each container in the template.")
}

// ContainersOf returns the cells of ContainerNames and ContainerImages.
func ContainersOf(spec *corev1.PodSpec) (names, images string) {
	all, from := make([]string, len(spec.Containers)), make([]string, len(spec.Containers))
	for i := range spec.Containers {
		all[i], from[i] = spec.Containers[i].Name, spec.Containers[i].Image
	}
	return strings.Join(all, ","), strings.Join(from, ",")
}

// Replicas returns a replica count, or 0 if defaulting has not set it.
func Replicas(n *int32) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

// ScaleColumns returns the printer for the scale of any workload.
func ScaleColumns() Printer {
	p := Show(func(s *autoscalingv1.Scale, now time.Time) []any {
		return []any{s.Name, int64(s.Spec.Replicas), int64(s.Status.Replicas), AgeOf(s, now)}
	}, Name(), Number("Desired", autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]),
		Number("Available", autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]), Age())
	p.Columns[0].Format = ""
	return p
}
