package apiservice

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// work handles a queue's items with n workers until ctx ends, then shuts the queue down and waits for the workers.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], n int, handle func(T)) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for {
				item, shutdown := queue.Get()
				if shutdown {
					return
				}
				if ctx.Err() == nil {
					handle(item)
				}
				queue.Done(item)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	wg.Wait()
}
