package coreapi

import (
	"context"

	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// ownStream is the storage behind one watch cache. Its watch of etcd, and its requests for progress, have a stream of
// their own.
//
// A consistent read waits until the cache has seen the revision of the moment, which etcd tells it on request: on all of
// a stream, and only when no watch of the stream begins at a revision that is still to come (progressIfSync in etcd's
// watchable_store.go). All of our watches are of one client, so they would share one stream. Then a cache that was
// filled last, and watches from the next revision on, keeps the others from hearing anything until somebody writes; at a
// quiet start nobody does, and informers wait for ever. Upstream has a client for each resource.
type ownStream struct {
	storage.Interface
	of string // the resource
}

// streamHeader is what etcd's client tells streams apart by: the metadata of the context as a whole.
const streamHeader = "portico-cache"

func (o ownStream) on(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, streamHeader, o.of)
}

func (o ownStream) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return o.Interface.Watch(o.on(ctx), key, opts)
}

func (o ownStream) RequestWatchProgress(ctx context.Context) error {
	return o.Interface.RequestWatchProgress(o.on(ctx))
}

// EnableResourceSizeEstimation estimates nothing. The library would keep the size of each object beside its key, look at all
// keys every minute, and tell its own fairness how large a list will be, which is not ours.
func (o ownStream) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }
