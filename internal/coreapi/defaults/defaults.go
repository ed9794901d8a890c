// Package defaults sets missing fields in objects of the local groups to kube-apiserver's default values.
//
// k8s.io/api marks only some of them. The others are part of kube-apiserver, and missing values cause errors in distant places:
// a policy without a namespace selector fails every request, a Service port without a protocol merges incorrectly.
//
// Defaulting runs for every decoded object, from clients and from storage. So it must be idempotent and cheap, and must never
// allocate a value that another object could have (a cluster IP, a node port).
package defaults

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Register adds the defaulting functions of a kind and of its list.
func Register(scheme *runtime.Scheme, object, list runtime.Object, fill func(runtime.Object)) {
	scheme.AddTypeDefaultingFunc(object, func(obj any) { fill(obj.(runtime.Object)) })
	scheme.AddTypeDefaultingFunc(list, func(obj any) {
		// EachListItem fails only for a type that is not a list, or if the callback fails, which it never does.
		_ = meta.EachListItem(obj.(runtime.Object), func(item runtime.Object) error {
			fill(item)
			return nil
		})
	})
}

// Of returns a defaulting function for a function of the kind's Go type. The scheme calls it only with objects of that type.
func Of[T runtime.Object](fill func(T)) func(runtime.Object) {
	return func(obj runtime.Object) { fill(obj.(T)) }
}

// Set sets a field to its default if it is empty.
func Set[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// Point sets an optional field to its default if it is nil. An explicit zero remains.
func Point[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

const (
	RevisionsKept         = 10
	ProgressSeconds       = 600
	JobRetries            = 6
	SuccessfulJobs        = 3
	FailedJobs            = 1
	RolloutShare          = "25%"
	ClaimKind, ClaimGroup = "PersistentVolumeClaim", "v1"
)

// Milli rounds quantities up to thousandths, the highest precision of kube-apiserver.
func Milli(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}
