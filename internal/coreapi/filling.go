package coreapi

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/crds"
)

const (
	// cachePoll is how often the caches are asked whether they are full, during start-up only.
	cachePoll = 2 * time.Millisecond
	// suspicious is how long a cache may take to fill before it is asked why.
	suspicious = 5 * time.Second
)

// filling is a cache that the start waits for.
type filling struct {
	of    schema.GroupResource
	ready func() error
	// list reads the same from etcd.
	list func(context.Context) error
}

// awaitCaches returns when every cache is full, or the first that is not when the time is over. It does not wait for a
// cache that never will be, because something in it cannot be decrypted or decoded.
func (s *storageFactory) awaitCaches(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, f := range s.waiting {
		if err := f.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *filling) await(ctx context.Context) error {
	tick := time.NewTicker(cachePoll)
	defer tick.Stop()
	why := time.NewTimer(suspicious)
	defer why.Stop()
	for {
		err := f.ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-why.C:
			if cause := f.list(ctx); cause != nil && ctx.Err() == nil && kindOf(cause) == none {
				return fmt.Errorf("%s cannot be read from etcd: %w; bring back the key that they are encrypted with, or delete what is named here from etcd", f.of, cause)
			}
		case <-ctx.Done():
			return fmt.Errorf("watch cache of %s: %w", f.of, err)
		}
	}
}

// abandon ends what is made and will not run: upstream's controllers have queues at work before they are started.
func abandon(d *crds.Definitions) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Run(ended) // which is told nothing, and so finds nothing
}
