package clients

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/tools/cache"
)

// Informers is a factory of shared informers for all namespaces, without resync. kinds.go has a method for each kind.
type Informers struct {
	client    Interface
	transform cache.TransformFunc
	running   sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	made     map[reflect.Type]cache.SharedIndexInformer
	started  map[reflect.Type]bool
	shutDown bool
}

// NewInformers returns a factory without informers. If transform is not nil, informers apply it to the objects they receive.
func NewInformers(client Interface, transform cache.TransformFunc) *Informers {
	return &Informers{
		client: client, transform: transform,
		made: map[reflect.Type]cache.SharedIndexInformer{}, started: map[reflect.Type]bool{},
	}
}

// InformerName returns nil, because informers have no metrics.
func (i *Informers) InformerName() *cache.InformerName { return nil }

// InformerFor returns the informer of objects of this Go type. The first call creates it with newInformer.
func (i *Informers) InformerFor(object runtime.Object, newInformer internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	i.mu.Lock()
	defer i.mu.Unlock()
	kind := reflect.TypeOf(object)
	if informer, ok := i.made[kind]; ok {
		return informer
	}
	informer := newInformer(ForLibrary(i.client), 0)
	if i.transform != nil {
		// Fails only if the informer is running.
		_ = informer.SetTransform(i.transform)
	}
	i.made[kind] = informer
	return informer
}

// Start runs every requested informer that is not running, until stop is closed.
func (i *Informers) Start(stop <-chan struct{}) { i.StartWithContext(wait.ContextForChannel(stop)) }

// StartWithContext is like Start, until ctx ends.
func (i *Informers) StartWithContext(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.shutDown {
		return
	}
	for kind, informer := range i.made {
		if !i.started[kind] {
			i.started[kind] = true
			i.running.Go(func() { informer.RunWithContext(ctx) })
		}
	}
}

// Shutdown disables further calls of Start, and returns when all informers have ended.
func (i *Informers) Shutdown() {
	i.mu.Lock()
	i.shutDown = true
	i.mu.Unlock()
	i.running.Wait()
}

// WaitForCacheSync waits until every started informer has synced or stop is closed. It returns which informers have synced.
func (i *Informers) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return i.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext is like WaitForCacheSync, until ctx ends.
func (i *Informers) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	running := i.runningNow()
	checks := make([]cache.DoneChecker, 0, len(running))
	for _, informer := range running {
		checks = append(checks, informer.HasSyncedChecker())
	}
	cache.WaitFor(ctx, "", checks...)
	result := cache.SyncResult{Synced: make(map[reflect.Type]bool, len(running))}
	for kind, informer := range running {
		result.Synced[kind] = informer.HasSynced()
		if !result.Synced[kind] {
			result.Err = context.Cause(ctx)
		}
	}
	return result
}

// Running returns the informers that have been started.
func (i *Informers) Running() []cache.SharedIndexInformer {
	return slices.Collect(maps.Values(i.runningNow()))
}

func (i *Informers) runningNow() map[reflect.Type]cache.SharedIndexInformer {
	i.mu.Lock()
	defer i.mu.Unlock()
	running := map[reflect.Type]cache.SharedIndexInformer{}
	for kind, informer := range i.made {
		if i.started[kind] {
			running[kind] = informer
		}
	}
	return running
}
