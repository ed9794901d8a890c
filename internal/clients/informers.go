package clients

import (
	"context"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Informers is an informers.SharedInformerFactory of all namespaces, without resynchronization, of the groups of Client.
// It has no others, as Client has not.
type Informers struct {
	informers.SharedInformerFactory // nil

	client    kubernetes.Interface
	transform cache.TransformFunc
	running   sync.WaitGroup

	mu       sync.Mutex // guards what follows
	made     map[reflect.Type]cache.SharedIndexInformer
	started  map[reflect.Type]bool
	shutDown bool
}

// NewInformers returns a factory that has made nothing. Transform, unless nil, is applied to what comes in.
func NewInformers(client kubernetes.Interface, transform cache.TransformFunc) *Informers {
	return &Informers{
		client: client, transform: transform,
		made: map[reflect.Type]cache.SharedIndexInformer{}, started: map[reflect.Type]bool{},
	}
}

// InformerName is nil: no metrics are kept of informers.
func (i *Informers) InformerName() *cache.InformerName { return nil }

// InformerFor is the informer of objects of this Go type; make makes it when it is asked for first.
func (i *Informers) InformerFor(object runtime.Object, make internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	i.mu.Lock()
	defer i.mu.Unlock()
	kind := reflect.TypeOf(object)
	if informer, ok := i.made[kind]; ok {
		return informer
	}
	informer := make(i.client, 0)
	if i.transform != nil {
		// An informer that was just made takes it; it refuses only once it runs.
		_ = informer.SetTransform(i.transform)
	}
	i.made[kind] = informer
	return informer
}

// Start runs, until stop is closed, what was asked for and does not run yet.
func (i *Informers) Start(stop <-chan struct{}) { i.StartWithContext(wait.ContextForChannel(stop)) }

// StartWithContext is Start until ctx ends.
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

// Shutdown starts nothing any more and returns when all that was started has ended.
func (i *Informers) Shutdown() {
	i.mu.Lock()
	i.shutDown = true
	i.mu.Unlock()
	i.running.Wait()
}

// WaitForCacheSync returns once everything that was started has its first list, or stop is closed; and says which have.
func (i *Informers) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	return i.WaitForCacheSyncWithContext(wait.ContextForChannel(stop)).Synced
}

// WaitForCacheSyncWithContext is WaitForCacheSync until ctx ends.
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
