package logging

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// flushInterval is how long a batched line waits at most.
	flushInterval = 100 * time.Millisecond
	// maxPending bounds the pending lines, and what is written at once unless one line is larger.
	maxPending = 64 << 10
)

// sink writes log lines. It writes each at once; batched lines wait in pending, and are written before any line that is
// not batched: the order stays, and a line that ends the process is written after them.
type sink struct {
	mu       sync.Mutex // guards what follows; taken before writeMu
	pending  []byte
	timer    *time.Timer
	timerSet bool  // something was written within the last interval
	flushErr error // of the timer's write, returned by the next Write

	writeMu sync.Mutex // guards what follows: one write at a time, while lines are added to pending
	out     zapcore.WriteSyncer
	spare   []byte // room for what waits next
}

// Write implements zapcore.WriteSyncer.
func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	before, err := s.takePending()
	err = errors.Join(err, s.writeOut(before))
	defer s.writeMu.Unlock()
	n, wrong := s.out.Write(line)
	return n, errors.Join(err, wrong)
}

// Sync implements zapcore.WriteSyncer: it writes what is pending.
func (s *sink) Sync() error {
	s.mu.Lock()
	before, err := s.takePending()
	defer s.writeMu.Unlock()
	return errors.Join(err, s.writeOut(before))
}

// takePending takes the pending lines. It is called with mu held, and returns with writeMu held instead.
func (s *sink) takePending() (lines []byte, failed error) {
	s.writeMu.Lock()
	lines, failed = s.pending, s.flushErr
	s.pending, s.flushErr, s.spare = s.spare[:0], nil, nil
	s.mu.Unlock()
	return lines, failed
}

// writeOut is called with writeMu held.
func (s *sink) writeOut(lines []byte) (err error) {
	if len(lines) > 0 {
		_, err = s.out.Write(lines)
	}
	s.spare = lines[:0]
	return err
}

// batchedSink is a sink for lines that may wait for others. The first after a pause does not, so that occasional lines
// are seen at once.
type batchedSink struct{ *sink }

// Write implements zapcore.WriteSyncer.
func (b batchedSink) Write(line []byte) (int, error) {
	s := b.sink
	s.mu.Lock()
	if !s.timerSet || len(line) > maxPending || s.flushErr != nil {
		s.setTimer()
		s.mu.Unlock()
		return s.Write(line)
	}
	if len(s.pending)+len(line) <= maxPending {
		s.pending = append(s.pending, line...)
		s.mu.Unlock()
		return len(line), nil
	}
	s.writeMu.Lock() // waits while the lines before those are being written
	full := s.pending
	s.pending, s.spare = append(s.spare[:0], line...), nil
	s.mu.Unlock()
	defer s.writeMu.Unlock()
	return len(line), s.writeOut(full)
}

// setTimer begins an interval. Called with mu held.
func (s *sink) setTimer() {
	if s.timerSet {
		return
	}
	s.timerSet = true
	if s.timer == nil {
		s.timer = time.AfterFunc(flushInterval, s.flush)
	} else {
		s.timer.Reset(flushInterval)
	}
}

// flush ends an interval, and begins another one when there was something to write.
func (s *sink) flush() {
	s.mu.Lock()
	s.timerSet = false
	if len(s.pending) == 0 {
		s.mu.Unlock()
		return
	}
	s.setTimer()
	before, err := s.takePending()
	err = errors.Join(err, s.writeOut(before))
	s.writeMu.Unlock()
	if err != nil {
		s.mu.Lock()
		s.flushErr = err
		s.mu.Unlock()
	}
}

// core writes lines at once; batched writes them so that they may wait.
type core struct {
	zapcore.Core
	batched zapcore.Core
}

func newCore(encoder zapcore.Encoder, to zapcore.WriteSyncer, level zapcore.LevelEnabler) core {
	s := &sink{out: to}
	return core{zapcore.NewCore(encoder, s, level), zapcore.NewCore(encoder, batchedSink{s}, level)}
}

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.Core.With(fields), c.batched.With(fields)}
}

// Batched is log for lines of which there are many and none is urgent: while they come one after another they are
// written together, ten times a second. Each other line of the log, and its Sync, writes them first. A log that is not
// of this package stays as it is, and nil is nil.
func Batched(log *zap.Logger) *zap.Logger {
	if log == nil {
		return nil
	}
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		if c, ok := c.(core); ok {
			return c.batched
		}
		return c
	}))
}
