package coreapi

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// cachePatience is how long a list or a watch waits for a cache that is being filled for the first time. A cache that
// takes longer cannot be filled, because a conversion webhook is down, say, and its error is the answer.
const cachePatience = 2 * time.Second

// patient is a storage whose watch cache was made by the request in hand. The library answers a watch on an unfilled
// cache with 429 and "come back in a second"; the cache is full within milliseconds.
type patient struct {
	storage.Interface
	filled atomic.Bool
}

// cachedLater is a generic.StorageDecorator.
func (s *storageFactory) cachedLater(
	config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc,
	triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	front, _, stop, err := s.openCache(config, prefix, keyOf, newFunc, newListFunc, attributes, triggers, indexers)
	if err != nil {
		return nil, nil, err
	}
	return &patient{Interface: front}, stop, nil
}

func (p *patient) await(ctx context.Context) {
	if p.filled.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cachePatience)
	defer cancel()
	tick := time.NewTicker(cachePoll)
	defer tick.Stop()
	for p.ReadinessCheck() != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	p.filled.Store(true)
}

func (p *patient) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	p.await(ctx)
	return p.Interface.Watch(ctx, key, opts)
}

func (p *patient) GetList(ctx context.Context, key string, opts storage.ListOptions, into runtime.Object) error {
	p.await(ctx)
	return p.Interface.GetList(ctx, key, opts, into)
}
