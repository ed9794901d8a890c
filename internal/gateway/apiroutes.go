package gateway

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/routes/client"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/run"
)

// apiRoutes reads the APIRoutes of the API server, where they are custom resources. Until their definition is
// applied, the list is empty.
type apiRoutes struct {
	client *client.APIRoutes
	// interval is how often apiRoutes checks whether the API server has the kind.
	interval time.Duration
}

func (a apiRoutes) informer() cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{ListWithContextFunc: a.list, WatchFuncWithContext: a.watch}, &v1alpha1.APIRoute{}, 0, cache.Indexers{})
}

const kindInterval = 10 * time.Second

// undefined is the resource version of the list of a missing kind.
const undefined = "0"

func (a apiRoutes) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := a.client.List(ctx, o)
	if apierrors.IsNotFound(err) {
		return &v1alpha1.APIRouteList{ListMeta: metav1.ListMeta{ResourceVersion: undefined}}, nil
	}
	return list, err
}

// watch follows a list. The watch of a missing kind ends when the kind exists.
func (a apiRoutes) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.ResourceVersion != undefined {
		return a.client.Watch(ctx, o)
	}
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watch.Event)
	w := &awaited{events, cancel}
	go func() {
		defer close(events)
		defer cancel()
		for run.Pause(ctx, a.interval) {
			if _, err := a.client.List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
				continue
			}
			expired := apierrors.NewResourceExpired("the kind may be there now").Status()
			select {
			case events <- watch.Event{Type: watch.Error, Object: &expired}: // makes the informer list again
			case <-ctx.Done():
			}
			return
		}
	}()
	return w, nil
}

// awaited is the watch of a missing kind.
type awaited struct {
	events chan watch.Event
	cancel context.CancelFunc
}

func (a *awaited) ResultChan() <-chan watch.Event { return a.events }

// Stop returns when no more requests are sent.
func (a *awaited) Stop() {
	a.cancel()
	for range a.events { // until it is closed
	}
}
