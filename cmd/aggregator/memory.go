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

// settled is the time after which the start of a front door counts as complete. The interval of the release of memory
// then triples up to again, because many objects at once, such as a hundred APIServices, leave as much unused memory
// as a start.
const (
	settled = 10 * time.Second
	again   = 5 * time.Minute
)

// settling runs serve and repeatedly releases memory that is no longer needed: about 40 MiB of the program's own
// pages that only the start needed, and the garbage of initial lists and documents. Each release costs one garbage
// collection. In addition it tunes the garbage collector to the load (memory.TuneGC), within the limit (memoryLimit,
// a value of --memory-limit), and the number of processors to the demand (processors.Adapt). It logs the end of ctx.
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
			log.Debug("failed to release unused memory", zap.Error(err))
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
	running.Go(func() {
		<-serving.Done()
		if ctx.Err() != nil {
			log.Info("stopping; a second signal ends the process at once")
		}
	})
	err = serve(ctx)
	stop()
	running.Wait()
	return err
}
