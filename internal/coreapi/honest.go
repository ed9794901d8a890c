package coreapi

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// margin is the part of a request's time that is left to say that etcd did not answer, at most longestMargin. Without
	// it the library's own answer, that the request took too long, comes first and does not say why.
	margin        = 0.05
	longestMargin = time.Second
)

// honest says what is wrong with etcd in words and codes that clients understand, where the library passes on etcd's own
// error as a 500 of an unknown reason. It stands between a watch cache and etcd, so that both hear the same.
type honest struct {
	storage.Interface
}

// inTime ends a little before the request does.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Duration(margin * float64(time.Until(deadline)))
	return context.WithDeadline(ctx, deadline.Add(-min(left, longestMargin)))
}

func (h honest) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return troubleOfWrite(h.Interface.Create(ctx, key, obj, out, ttl))
}

func (h honest) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return troubleOfWrite(h.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts))
}

func (h honest) GuaranteedUpdate(ctx context.Context, key string, into runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return troubleOfWrite(h.Interface.GuaranteedUpdate(ctx, key, into, ignoreNotFound, preconditions, update, cached))
}

func (h honest) Get(ctx context.Context, key string, opts storage.GetOptions, into runtime.Object) error {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return troubleOfRead(h.Interface.Get(ctx, key, opts, into))
}

func (h honest) GetList(ctx context.Context, key string, opts storage.ListOptions, into runtime.Object) error {
	ctx, cancel := inTime(ctx)
	defer cancel()
	return troubleOfRead(h.Interface.GetList(ctx, key, opts, into))
}

func (h honest) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	version, err := h.Interface.GetCurrentResourceVersion(ctx)
	return version, troubleOfRead(err)
}
