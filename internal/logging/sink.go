package logging

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// flushInterval is the maximum time that a batched line waits.
	flushInterval = 100 * time.Millisecond
	// maxPending bounds the pending lines, and the size of a write unless a single line is larger.
	maxPending = 64 << 10
)

// sink writes log lines. It writes each line immediately. Batched lines wait in pending, and are written before any line that
// is not batched. This preserves the order, and a line that ends the process is written after them.
type sink struct {
	mu       sync.Mutex // guards the fields below; locked before writeMu
	pending  []byte
	timer    *time.Timer
	timerSet bool  // a line was written within the last interval
	flushErr error // error of the timer's write, returned by the next Write

	writeMu sync.Mutex // guards the fields below: one write at a time, while lines are added to pending
	out     zapcore.WriteSyncer
	spare   []byte // buffer for the next pending lines
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

// Sync implements zapcore.WriteSyncer. It writes the pending lines.
func (s *sink) Sync() error {
	s.mu.Lock()
	before, err := s.takePending()
	defer s.writeMu.Unlock()
	return errors.Join(err, s.writeOut(before))
}

// takePending returns and resets the pending lines. It is called with mu held, and returns with writeMu held instead.
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

// batchedSink is a sink for lines that may be batched. The first line after a pause is written immediately, so that occasional
// lines appear without delay.
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
	s.writeMu.Lock() // waits while the preceding lines are being written
	full := s.pending
	s.pending, s.spare = append(s.spare[:0], line...), nil
	s.mu.Unlock()
	defer s.writeMu.Unlock()
	return len(line), s.writeOut(full)
}

// setTimer starts an interval. It is called with mu held.
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

// flush ends an interval, and starts another one if there were pending lines.
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

// core writes lines immediately. batched may delay them.
type core struct {
	zapcore.Core
	batched zapcore.Core
	encoder zapcore.Encoder // without the fields of With
}

func newCore(encoder zapcore.Encoder, to zapcore.WriteSyncer, level zapcore.LevelEnabler) core {
	s := &sink{out: to}
	return core{zapcore.NewCore(encoder, s, level), zapcore.NewCore(encoder, batchedSink{s}, level), encoder}
}

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.Core.With(fields), c.batched.With(fields), c.encoder}
}

// IncreaseLevel returns a logger that writes only lines from a level, and is otherwise like log. Unlike with
// [zap.IncreaseLevel], its lines can still be batched.
func IncreaseLevel(log *zap.Logger, level zapcore.LevelEnabler) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		if c, ok := c.(core); ok {
			return core{leveledCore{c.Core, level}, leveledCore{c.batched, level}, c.encoder}
		}
		return leveledCore{c, level}
	}))
}

// leveledCore writes only lines from a level, which may change.
type leveledCore struct {
	zapcore.Core
	level zapcore.LevelEnabler
}

// Enabled implements zapcore.LevelEnabler.
func (c leveledCore) Enabled(l zapcore.Level) bool { return c.level.Enabled(l) && c.Core.Enabled(l) }

// With implements zapcore.Core.
func (c leveledCore) With(fields []zapcore.Field) zapcore.Core {
	return leveledCore{c.Core.With(fields), c.level}
}

// Check implements zapcore.Core.
func (c leveledCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return checked
	}
	return c.Core.Check(e, checked)
}

// Batched returns a logger for frequent lines that are not urgent. Lines in quick succession are written together, ten times
// per second. Other lines of the logger, and its Sync, write them first. Batched returns loggers from other packages unchanged,
// and nil if log is nil.
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
