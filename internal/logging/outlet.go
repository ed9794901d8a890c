package logging

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// outletPause is how long a line that may wait does so at most.
	outletPause = 100 * time.Millisecond
	// outletRoom bounds what waits, and what is written at once unless one line is larger.
	outletRoom = 64 << 10
)

// outlet is where lines go. It writes each at once; those that may wait go through patient, and are written before any
// line that may not: the order stays, and whatever ends the process by way of the log takes them along.
type outlet struct {
	mu      sync.Mutex // guards what follows; taken before door
	waiting []byte
	timer   *time.Timer
	resting bool  // something was written within the last pause, and timer says when it is over
	failed  error // of the timer's write, for whoever writes next

	door  sync.Mutex // guards what follows: one write at a time, while lines gather
	out   zapcore.WriteSyncer
	spare []byte // room for what waits next
}

// Write implements zapcore.WriteSyncer.
func (o *outlet) Write(line []byte) (int, error) {
	o.mu.Lock()
	before, err := o.leave()
	err = errors.Join(err, o.pass(before))
	defer o.door.Unlock()
	n, wrong := o.out.Write(line)
	return n, errors.Join(err, wrong)
}

// Sync implements zapcore.WriteSyncer: it writes what waits.
func (o *outlet) Sync() error {
	o.mu.Lock()
	before, err := o.leave()
	defer o.door.Unlock()
	return errors.Join(err, o.pass(before))
}

// leave takes what waits to the door, which is held then; mu was, and is not any more.
func (o *outlet) leave() (lines []byte, failed error) {
	o.door.Lock()
	lines, failed = o.waiting, o.failed
	o.waiting, o.failed, o.spare = o.spare[:0], nil, nil
	o.mu.Unlock()
	return lines, failed
}

// pass is called with the door held.
func (o *outlet) pass(lines []byte) (err error) {
	if len(lines) > 0 {
		_, err = o.out.Write(lines)
	}
	o.spare = lines[:0]
	return err
}

// patient is an outlet for lines that may wait for others. The first after a pause does not: who asks now and then sees
// each line at once.
type patient struct{ *outlet }

// Write implements zapcore.WriteSyncer.
func (p patient) Write(line []byte) (int, error) {
	o := p.outlet
	o.mu.Lock()
	if !o.resting || len(line) > outletRoom || o.failed != nil {
		o.rest()
		o.mu.Unlock()
		return o.Write(line)
	}
	if len(o.waiting)+len(line) <= outletRoom {
		o.waiting = append(o.waiting, line...)
		o.mu.Unlock()
		return len(line), nil
	}
	o.door.Lock() // waits while the lines before those are being written
	full := o.waiting
	o.waiting, o.spare = append(o.spare[:0], line...), nil
	o.mu.Unlock()
	defer o.door.Unlock()
	return len(line), o.pass(full)
}

// rest begins a pause. Called with mu held.
func (o *outlet) rest() {
	if o.resting {
		return
	}
	o.resting = true
	if o.timer == nil {
		o.timer = time.AfterFunc(outletPause, o.rested)
	} else {
		o.timer.Reset(outletPause)
	}
}

// rested ends a pause, and begins another one when there was something to write.
func (o *outlet) rested() {
	o.mu.Lock()
	o.resting = false
	if len(o.waiting) == 0 {
		o.mu.Unlock()
		return
	}
	o.rest()
	before, err := o.leave()
	err = errors.Join(err, o.pass(before))
	o.door.Unlock()
	if err != nil {
		o.mu.Lock()
		o.failed = err
		o.mu.Unlock()
	}
}

// core writes lines at once, and knows how to write them so that they may wait.
type core struct {
	zapcore.Core
	patient zapcore.Core
}

func newCore(encoder zapcore.Encoder, to zapcore.WriteSyncer, level zapcore.Level) core {
	o := &outlet{out: to}
	return core{zapcore.NewCore(encoder, o, level), zapcore.NewCore(encoder, patient{o}, level)}
}

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.Core.With(fields), c.patient.With(fields)}
}

// Batched is log for lines of which there are many and none is urgent: while they come one after another they are written
// together, ten times a second. Each other line of the log, and its Sync, writes them first. A log that is not of this
// package stays as it is, and nil is nil.
func Batched(log *zap.Logger) *zap.Logger {
	if log == nil {
		return nil
	}
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		if c, ok := c.(core); ok {
			return c.patient
		}
		return c
	}))
}
