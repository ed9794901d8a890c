package aggregator

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// quietStart bounds how long warnings are left out at the start of `aggregator dev`.
const quietStart = 15 * time.Second

// devLog leaves warnings out while `aggregator dev` starts and ends: its own extension server is not there before the front door, and goes
// with it, which would be reported as an outage each time.
type devLog struct {
	log   *zap.Logger
	level zap.AtomicLevel
	own   zapcore.Level

	mu    sync.Mutex // guards what follows
	ended bool
}

// newDevLog leaves warnings out until started, and when ctx has ended. Where another level than warnings is wanted, nothing is left out.
func newDevLog(ctx context.Context, log *zap.Logger) *devLog {
	d := &devLog{log: log, own: log.Level(), level: zap.NewAtomicLevelAt(zapcore.ErrorLevel)}
	if d.own == zapcore.WarnLevel {
		d.log = log.WithOptions(zap.IncreaseLevel(d.level))
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

// awaitAvailable waits until every APIService that refers to a Service is available, and there is one.
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
