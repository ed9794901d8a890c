package coreapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// deleteWorkers delete the members of a collection side by side.
	deleteWorkers = 4
	// cachePoll is how often the caches are asked whether they are full, during start-up only.
	cachePoll = 2 * time.Millisecond
)

// shelf holds the storage of every resource. All of it stands on one etcd client: the stock library opens one
// connection per resource, which cost 45 MiB and half of the start-up time.
type shelf struct {
	client    *kubernetes.Client
	prefix    string
	codec     *codecs
	compactor interface {
		etcd3.Compactor
		Stop()
	}

	mu      sync.Mutex
	waiting []func() error // readiness of each cache
	closers []func()
}

// newShelf starts the compaction of old versions; close ends it.
func newShelf(client *kubernetes.Client, prefix string, codec *codecs) *shelf {
	learnEtcdFeatures(client)
	return &shelf{
		client: client, prefix: prefix, codec: codec,
		compactor: etcd3.NewCompactor(client.Client, storagebackend.DefaultCompactInterval, clock.RealClock{}, nil),
	}
}

// options are what the library's registry asks for when it builds the store of r, an entry of the group at version.
func (s *shelf) options(version schema.GroupVersion, r *resource) generic.RESTOptions {
	resource := schema.GroupResource{Group: version.Group, Resource: r.name}
	config := storagebackend.NewDefaultConfig(s.prefix, s.codec.storage(version)).ForResource(resource)
	config.EncodeVersioner = version
	return generic.RESTOptions{
		StorageConfig:           config,
		Decorator:               s.decorator(r.cached),
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: deleteWorkers,
		ResourcePrefix:          "/" + r.storageDirectory(),
	}
}

func (s *shelf) decorator(cached bool) generic.StorageDecorator {
	return func(
		config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc,
		triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		raw, closeRaw, err := s.openRaw(config, prefix, newFunc, newListFunc)
		if err != nil {
			return nil, nil, fmt.Errorf("open storage of %s: %w", config.GroupResource, err)
		}
		if !cached {
			return raw, s.owned(closeRaw), nil
		}
		watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage:             raw,
			Versioner:           storage.APIObjectVersioner{},
			GroupResource:       config.GroupResource,
			EventsHistoryWindow: config.EventsHistoryWindow,
			ResourcePrefix:      prefix,
			KeyFunc:             keyOf,
			NewFunc:             newFunc,
			NewListFunc:         newListFunc,
			GetAttrsFunc:        attributes,
			IndexerFuncs:        triggers,
			Indexers:            indexers,
			Codec:               config.Codec,
		})
		if err != nil {
			closeRaw()
			return nil, nil, fmt.Errorf("watch cache of %s: %w", config.GroupResource, err)
		}
		front := cacher.NewCacheDelegator(watchCache, raw)
		s.mu.Lock()
		s.waiting = append(s.waiting, func() error {
			if err := front.ReadinessCheck(); err != nil {
				return fmt.Errorf("watch cache of %s: %w", config.GroupResource, err)
			}
			return nil
		})
		s.mu.Unlock()
		return front, s.owned(func() {
			front.Stop()
			watchCache.Stop()
			closeRaw()
		}), nil
	}
}

func (s *shelf) openRaw(config *storagebackend.ConfigForResource, prefix string, newFunc, newListFunc func() runtime.Object) (storage.Interface, func(), error) {
	versioner := storage.APIObjectVersioner{}
	// The two wrappers let a user delete an object that can no longer be decoded (KEP-3926), which otherwise blocks
	// every list of its kind.
	transformer := etcd3.WithCorruptObjErrorHandlingTransformer(identity.NewEncryptCheckTransformer())
	decoder := etcd3.WithCorruptObjErrorHandlingDecoder(etcd3.NewDefaultDecoder(config.Codec, versioner))
	raw, err := etcd3.New(s.client, s.compactor, config.Codec, newFunc, newListFunc, config.Prefix, prefix,
		config.GroupResource, transformer, config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		return nil, nil, err
	}
	return etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, config.GroupResource), raw.Close, nil
}

// owned keeps a closer, and makes it run once: the library calls it again for every subresource that shares the storage.
func (s *shelf) owned(close func()) func() {
	once := sync.OnceFunc(close)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, once)
	return once
}

// awaitCaches returns when every cache is full, or the first that is not when the time is over.
func (s *shelf) awaitCaches(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(cachePoll)
	defer tick.Stop()
	for _, check := range s.waiting {
		for err := check(); err != nil; err = check() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return err
			}
		}
	}
	return nil
}

// close stops caches and compaction and waits for them.
func (s *shelf) close() {
	var closing sync.WaitGroup
	for _, close := range s.closers {
		closing.Go(close)
	}
	closing.Wait()
	s.compactor.Stop()
}
