package coreapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/coreapi/crds"
	"portico.dev/internal/coreapi/listcache"
	"portico.dev/internal/run"
	"portico.dev/internal/store"
)

const (
	// cachePoll is the poll interval while a cache is filled, at startup and for lazyCache.
	cachePoll = 2 * time.Millisecond
	// caughtUpPoll is the poll interval for cache revisions after etcd is back, while caches still contain a state snapshot.
	caughtUpPoll = 50 * time.Millisecond
	// diagnoseAfter is the time after which the objects of a cache that is not full are listed from etcd to find the cause.
	diagnoseAfter = 5 * time.Second
)

// cacheFill is a watch cache that the startup waits for.
type cacheFill struct {
	resource  schema.GroupResource
	directory string // storage directory of the objects
	ready     func() error
	// list reads the same objects from etcd.
	list func(context.Context) error
	// revision returns the revision of the cache.
	revision func(context.Context) (string, error)
}

// awaitCaches waits until every cache is full, and returns an error for the first one that is not full at the timeout. It does
// not wait for a cache with an object that cannot be decrypted or decoded, because such a cache never fills.
func (s *storageFactory) awaitCaches(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, f := range s.fills {
		if s.later != nil && s.later(f.directory) {
			continue
		}
		if err := f.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitEtcd waits until every cache contains the state of etcd and not a state snapshot.
func (s *storageFactory) awaitEtcd(ctx context.Context) error {
	tick := time.NewTicker(caughtUpPoll)
	defer tick.Stop()
	for _, f := range s.fills {
		for !f.isOfEtcd(ctx) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func (f *cacheFill) isOfEtcd(ctx context.Context) bool {
	if f.ready() != nil {
		return false
	}
	revision, err := f.revision(ctx)
	return err == nil && revision != "" && revision != "0" && !store.IsStateRevision(revision)
}

func (f *cacheFill) await(ctx context.Context) error {
	tick := time.NewTicker(cachePoll)
	defer tick.Stop()
	why := time.NewTimer(diagnoseAfter)
	defer why.Stop()
	for {
		err := f.ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-why.C:
			if cause := f.list(ctx); cause != nil && ctx.Err() == nil && !isFailureOfEtcd(cause) {
				return fmt.Errorf("%s cannot be read from etcd: %w; bring back the key that they are encrypted with, or delete what is named here from etcd", f.resource, cause)
			}
		case <-ctx.Done():
			return fmt.Errorf("watch cache of %s: %w", f.resource, err)
		}
	}
}

// stopUnstarted stops controllers that will not run: the queues of apiextensions-apiserver's controllers are active before Run.
func stopUnstarted(d *crds.Definitions) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Run(ended) // returns at once without an error
}

// lazyCacheTimeout limits how long a list or a watch waits for the first fill of a cache. A cache that takes longer usually
// cannot be filled, for example because a conversion webhook is down; the request then fails with the cache's error.
const lazyCacheTimeout = 2 * time.Second

// lazyCache is a storage with a watch cache that the first request creates. k8s.io/apiserver responds to a watch on an unfilled
// cache with 429 and a Retry-After of one second, but the cache fills within milliseconds.
type lazyCache struct {
	storage.Interface
	resource    schema.GroupResource
	definitions apiextensionslisters.CustomResourceDefinitionLister
	filled      atomic.Bool
}

// lazilyCached implements generic.StorageDecorator.
func (s *storageFactory) lazilyCached(
	config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc,
	triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	front, _, stop, err := s.openCache(config, prefix, keyOf, newFunc, newListFunc, attributes, triggers, indexers)
	if err != nil {
		return nil, nil, err
	}
	return &lazyCache{Interface: front, resource: config.GroupResource, definitions: s.definitions}, stop, nil
}

func (p *lazyCache) await(ctx context.Context) {
	if p.filled.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lazyCacheTimeout)
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

func (p *lazyCache) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	p.await(ctx)
	return p.Interface.Watch(ctx, key, opts)
}

func (p *lazyCache) GetList(ctx context.Context, key string, opts storage.ListOptions, into runtime.Object) error {
	p.await(ctx)
	err := p.Interface.GetList(ctx, key, opts, into)
	if err == nil {
		// Each version has a separate storage, and a changed definition gets new ones, so its objects are encoded again.
		listcache.Take(ctx, listcache.Source{Storage: p, Resource: p.resource, Table: p.table}, into)
	}
	return err
}

// table converts a list to a Table in the version of the request.
func (p *lazyCache) table(ctx context.Context, list runtime.Object) (*metav1.Table, error) {
	info, ok := apirequest.RequestInfoFrom(ctx)
	if !ok {
		return nil, errors.New("no request")
	}
	convertor, err := crds.TableConvertor(p.definitions, p.resource.WithVersion(info.APIVersion))
	if err != nil {
		return nil, err
	}
	return convertor.ConvertToTable(ctx, list, &metav1.TableOptions{})
}

// uncachedStorage is a storage without a watch cache. Its watches share an etcd stream, on which a response without events
// becomes a bookmark for each of them. A client that did not request bookmarks interprets one as a change. Upstream's kinds all
// have a watch cache, which drops them.
type uncachedStorage struct{ storage.Interface }

func (q uncachedStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := q.Interface.Watch(ctx, key, opts)
	if err != nil || opts.Predicate.AllowWatchBookmarks || opts.ProgressNotify || opts.SendInitialEvents != nil {
		return w, err
	}
	return newBookmarkFilter(w), nil
}

// bookmarkFilter is a watch without bookmarks. Its goroutine ends when the watch ends or is stopped.
type bookmarkFilter struct {
	source watch.Interface
	events chan watch.Event
	stop   func()
	done   chan struct{}
}

func newBookmarkFilter(of watch.Interface) *bookmarkFilter {
	u := &bookmarkFilter{source: of, events: make(chan watch.Event), done: make(chan struct{})}
	u.stop = sync.OnceFunc(func() {
		close(u.done)
		of.Stop()
	})
	go u.pass()
	return u
}

func (u *bookmarkFilter) ResultChan() <-chan watch.Event { return u.events }
func (u *bookmarkFilter) Stop()                          { u.stop() }

func (u *bookmarkFilter) pass() {
	defer close(u.events)
	for event := range u.source.ResultChan() {
		if event.Type == watch.Bookmark {
			continue
		}
		select {
		case u.events <- event:
		case <-u.done:
			return
		}
	}
}

// streamWriter implements the two interfaces that k8s.io/apiserver requires to serve a watch. It checks only the writer that it
// gets, without Unwrap.
type streamWriter struct {
	http.ResponseWriter
	request context.Context
}

// upgradeWriter also implements http.Hijacker, for a watch over a websocket. Only HTTP/1.1 supports this. A writer for HTTP/2
// must not implement it, because k8s.io/apiserver would use it.
type upgradeWriter struct{ streamWriter }

// forLibrary returns w with the interfaces that k8s.io/apiserver requires.
func forLibrary(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	s := streamWriter{w, r.Context()}
	if r.ProtoMajor == 1 {
		return upgradeWriter{s}
	}
	return s
}

var (
	_ http.Flusher = streamWriter{}
	//lint:ignore SA1019 the library lets only a CloseNotifier flush
	_ http.CloseNotifier = streamWriter{}
)

// Unwrap implements the interface of http.ResponseController.
func (w streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush flushes through the writers that the chain has wrapped around the connection.
func (w streamWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // if this fails, the next Write fails
}

// CloseNotify implements http.CloseNotifier.
func (w streamWriter) CloseNotify() <-chan bool {
	left := make(chan bool, 1)
	context.AfterFunc(w.request, func() { left <- true })
	return left
}

// Hijack implements http.Hijacker.
func (w upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

const (
	// revisionStep is the interval at which the compact revision moves, revisionSteps the number of steps that it lags behind.
	revisionStep, revisionSteps = 5 * time.Second, 2
	// revisionTimeout limits the request for the current revision.
	revisionTimeout = 2 * time.Second
)

// compactRevision reports to watch caches which revisions they can drop: revisions compacted by etcd, and revisions older than
// ten seconds. A watch cache keeps a snapshot of its key tree after each write, 1.4 KB of new nodes for a kind with many
// objects, until etcd has compacted that revision, five to ten minutes later. After tens of thousands of writes, the snapshots
// exceed the objects in size. k8s.io/apiserver then reads pages of an older list from etcd, and pages of a kind with an older
// last write, just as it does for a kind last written before the last compaction.
type compactRevision struct {
	etcd3.Compactor
	now func(context.Context) (int64, error)

	mu     sync.Mutex
	recent [revisionSteps + 1]int64 // revisions of the last steps, oldest first
}

func newCompactRevision(compactor etcd3.Compactor, kv clientv3.KV) *compactRevision {
	return &compactRevision{Compactor: compactor, now: func(ctx context.Context) (int64, error) {
		// The header of any response contains the revision.
		answer, err := kv.Get(ctx, "compact_rev_key", clientv3.WithCountOnly(), clientv3.WithSerializable())
		if err != nil {
			return 0, err
		}
		return answer.Header.Revision, nil
	}}
}

// run updates the revision until ctx ends.
func (h *compactRevision) run(ctx context.Context) {
	_ = run.Every(ctx, revisionStep, h.move) // never returns an error
}

// move updates the revision. It keeps the revision if etcd does not respond.
func (h *compactRevision) move(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	revision, err := h.now(ctx)
	if err != nil {
		return // requests report errors of etcd
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	copy(h.recent[:], h.recent[1:])
	h.recent[revisionSteps] = revision
}

// CompactRevision is called by each watch cache every 15 seconds.
func (h *compactRevision) CompactRevision() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.Compactor.CompactRevision(), h.recent[0])
}
