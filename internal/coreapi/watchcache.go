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
	// cachePoll is how often the caches are asked whether they are full, during start-up only.
	cachePoll = 2 * time.Millisecond
	// caughtUpPoll is how often they are asked for their revision, while etcd is back and they are still of a state snapshot.
	caughtUpPoll = 50 * time.Millisecond
	// diagnoseAfter is how long a cache may take to fill before its objects are listed from etcd to find out why.
	diagnoseAfter = 5 * time.Second
)

// cacheFill is a watch cache that the start waits for.
type cacheFill struct {
	of        schema.GroupResource
	directory string // of the objects
	ready     func() error
	// list reads the same from etcd.
	list func(context.Context) error
	// revision is that of the content of the cache.
	revision func(context.Context) (string, error)
}

// awaitCaches returns when every cache is full, or the first that is not when the time is over. It does not wait for a
// cache that never will be, because something in it cannot be decrypted or decoded.
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

// awaitEtcd returns when every cache has what etcd has, and not a state snapshot.
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
			if cause := f.list(ctx); cause != nil && ctx.Err() == nil && classifyEtcdError(cause) == noFailure {
				return fmt.Errorf("%s cannot be read from etcd: %w; bring back the key that they are encrypted with, or delete what is named here from etcd", f.of, cause)
			}
		case <-ctx.Done():
			return fmt.Errorf("watch cache of %s: %w", f.of, err)
		}
	}
}

// stopUnstarted ends controllers that were made and will not run: upstream's have queues at work before they are started.
func stopUnstarted(d *crds.Definitions) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Run(ended) // ends at once, and has nothing to report
}

// lazyCacheTimeout is how long a list or a watch waits for a cache that is being filled for the first time. A cache that
// takes longer cannot be filled, because a conversion webhook is down, say, and its error is the answer.
const lazyCacheTimeout = 2 * time.Second

// lazyCache is a storage whose watch cache is made by the first request. The library answers a watch on an unfilled
// cache with 429 and "come back in a second"; the cache is full within milliseconds.
type lazyCache struct {
	storage.Interface
	resource    schema.GroupResource
	definitions apiextensionslisters.CustomResourceDefinitionLister
	filled      atomic.Bool
}

// lazilyCached is a generic.StorageDecorator.
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
		// Each version has a storage of its own, and a changed definition has new ones: its objects are encoded anew.
		listcache.Take(ctx, listcache.Source{Storage: p, Resource: p.resource, Table: p.table}, into)
	}
	return err
}

// table prints a list in the version of the request.
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

// uncachedStorage is a storage without a watch cache. Its watches share a stream to etcd, on which an answer without events becomes
// a bookmark for each of them; a client that did not ask for bookmarks takes one for a change. A watch cache, which
// upstream has before every kind, keeps them back.
type uncachedStorage struct{ storage.Interface }

func (q uncachedStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := q.Interface.Watch(ctx, key, opts)
	if err != nil || opts.Predicate.AllowWatchBookmarks || opts.ProgressNotify || opts.SendInitialEvents != nil {
		return w, err
	}
	return newBookmarkFilter(w), nil
}

// bookmarkFilter is a watch without bookmarks. Its goroutine ends when the watch does or is stopped.
type bookmarkFilter struct {
	of     watch.Interface
	events chan watch.Event
	stop   func()
	done   chan struct{}
}

func newBookmarkFilter(of watch.Interface) *bookmarkFilter {
	u := &bookmarkFilter{of: of, events: make(chan watch.Event), done: make(chan struct{})}
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
	for event := range u.of.ResultChan() {
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

// streamWriter shows the library the two interfaces without which it refuses to serve a watch: it asks the writer that
// it is given, and does not look for what that writer wraps.
type streamWriter struct {
	http.ResponseWriter
	request context.Context
}

// upgradeWriter can be taken over too, for a watch over a websocket. Only HTTP/1.1 has that, and a writer that claims
// it over HTTP/2 would be believed.
type upgradeWriter struct{ streamWriter }

// forLibrary is w as the library wants it.
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

// Unwrap lets http.ResponseController through.
func (w streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush reaches through the writers that the chain has put around the connection.
func (w streamWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // the next Write fails if this did
}

// CloseNotify is what there was before contexts.
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
	// revisionStep is how often the compact revision moves, and revisionSteps how many steps it is behind.
	revisionStep, revisionSteps = 5 * time.Second, 2
	// revisionTimeout bounds the request for the current revision.
	revisionTimeout = 2 * time.Second
)

// compactRevision tells watch caches which revisions they need not remember any more: those that etcd has compacted, and those of
// more than ten seconds ago. A watch cache keeps the tree of its keys as it was after each write, 1.4 KB of new nodes for
// each of many objects, until it learns that etcd has compacted that revision, five to ten minutes later; after tens of
// thousands of writes that is more than the objects. Pages of a list that is older, and those of a kind that was last written
// before, the library asks etcd for, as it does where a kind was last written before the last compaction.
type compactRevision struct {
	etcd3.Compactor
	now func(context.Context) (int64, error)

	mu     sync.Mutex
	recent [revisionSteps + 1]int64 // the revision of each of the last steps, the oldest first
}

func newCompactRevision(compactor etcd3.Compactor, kv clientv3.KV) *compactRevision {
	return &compactRevision{Compactor: compactor, now: func(ctx context.Context) (int64, error) {
		// Any key will do: the header has the revision.
		answer, err := kv.Get(ctx, "compact_rev_key", clientv3.WithCountOnly(), clientv3.WithSerializable())
		if err != nil {
			return 0, err
		}
		return answer.Header.Revision, nil
	}}
}

// run moves the revision until ctx ends.
func (h *compactRevision) run(ctx context.Context) {
	_ = run.Every(ctx, revisionStep, h.move) // never an error
}

// move leaves the revision where it is while etcd does not answer.
func (h *compactRevision) move(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	revision, err := h.now(ctx)
	if err != nil {
		return // requests report what is wrong with etcd
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
