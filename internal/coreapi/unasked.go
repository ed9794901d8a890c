package coreapi

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// quiet is a storage without a watch cache. Its watches share a stream to etcd, on which an answer without events becomes
// a bookmark for each of them; a client that did not ask for bookmarks takes one for a change. A watch cache, which
// upstream has before every kind, keeps them back.
type quiet struct{ storage.Interface }

func (q quiet) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := q.Interface.Watch(ctx, key, opts)
	if err != nil || opts.Predicate.AllowWatchBookmarks || opts.ProgressNotify || opts.SendInitialEvents != nil {
		return w, err
	}
	return withoutBookmarks(w), nil
}

// unasked is a watch without its bookmarks. Its goroutine ends when the watch does or is stopped.
type unasked struct {
	of     watch.Interface
	events chan watch.Event
	stop   func()
	done   chan struct{}
}

func withoutBookmarks(of watch.Interface) *unasked {
	u := &unasked{of: of, events: make(chan watch.Event), done: make(chan struct{})}
	u.stop = sync.OnceFunc(func() {
		close(u.done)
		of.Stop()
	})
	go u.pass()
	return u
}

func (u *unasked) ResultChan() <-chan watch.Event { return u.events }
func (u *unasked) Stop()                          { u.stop() }

func (u *unasked) pass() {
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
