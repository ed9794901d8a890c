package aggregator

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"portico.dev/internal/logging"
)

// quietStart limits how long warnings are suppressed at the start of `aggregator dev`. On a busy machine its extension server
// takes many seconds.
const quietStart = time.Minute

// devLog suppresses warnings while `aggregator dev` starts and stops: its extension server starts after the front
// door and stops with it, which would be reported as an outage each time.
type devLog struct {
	log   *zap.Logger
	level zap.AtomicLevel
	own   zapcore.Level

	mu    sync.Mutex // guards the fields below
	ended bool
}

// newDevLog suppresses warnings until started is called, and after ctx has ended. If the log level is not warn, it
// does not suppress anything.
func newDevLog(ctx context.Context, log *zap.Logger) *devLog {
	d := &devLog{log: log, own: log.Level(), level: zap.NewAtomicLevelAt(zapcore.ErrorLevel)}
	if d.own == zapcore.WarnLevel {
		d.log = logging.IncreaseLevel(log, d.level)
	}
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended = true
		d.level.SetLevel(zapcore.ErrorLevel)
	})
	return d
}

func (d *devLog) started() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended {
		d.level.SetLevel(d.own)
	}
}

// awaitAvailable waits until an APIService refers to a Service and every such APIService is available, for at most
// atMost.
func (a *Aggregator) awaitAvailable(ctx context.Context, namespace, name string, atMost time.Duration) {
	parts := a.parts.Load()
	if parts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		changed := parts.APIServices.Changed()
		referring, available := 0, 0
		for _, r := range parts.APIServices.Table().Routes() {
			if r.Service == nil || r.Service.Namespace != namespace || r.Service.Name != name {
				continue
			}
			referring++
			if r.Available() {
				available++
			}
		}
		if referring > 0 && available == referring {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
