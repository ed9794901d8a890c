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
	none    = "<none>"
	unknown = "<unknown>"
	unset   = "<unset>"
)

// shownAtMost is how many addresses or ports a cell lists before it only counts the rest.
const shownAtMost = 3

func text(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

func number(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description}
}

// wide marks a column that kubectl shows only with -o wide.
func wide(column metav1.TableColumnDefinition) metav1.TableColumnDefinition {
	column.Priority = 1
	return column
}

// name is the first column of nearly every kind. The format tells kubectl where to put the resource's prefix when it
// prints several kinds at once.
func name() metav1.TableColumnDefinition {
	column := text("Name", metav1.ObjectMeta{}.SwaggerDoc()["name"])
	column.Format = "name"
	return column
}

func age() metav1.TableColumnDefinition {
	return text("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
}

func since(then, now time.Time) string {
	if then.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(then))
}

// ageOf is the cell of the Age column.
func ageOf(object metav1.Object, now time.Time) string {
	return since(object.GetCreationTimestamp().Time, now)
}

func orElse(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// clipped joins the first few values and counts the others.
func clipped(values []string, otherwise string) string {
	if len(values) == 0 {
		return otherwise
	}
	if len(values) <= shownAtMost {
		return strings.Join(values, ",")
	}
	return fmt.Sprintf("%s + %d more...", strings.Join(values[:shownAtMost], ","), len(values)-shownAtMost)
}
