package kinds_test

import (
	"reflect"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/kinds/cluster"
	"portico.dev/internal/coreapi/kinds/events"
	"portico.dev/internal/coreapi/selectable"
)

// selectableKind is a kind with specific selectable fields.
type selectableKind struct {
	gvk    schema.GroupVersionKind
	object runtime.Object
	fields *selectable.Fields
}

func selectableKinds() []selectableKind {
	all := []selectableKind{{eventsv1.SchemeGroupVersion.WithKind("Event"), &eventsv1.Event{}, events.Fields()}}
	for _, g := range cluster.All() {
		for _, r := range g.Resources {
			if r.Fields != nil {
				name := reflect.TypeOf(r.Object).Elem().Name()
				all = append(all, selectableKind{g.Version.WithKind(name), r.Object, r.Fields})
			}
		}
	}
	return all
}

func registerAll(scheme *runtime.Scheme) error {
	for _, kind := range selectableKinds() {
		if err := kind.fields.Register(scheme, kind.gvk); err != nil {
			return err
		}
	}
	return nil
}

func attrsOf(obj runtime.Object) (labels.Set, fields.Set, error) {
	for _, kind := range selectableKinds() {
		if reflect.TypeOf(kind.object) == reflect.TypeOf(obj) {
			return kind.fields.Attrs(obj)
		}
	}
	return (*selectable.Fields)(nil).Attrs(obj)
}
