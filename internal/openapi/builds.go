package openapi

import (
	"context"
	"errors"
	"sync"
)

// builds runs builds for which several readers may wait, one at a time, because a build takes many times the memory of its
// result. A build is canceled when its last reader has left.
type builds struct {
	slot chan struct{} // holds a value while a build runs

	mu      sync.Mutex
	running map[string]*sharedBuild
}

// sharedBuild is one build. It runs on the goroutine of its first reader.
type sharedBuild struct {
	ctx     context.Context
	cancel  context.CancelFunc
	readers int // guarded by builds.mu; at 0 the build is canceled
	done    chan struct{}
	result  any // result and err are set when done is closed
	err     error
}

var errNotBuilt = errors.New("the OpenAPI document was not built")

func newBuilds() *builds {
	return &builds{slot: make(chan struct{}, 1), running: map[string]*sharedBuild{}}
}

// do returns the result of build, or of another reader's build with the same key. build must return soon after its context
// ends.
func (b *builds) do(ctx context.Context, key string, build func(context.Context) (any, error)) (any, error) {
	for ctx.Err() == nil {
		run, leads := b.join(key)
		if run.ctx.Err() != nil && !leads {
			b.await(ctx, run) // it was canceled before this reader joined
			continue
		}
		leave := context.AfterFunc(ctx, func() { b.leave(run) })
		if leads {
			b.lead(key, run, build)
		}
		b.await(ctx, run)
		if leave() {
			b.leave(run)
			return run.result, run.err
		}
	}
	return nil, ctx.Err()
}

// join returns the build of a key, creating it if necessary, and counts the reader unless the build is canceled.
func (b *builds) join(key string) (run *sharedBuild, leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	run = b.running[key]
	if run == nil {
		run = &sharedBuild{done: make(chan struct{}), err: errNotBuilt}
		run.ctx, run.cancel = context.WithCancel(context.Background())
		b.running[key], leads = run, true
	}
	if run.ctx.Err() == nil {
		run.readers++
	}
	return run, leads
}

func (b *builds) leave(run *sharedBuild) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if run.readers--; run.readers == 0 {
		run.cancel()
	}
}

// lead runs a build in the slot.
func (b *builds) lead(key string, run *sharedBuild, build func(context.Context) (any, error)) {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.running, key)
		close(run.done)
	}()
	select {
	case b.slot <- struct{}{}:
		defer func() { <-b.slot }()
	case <-run.ctx.Done():
		return
	}
	run.result, run.err = build(run.ctx)
}

// await returns when a build is done or its reader leaves.
func (b *builds) await(ctx context.Context, run *sharedBuild) {
	select {
	case <-run.done:
	case <-ctx.Done():
	}
}
