package store

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// harmless contains messages that etcd logs as warnings or errors in normal operation. Each begins with message. If cause is
// set, it is part of the error.
var harmless = []struct{ message, cause string }{
	// At the first start in an empty directory, before the first entry of the log.
	{"failed to update storage version", "missing term information"},
	{"Failed to detect schema version", "missing term information"},
	{"simple token is not cryptographically signed", ""}, // etcd's users are not used
}

// slow contains parts of the messages that etcd logs as warnings about single slow operations. They are normal while a machine
// starts or is busy, and need attention only if they continue.
var slow = []string{
	"apply request took too long",
	"slow fdatasync",
	"leader failed to send out heartbeat on time",
	"waiting for ReadIndex response took too long",
	"timed out waiting for read index response",
	"ignored out-of-date read index response",
	"A tick missed to fire. Node blocks too long!",
	"failed to revoke lease",
	"failed to publish local member to cluster through raft",
	"request stats", // of an expensive request
}

const (
	// slowAfter is how long etcd must be slow until this is a warning, and slowEvery the time between two such warnings.
	slowAfter = 30 * time.Second
	slowEvery = time.Minute
	// slowPause is the time without a slow operation after which etcd is no longer slow.
	slowPause = 10 * time.Second
)

// slowness tracks the slow operations of etcd.
type slowness struct {
	mu                    sync.Mutex // guards the fields below
	since, last, reported time.Time
}

// record records a slow operation, and reports whether it must be logged as a warning, and since when etcd has been slow.
func (s *slowness) record(now time.Time) (since time.Time, lasts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.last) > slowPause {
		s.since = now
	}
	s.last = now
	if now.Sub(s.since) < slowAfter || now.Sub(s.reported) < slowEvery {
		return s.since, false
	}
	s.reported = now
	return s.since, true
}

// etcdLogger returns the logger of etcd. It logs warnings and errors, and information only if l is at debug level. It drops
// harmless messages, limits repetitions, and logs slow operations as warnings only if they continue. etcd's debug messages are never logged, because they contain every applied request,
// and therefore every stored Secret.
func etcdLogger(l *zap.Logger) *zap.Logger {
	least := zapcore.WarnLevel
	if l.Core().Enabled(zapcore.DebugLevel) {
		least = zapcore.InfoLevel
	}
	return l.Named("etcd").WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(filterCore{c, least, &slowness{}}, time.Second, repeats, manyRepeats)
	}))
}

// repeats is the number of equal messages logged per second. Of further ones, one in manyRepeats is logged. etcd retries
// without a pause, and a start with many entries to apply logged the same warning a thousand times in milliseconds.
const repeats, manyRepeats = 10, 1000

// stoppingCore drops warnings while its member is stopped, because goroutines of etcd report in different words that their work
// was canceled. Errors are still logged.
type stoppingCore struct {
	zapcore.Core
	stopping *atomic.Bool
}

func (c stoppingCore) Enabled(l zapcore.Level) bool {
	return c.Core.Enabled(l) && (l > zapcore.WarnLevel || !c.stopping.Load())
}

func (c stoppingCore) With(fields []zapcore.Field) zapcore.Core {
	return stoppingCore{c.Core.With(fields), c.stopping}
}

func (c stoppingCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return checked
	}
	return c.Core.Check(e, checked)
}

// filterCore drops harmless messages and messages below least.
type filterCore struct {
	zapcore.Core
	least zapcore.Level
	slow  *slowness
}

func (c filterCore) Enabled(l zapcore.Level) bool { return l >= c.least && c.Core.Enabled(l) }

func (c filterCore) With(fields []zapcore.Field) zapcore.Core {
	return filterCore{c.Core.With(fields), c.least, c.slow}
}

func (c filterCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return checked
	}
	return checked.AddCore(e, c)
}

func (c filterCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if isHarmless(e, fields) {
		return nil
	}
	if e.Level == zapcore.WarnLevel && isSlow(e) {
		since, lasts := c.slow.record(e.Time)
		if lasts {
			fields = append(slices.Clip(fields), zap.Time("slow-since", since))
		} else if e.Level = zapcore.InfoLevel; !c.Enabled(e.Level) {
			return nil
		}
	}
	return c.Core.Write(e, fields)
}

func isSlow(e zapcore.Entry) bool {
	return slices.ContainsFunc(slow, func(part string) bool { return strings.Contains(e.Message, part) })
}

func isHarmless(e zapcore.Entry, fields []zapcore.Field) bool {
	for _, h := range harmless {
		if strings.HasPrefix(e.Message, h.message) && (h.cause == "" || strings.Contains(errorIn(fields), h.cause)) {
			return true
		}
	}
	return false
}

func errorIn(fields []zapcore.Field) string {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			return err.Error()
		}
	}
	return ""
}
