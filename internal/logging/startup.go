package logging

import (
	"time"

	"go.uber.org/zap/zapcore"
)

// StartupGrace is how long the failures of a server that has never worked are not warnings.
const StartupGrace = 30 * time.Second

// quietRetries is a second or a few with the pauses of work queues, which begin with milliseconds and double.
const quietRetries = 8

// RetryLevel returns the level of a failure that is retried with growing pauses: info for the first failures in a row, and
// then warn. Conflicts and slow storage, which are normal on a busy machine, are over by then. failures is the number of
// failures before.
func RetryLevel(failures int) zapcore.Level {
	if failures < quietRetries {
		return zapcore.InfoLevel
	}
	return zapcore.WarnLevel
}

// Startup chooses the level of lines about failures of another server, which is often registered, or polled, before it has
// started. The zero value is ready for use. Its methods must not be called concurrently.
type Startup struct {
	began     time.Time // first failure
	succeeded bool
	withheld  bool // a failure was not logged as a warning
}

// Succeeded records that the server works. Every later failure is a warning.
func (s *Startup) Succeeded() { s.succeeded, s.withheld = true, false }

// Failed records a failure and returns its level: info until the server has worked once or the grace period is over, and then
// warn. overdue is true for the first failure after the grace period, which must be logged even if it is not new.
func (s *Startup) Failed(now time.Time) (level zapcore.Level, overdue bool) {
	if s.began.IsZero() {
		s.began = now
	}
	if !s.succeeded && now.Sub(s.began) < StartupGrace {
		s.withheld = true
		return zapcore.InfoLevel, false
	}
	overdue, s.withheld = s.withheld, false
	return zapcore.WarnLevel, overdue
}
