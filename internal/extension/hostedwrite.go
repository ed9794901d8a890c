package extension

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/json"

	"portico.dev/internal/respond"
)

// abilities are what a provider can do besides listing.
type abilities struct{ create, update, delete, connect bool }

// writer is the part of a source that changes things. A method is only called when can says so.
type writer interface {
	can() abilities
	// decode reads one object. unknown are fields that the type does not have or that came twice.
	decode(data []byte, media string) (o object, unknown []error, err error)
	create(ctx context.Context, q Query, o object) (object, error)
	update(ctx context.Context, q Query, o object) (object, error)
	delete(ctx context.Context, q Query) (object, error)
	connect(ctx context.Context, q Query, w http.ResponseWriter, r *http.Request)
}

func (h hosted[T, P]) can() abilities {
	var a abilities
	_, a.create = h.provider.(Creator[T])
	_, a.update = h.provider.(Updater[T])
	_, a.delete = h.provider.(Deleter[T])
	_, a.connect = h.provider.(Connecter[T])
	return a
}

// unmarshaler is the generated protobuf code of a Kubernetes type.
type unmarshaler interface{ Unmarshal(data []byte) error }

func (h hosted[T, P]) decode(data []byte, media string) (object, []error, error) {
	var item T
	p := P(&item)
	if media == respond.MediaProtobuf {
		m, ok := any(p).(unmarshaler)
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

func (h hosted[T, P]) create(ctx context.Context, q Query, o object) (object, error) {
	made, err := h.provider.(Creator[T]).Create(ctx, q, *o.(P))
	return h.written(made, q, err)
}

func (h hosted[T, P]) update(ctx context.Context, q Query, o object) (object, error) {
	made, err := h.provider.(Updater[T]).Update(ctx, q, *o.(P))
	return h.written(made, q, err)
}

func (h hosted[T, P]) delete(ctx context.Context, q Query) (object, error) {
	gone, err := h.provider.(Deleter[T]).Delete(ctx, q)
	return h.written(gone, q, err)
}

func (h hosted[T, P]) written(item T, q Query, err error) (object, error) {
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

func (h hosted[T, P]) connect(ctx context.Context, q Query, w http.ResponseWriter, r *http.Request) {
	h.provider.(Connecter[T]).Connect(ctx, q, w, r)
}
