package validate

import (
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func PortOrName(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.String {
		return Invalid(path, port.StrVal, utilvalidation.IsValidPortName(port.StrVal))
	}
	return PortNumber(port.IntVal, path)
}

func Qualified(value string, path *field.Path) field.ErrorList {
	return Invalid(path, value, utilvalidation.IsQualifiedName(value))
}
