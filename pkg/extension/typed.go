package extension

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"

	"portico.dev/internal/respond"
)

// object is one object of any hosted type. It is shared and immutable after its source has returned it.
type object interface {
	metav1.Object
	GetObjectKind() schema.ObjectKind
}

// source is a provider without its type parameter, for the rest of the host.
type source interface {
	list(ctx context.Context, q Query) ([]object, error)
	get(ctx context.Context, q Query) (object, error)
	// stamped returns a copy of o with resourceVersion.
	stamped(o object, resourceVersion string) object
	// blank returns an empty object, for bookmarks.
	blank() object
	columns(items []object) []metav1.TableColumnDefinition
	cells(items []object) [][]any
	field(o object, label string) string
	fieldLabels() []string
	goType() reflect.Type
	writer
}

// typedResource implements source for a typed provider.
type typedResource[T any, P Object[T]] struct {
	definition Definition[T]
	provider   Lister[T]
}

func (h typedResource[T, P]) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: h.definition.Group, Version: h.definition.Version, Kind: h.definition.Kind}
}

// own returns a copy of a provider's object with its kind set. The copy is shallow, so only the top-level fields may be
// modified.
func (h typedResource[T, P]) own(item T) object {
	p := P(&item)
	p.GetObjectKind().SetGroupVersionKind(h.gvk())
	return p
}

func (h typedResource[T, P]) list(ctx context.Context, q Query) ([]object, error) {
	items, err := h.provider.List(ctx, q)
	if err != nil {
		return nil, err
	}
	out := make([]object, len(items))
	for i := range items {
		out[i] = h.own(items[i])
	}
	return out, nil
}

func (h typedResource[T, P]) get(ctx context.Context, q Query) (object, error) {
	if getter, ok := h.provider.(Getter[T]); ok {
		item, err := getter.Get(ctx, q)
		if errors.Is(err, ErrNotFound) {
			return nil, h.notFound(q.Name)
		}
		if err != nil {
			return nil, err
		}
		return h.own(item), nil
	}
	items, err := h.list(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if item.GetName() == q.Name && item.GetNamespace() == q.Namespace {
			return item, nil
		}
	}
	return nil, h.notFound(q.Name)
}

func (h typedResource[T, P]) notFound(name string) error {
	return apierrors.NewNotFound(h.groupResource(), name)
}

func (h typedResource[T, P]) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: h.definition.Group, Resource: h.definition.Plural}
}

func (h typedResource[T, P]) stamped(o object, resourceVersion string) object {
	c := *o.(P)
	p := P(&c)
	p.SetResourceVersion(resourceVersion)
	return p
}

func (h typedResource[T, P]) blank() object {
	var zero T
	return h.own(zero)
}

func (h typedResource[T, P]) shape(items []object) []Column[T] {
	if tabler, ok := h.provider.(Tabler[T]); ok {
		typed := make([]T, len(items))
		for i := range items {
			typed[i] = *items[i].(P)
		}
		return tabler.Columns(typed)
	}
	if len(h.definition.Columns) > 0 {
		return h.definition.Columns
	}
	return []Column[T]{
		{Name: "Name", Type: "string", Format: "name", Description: "Name of the object.",
			Value: func(o *T) any { return P(o).GetName() }},
		{Name: "Created At", Type: "date", Description: "When the object came to be.",
			Value: func(o *T) any { return P(o).GetCreationTimestamp() }},
	}
}

func (h typedResource[T, P]) columns(items []object) []metav1.TableColumnDefinition {
	shape := h.shape(items)
	out := make([]metav1.TableColumnDefinition, len(shape))
	for i, c := range shape {
		out[i] = metav1.TableColumnDefinition{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority,
		}
	}
	return out
}

func (h typedResource[T, P]) cells(items []object) [][]any {
	shape := h.shape(items)
	rows := make([][]any, len(items))
	for i, item := range items {
		rows[i] = make([]any, len(shape))
		for j, c := range shape {
			rows[i][j] = c.Value(item.(P))
		}
	}
	return rows
}

func (h typedResource[T, P]) field(o object, label string) string {
	switch label {
	case "metadata.name":
		return o.GetName()
	case "metadata.namespace":
		return o.GetNamespace()
	}
	return h.definition.Fields[label](o.(P))
}

func (h typedResource[T, P]) fieldLabels() []string {
	return slices.Collect(maps.Keys(h.definition.Fields))
}

func (h typedResource[T, P]) goType() reflect.Type { return reflect.TypeFor[T]() }

// writeVerbs are the optional operations of a provider.
type writeVerbs struct{ create, update, delete, connect bool }

// writer is the part of a source that writes. A method is only called if can reports its operation.
type writer interface {
	can() writeVerbs
	// decode decodes one object. unknown reports unknown and duplicate fields.
	decode(data []byte, media string) (o object, unknown []error, err error)
	create(ctx context.Context, q Query, o object) (object, error)
	update(ctx context.Context, q Query, o object) (object, error)
	delete(ctx context.Context, q Query) (object, error)
	connect(ctx context.Context, q Query, w http.ResponseWriter, r *http.Request)
}

func (h typedResource[T, P]) can() writeVerbs {
	var a writeVerbs
	_, a.create = h.provider.(Creator[T])
	_, a.update = h.provider.(Updater[T])
	_, a.delete = h.provider.(Deleter[T])
	_, a.connect = h.provider.(Connecter[T])
	return a
}

// jsonUnmarshaler is the generated protobuf decoder of a Kubernetes type.
type jsonUnmarshaler interface{ Unmarshal(data []byte) error }

func (h typedResource[T, P]) decode(data []byte, media string) (object, []error, error) {
	var item T
	p := P(&item)
	if media == respond.MediaProtobuf {
		m, ok := any(p).(jsonUnmarshaler)
		if !ok {
			return nil, nil, fmt.Errorf("%s has no protobuf form", reflect.TypeFor[T]())
		}
		kind, raw, err := openEnvelope(data)
		if err != nil {
			return nil, nil, err
		}
		if err := m.Unmarshal(raw); err != nil {
			return nil, nil, err
		}
		p.GetObjectKind().SetGroupVersionKind(kind)
		return p, nil, nil
	}
	unknown, err := json.UnmarshalStrict(data, p)
	return p, unknown, err
}

func (h typedResource[T, P]) create(ctx context.Context, q Query, o object) (object, error) {
	made, err := h.provider.(Creator[T]).Create(ctx, q, *o.(P))
	return h.written(made, q, err)
}

func (h typedResource[T, P]) update(ctx context.Context, q Query, o object) (object, error) {
	made, err := h.provider.(Updater[T]).Update(ctx, q, *o.(P))
	return h.written(made, q, err)
}

func (h typedResource[T, P]) delete(ctx context.Context, q Query) (object, error) {
	gone, err := h.provider.(Deleter[T]).Delete(ctx, q)
	return h.written(gone, q, err)
}

func (h typedResource[T, P]) written(item T, q Query, err error) (object, error) {
	switch {
	case err == nil:
		return h.own(item), nil
	case errors.Is(err, ErrNotFound):
		return nil, h.notFound(q.Name)
	case errors.Is(err, ErrExists):
		return nil, apierrors.NewAlreadyExists(h.groupResource(), q.Name)
	}
	return nil, err
}

func (h typedResource[T, P]) connect(ctx context.Context, q Query, w http.ResponseWriter, r *http.Request) {
	h.provider.(Connecter[T]).Connect(ctx, q, w, r)
}
