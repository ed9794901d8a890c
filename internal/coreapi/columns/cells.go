package columns

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// What kube-apiserver shows where there is nothing to show; which of the three differs from column to column.
const (
	None    = "<none>"
	Unknown = "<unknown>"
	Unset   = "<unset>"
)

// ShownAtMost is how many addresses or ports a cell lists before it only counts the rest.
const ShownAtMost = 3

func Text(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

func Number(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description}
}

// Wide marks a column that kubectl shows only with -o wide.
func Wide(column metav1.TableColumnDefinition) metav1.TableColumnDefinition {
	column.Priority = 1
	return column
}

// Name is the first column of nearly every kind. The format tells kubectl where to put the resource's prefix when it
// prints several kinds at once.
func Name() metav1.TableColumnDefinition {
	column := Text("Name", metav1.ObjectMeta{}.SwaggerDoc()["name"])
	column.Format = "name"
	return column
}

func Age() metav1.TableColumnDefinition {
	return Text("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
}

func Since(then, now time.Time) string {
	if then.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(then))
}

// AgeOf is the cell of the Age column.
func AgeOf(object metav1.Object, now time.Time) string {
	return Since(object.GetCreationTimestamp().Time, now)
}

func OrElse(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// Clipped joins the first few values and counts the others.
func Clipped(values []string, otherwise string) string {
	if len(values) == 0 {
		return otherwise
	}
	if len(values) <= ShownAtMost {
		return strings.Join(values, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(values[:ShownAtMost], ","), len(values)-ShownAtMost)
}
