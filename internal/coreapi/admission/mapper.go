package admission

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MapperFunc is a RESTMapper that is looked up anew for each question: kinds come and go while the server runs.
type MapperFunc func() meta.RESTMapper

var _ meta.RESTMapper = MapperFunc(nil)

func (f MapperFunc) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return f().KindFor(resource)
}

func (f MapperFunc) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return f().KindsFor(resource)
}

func (f MapperFunc) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return f().ResourceFor(input)
}

func (f MapperFunc) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return f().ResourcesFor(input)
}

func (f MapperFunc) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return f().RESTMapping(gk, versions...)
}

func (f MapperFunc) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return f().RESTMappings(gk, versions...)
}

func (f MapperFunc) ResourceSingularizer(resource string) (string, error) {
	return f().ResourceSingularizer(resource)
}
