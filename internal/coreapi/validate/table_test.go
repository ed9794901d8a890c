package validate_test

import (
	"fmt"
	"reflect"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/kinds/events"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

// resourceOf finds the entry of the kind of obj.
func resourceOf(obj runtime.Object) (registry.Resource, bool) {
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			if reflect.TypeOf(r.Object) == reflect.TypeOf(obj) {
				return r, true
			}
		}
	}
	return registry.Resource{}, false
}

func rulesOf(obj runtime.Object) validate.Rules {
	if _, is := obj.(*eventsv1.Event); is {
		return events.Rules()
	}
	r, known := resourceOf(obj)
	if !known {
		panic(fmt.Sprintf("no validation rules for %T", obj))
	}
	return r.Rules
}

func createErrors(obj runtime.Object) field.ErrorList      { return rulesOf(obj).Create(obj) }
func updateErrors(obj, old runtime.Object) field.ErrorList { return rulesOf(obj).Update(obj, old) }
func statusErrors(obj, old runtime.Object) field.ErrorList { return rulesOf(obj).Status(obj, old) }

func warningsOf(obj runtime.Object) []string {
	if r, _ := resourceOf(obj); r.Warnings != nil {
		return r.Warnings(obj)
	}
	return nil
}

func registerDefaults(scheme *runtime.Scheme) {
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			if r.Defaults != nil {
				defaults.Register(scheme, r.Object, r.List, r.Defaults)
			}
		}
	}
}
