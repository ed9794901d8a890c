package columns

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func YesNo(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "boolean", Description: description}
}
