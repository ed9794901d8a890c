package coreapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"portico.dev/internal/coreapi/listcache"
	"portico.dev/internal/coreapi/registry"
)

// nothing matches no object.
var nothing = storage.SelectionPredicate{
	Label: labels.Nothing(), Field: fields.Everything(),
	GetAttrs: func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil },
}

const (
	// deleteWorkers delete the members of a collection side by side.
	deleteWorkers = 4
)

// storageFactory holds the storage of every resource. All of it stands on one etcd client: the stock library opens one
// connection per resource, which cost 45 MiB and half of the start-up time.
type storageFactory struct {
	client    *kubernetes.Client
	prefix    string
	codec     *codecs
	config    Storage
	compactor interface {
		etcd3.Compactor
		Stop()
	}
	compactRevision *compactRevision
	clock           *cacheClock
	lists           *listcache.Cache
	definitions     apiextensionslisters.CustomResourceDefinitionLister // set before custom resources are stored
	background      sync.WaitGroup
	stop            context.CancelFunc

	// later reports whether the start is not to wait for the cache of a directory. Nil: it waits for all.
	later func(directory string) bool

	mu    sync.Mutex
	fills []cacheFill // the caches that the start waits for
	open  map[*sync.Once]func()
}

// newStorageFactory starts the compaction of old versions, and has watch caches forget them; close ends both.
func newStorageFactory(client *kubernetes.Client, prefix string, codec *codecs, config Storage) *storageFactory {
	learnEtcdFeatures(client)
	s := &storageFactory{
		client: fenced(client), prefix: prefix, codec: codec, config: config, open: map[*sync.Once]func(){}, clock: newCacheClock(),
		lists:     listcache.New(),
		compactor: etcd3.NewCompactor(client.Client, config.CompactionInterval, clock.RealClock{}, nil),
	}
	s.compactRevision = newCompactRevision(s.compactor, client.KV)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.background.Go(func() { s.compactRevision.run(ctx) })
	s.background.Go(func() { s.lists.Run(ctx) })
	return s
}

// options are what the library's registry asks for when it builds the store of r, an entry of the group at version.
func (s *storageFactory) options(version schema.GroupVersion, r *registry.Resource) generic.RESTOptions {
	o := s.plain(schema.GroupResource{Group: version.Group, Resource: r.Name}, s.codec.storage(version), r.StorageDirectory())
	o.StorageConfig.EncodeVersioner = version
	if !r.WatchCache {
		o.Decorator = s.uncached
	}
	return o
}

// plain is a resource with a watch cache that the start waits for.
func (s *storageFactory) plain(resource schema.GroupResource, codec runtime.Codec, directory string) generic.RESTOptions {
	return generic.RESTOptions{
		StorageConfig:           storagebackend.NewDefaultConfig(s.prefix, codec).ForResource(resource),
		Decorator:               s.cached,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: deleteWorkers,
		ResourcePrefix:          "/" + directory,
	}
}

// uncached is a generic.StorageDecorator.
func (s *storageFactory) uncached(
	config *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	raw, closeRaw, err := s.openRaw(config, prefix, newFunc, newListFunc)
	if err != nil {
		return nil, nil, fmt.Errorf("open storage of %s: %w", config.GroupResource, err)
	}
	return uncachedStorage{raw}, s.owned(closeRaw), nil
}

// cached is a generic.StorageDecorator.
func (s *storageFactory) cached(
	config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc,
	triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	front, raw, stop, err := s.openCache(config, prefix, keyOf, newFunc, newListFunc, attributes, triggers, indexers)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fills = append(s.fills, cacheFill{
		of: config.GroupResource, directory: strings.Trim(prefix, "/"), ready: front.ReadinessCheck,
		list: func(ctx context.Context) error { return readThrough(ctx, raw, prefix, newListFunc) },
		revision: func(ctx context.Context) (string, error) {
			list := newListFunc()
			err := front.GetList(ctx, prefix, storage.ListOptions{ResourceVersion: "0", Predicate: nothing, Recursive: true}, list)
			if err != nil {
				return "", err
			}
			accessor, err := meta.ListAccessor(list)
			if err != nil {
				return "", err
			}
			return accessor.GetResourceVersion(), nil
		},
	})
	return front, stop, nil
}

// diagnosedAtOnce is how many objects are in memory at once while all of a kind are read to find out which cannot be.
const diagnosedAtOnce = 500

// readThrough reads all objects below a prefix from etcd, a page after the other, and keeps none: the cache, which is being filled from the
// same objects, has them too.
func readThrough(ctx context.Context, raw storage.Interface, prefix string, newListFunc func() runtime.Object) error {
	page := storage.Everything
	page.Limit = diagnosedAtOnce
	for {
		list := newListFunc()
		err := raw.GetList(ctx, prefix, storage.ListOptions{Predicate: page, Recursive: true}, list)
		switch {
		case apierrors.IsResourceExpired(err):
			return nil // it took minutes, and what was read could be
		case err != nil:
			return err
		}
		accessor, err := meta.ListAccessor(list)
		if err != nil {
			return err
		}
		if page.Continue = accessor.GetContinue(); page.Continue == "" {
			return nil
		}
	}
}

func (s *storageFactory) openCache(
	config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc,
	triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (*cacher.CacheDelegator, storage.Interface, func(), error) {
	raw, closeRaw, err := s.openRaw(config, prefix, newFunc, newListFunc)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("open storage of %s: %w", config.GroupResource, err)
	}
	raw = ownStream{raw, config.GroupResource.String()}
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
		Clock:               s.clock,
	})
	if err != nil {
		closeRaw()
		return nil, nil, nil, fmt.Errorf("watch cache of %s: %w", config.GroupResource, err)
	}
	front := cacher.NewCacheDelegator(watchCache, raw)
	return front, raw, s.owned(func() {
		front.Stop()
		watchCache.Stop()
		closeRaw()
	}), nil
}

func (s *storageFactory) openRaw(config *storagebackend.ConfigForResource, prefix string, newFunc, newListFunc func() runtime.Object) (storage.Interface, func(), error) {
	versioner := storage.APIObjectVersioner{}
	// The two wrappers let a user delete an object that can no longer be decoded (KEP-3926), which otherwise blocks
	// every list of its kind.
	transformer := etcd3.WithCorruptObjErrorHandlingTransformer(s.config.Encryption.TransformerFor(config.GroupResource))
	decoder := etcd3.NewDefaultDecoder(config.Codec, versioner)
	if shared, ok := config.Codec.(interningCodec); ok { // not that of custom resources
		decoder = sharingDecoder{decoder, shared}
	}
	decoder = etcd3.WithCorruptObjErrorHandlingDecoder(decoder)
	raw, err := etcd3.New(s.conditional(config.GroupResource, config.Prefix, prefix), s.compactRevision, config.Codec, newFunc, newListFunc, config.Prefix, prefix,
		config.GroupResource, transformer, config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		return nil, nil, err
	}
	return etcdErrorMapper{etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, config.GroupResource)}, raw.Close, nil
}

// owned keeps a closer until it has run, and makes it run once: the library calls it again for every subresource that
// shares the storage, and for storages of custom resources long before the factory is closed.
func (s *storageFactory) owned(close func()) func() {
	once := &sync.Once{}
	closer := func() {
		once.Do(close)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, once)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[once] = closer
	return closer
}

// close stops caches and compaction and waits for them.
func (s *storageFactory) close() {
	s.mu.Lock()
	closers := slices.Collect(maps.Values(s.open))
	s.mu.Unlock()
	var closing sync.WaitGroup
	for _, close := range closers {
		closing.Go(close)
	}
	closing.Wait()
	s.clock.stop()
	s.stop()
	s.background.Wait()
	s.compactor.Stop()
}

// The library asks each endpoint of a client what its etcd can do, and remembers the answer in a variable of the
// process. The client of the embedded etcd has no endpoints, so it would never know that watch progress can be
// requested, and every consistent read would go past the watch cache. There is no other way to tell the library.

// etcdFeatures knows what the embedded etcd can do, and asks the library about external ones.
type etcdFeatures struct {
	etcdfeature.FeatureSupportChecker             // the library's
	embedded, external                atomic.Bool // seen in this process
}

var installEtcdFeatures = sync.OnceValue(func() *etcdFeatures {
	features := &etcdFeatures{FeatureSupportChecker: etcdfeature.DefaultFeatureSupportChecker}
	etcdfeature.DefaultFeatureSupportChecker = features
	return features
})

// learnEtcdFeatures must be called before client is given to the library.
func learnEtcdFeatures(client *kubernetes.Client) {
	features := installEtcdFeatures()
	if len(client.Endpoints()) == 0 {
		features.embedded.Store(true)
	} else {
		features.external.Store(true)
	}
}

func (f *etcdFeatures) Supports(feature storage.Feature) bool {
	switch {
	case feature == storage.RequestWatchProgress && !f.external.Load():
		return true
	case feature == storage.RangeStream && f.embedded.Load():
		return false // etcd's in-process adapter does not have the call; lists are paged instead
	}
	return f.FeatureSupportChecker.Supports(feature)
}
