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

// nothing selects no object.
var nothing = storage.SelectionPredicate{
	Label: labels.Nothing(), Field: fields.Everything(),
	GetAttrs: func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil },
}

const (
	// deleteWorkers is the number of concurrent deletions of a deletecollection.
	deleteWorkers = 4
)

// storageFactory creates the storage of every resource. All storages share one etcd client: k8s.io/apiserver's default opens
// one connection per resource, which took 45 MiB and half of the startup time.
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

	// later reports whether the startup does not wait for the cache of a directory. If it is nil, the startup waits for all
	// caches.
	later func(directory string) bool

	mu    sync.Mutex
	fills []cacheFill // the caches that the startup waits for
	open  map[*sync.Once]func()
}

// newStorageFactory starts compaction and the update of the compact revision of watch caches. close stops both.
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

// options returns the RESTOptions for the storage of r, a resource of the group at version.
func (s *storageFactory) options(version schema.GroupVersion, r *registry.Resource) generic.RESTOptions {
	o := s.plain(schema.GroupResource{Group: version.Group, Resource: r.Name}, s.codec.storage(version), r.StorageDirectory())
	o.StorageConfig.EncodeVersioner = version
	if !r.WatchCache {
		o.Decorator = s.uncached
	}
	return o
}

// plain returns options with a watch cache that the startup waits for.
func (s *storageFactory) plain(resource schema.GroupResource, codec runtime.Codec, directory string) generic.RESTOptions {
	return generic.RESTOptions{
		StorageConfig:           storagebackend.NewDefaultConfig(s.prefix, codec).ForResource(resource),
		Decorator:               s.cached,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: deleteWorkers,
		ResourcePrefix:          "/" + directory,
	}
}

// uncached implements generic.StorageDecorator.
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

// cached implements generic.StorageDecorator.
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
		resource: config.GroupResource, directory: strings.Trim(prefix, "/"), ready: front.ReadinessCheck,
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

// diagnosedAtOnce is the page size of readThrough.
const diagnosedAtOnce = 500

// readThrough reads all objects below a prefix from etcd to find one that cannot be decoded. It reads page by page and keeps no
// object, because the cache holds the same objects while it fills.
func readThrough(ctx context.Context, raw storage.Interface, prefix string, newListFunc func() runtime.Object) error {
	page := storage.Everything
	page.Limit = diagnosedAtOnce
	for {
		list := newListFunc()
		err := raw.GetList(ctx, prefix, storage.ListOptions{Predicate: page, Recursive: true}, list)
		switch {
		case apierrors.IsResourceExpired(err):
			return nil // reading took minutes, and every object so far could be decoded
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
	// These wrappers let a user delete an object that can no longer be decoded (KEP-3926). Otherwise it would block every list
	// of its kind.
	transformer := etcd3.WithCorruptObjErrorHandlingTransformer(s.config.Encryption.TransformerFor(config.GroupResource))
	decoder := etcd3.NewDefaultDecoder(config.Codec, versioner)
	if shared, ok := config.Codec.(interningCodec); ok { // not the codec of custom resources
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

// owned keeps a closer until it has run, and runs it once: k8s.io/apiserver calls it again for every subresource that shares
// the storage, and for storages of custom resources long before the factory is closed.
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

// k8s.io/apiserver queries each endpoint of a client for etcd's features and stores the result in a global variable. The client
// of the embedded etcd has no endpoints, so the support for watch progress requests would remain unknown, and every consistent
// read would bypass the watch cache. k8s.io/apiserver provides no other way to set it.

// etcdFeatures reports the features of the embedded etcd and delegates to k8s.io/apiserver for external ones.
type etcdFeatures struct {
	etcdfeature.FeatureSupportChecker             // k8s.io/apiserver's
	embedded, external                atomic.Bool // seen in this process
}

var installEtcdFeatures = sync.OnceValue(func() *etcdFeatures {
	features := &etcdFeatures{FeatureSupportChecker: etcdfeature.DefaultFeatureSupportChecker}
	etcdfeature.DefaultFeatureSupportChecker = features
	return features
})

// learnEtcdFeatures must be called before client is used for a storage.
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
		return false // etcd's in-process adapter does not implement the call; lists are paged instead
	}
	return f.FeatureSupportChecker.Supports(feature)
}
