package main

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/overload"
	"portico.dev/internal/run/memory"
	"portico.dev/internal/run/processors"
)

// settled is how long after it began a front door is taken to be done with starting. It is looked at again when three times
// as long has passed, and so on until again: many objects at once, as a hundred APIServices, leave as much behind as a start.
const (
	settled = 10 * time.Second
	again   = 5 * time.Minute
)

// settling runs serve, and gives back the memory that only the start needed, or what came since: about 40 MiB of the
// program's own pages, and the garbage of first lists and documents. Each time costs one collection. Under load memory is
// traded for time (memory.TuneGC), as far as there is a limit (memoryLimit, a value of --memory-limit), and there are as many processors
// as are needed (processors.Adapt).
func settling(ctx context.Context, log *zap.Logger, memoryLimit string, serve func(context.Context) error) error {
	limit, err := overload.Find(memoryLimit)
	if err != nil {
		return err
	}
	defer limit.SetMemoryLimit()()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	release := func() {
		debug.FreeOSMemory()
		if err := memory.ReleaseStartPages(); err != nil {
			log.Debug("give back what is not needed now", zap.Error(err))
		}
	}
	var running sync.WaitGroup
	running.Go(func() { memory.TuneGC(serving, release) })
	running.Go(func() { processors.Adapt(serving) })
	running.Go(func() {
		for wait := settled; ; wait = min(3*wait, again) {
			select {
			case <-serving.Done():
				return
			case <-time.After(wait):
			}
			release()
		}
	})
	err = serve(ctx)
	stop()
	running.Wait()
	return err
}
