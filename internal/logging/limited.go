package logging

import (
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"
)

const (
	// linesPerSecond and lineBurst bound the rate of each message in a limited logger.
	linesPerSecond = 10
	lineBurst      = 100
	// maxMessages bounds the number of messages with a separate limit. maxMessageKey bounds the length of their keys.
	maxMessages   = 64
	maxMessageKey = 64
)

// SuppressedField is the field of a limited line with the number of preceding lines with the same message that were dropped.
const SuppressedField = "suppressed"

// Limited returns a logger for lines that an unauthenticated client can cause, so that such a client can neither fill a disk
// nor slow down the server. Each message may be logged ten times per second. Further lines are dropped, and the next line
// contains their number. Lines at disabled levels do not count. Limited returns nil if log is nil.
func Limited(log *zap.Logger) *zap.Logger {
	if log == nil {
		return nil
	}
	return log.WithOptions(zap.WrapCore(newLimitedCore))
}

// limitedCore drops lines beyond the rate of their message.
type limitedCore struct {
	zapcore.Core
	messages *messageLimits
}

func newLimitedCore(c zapcore.Core) zapcore.Core {
	return limitedCore{c, &messageLimits{buckets: map[string]*messageBucket{}}}
}

// With implements zapcore.Core. The limits do not depend on fields.
func (l limitedCore) With(fields []zapcore.Field) zapcore.Core {
	return limitedCore{l.Core.With(fields), l.messages}
}

// Check implements zapcore.Core.
func (l limitedCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !l.Enabled(e.Level) {
		return checked
	}
	return checked.AddCore(e, l)
}

// Write implements zapcore.Core.
func (l limitedCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	suppressed, ok := l.messages.allow(e)
	if !ok {
		return nil
	}
	if suppressed > 0 {
		fields = append(fields[:len(fields):len(fields)], zap.Int64(SuppressedField, suppressed))
	}
	return l.Core.Write(e, fields)
}

// messageLimits counts lines by message.
type messageLimits struct {
	mu      sync.Mutex
	buckets map[string]*messageBucket
}

type messageBucket struct {
	limit   *rate.Limiter
	dropped int64
}

// allow reports whether a line may be written, and the number of lines with its message that were dropped before.
func (m *messageLimits) allow(e zapcore.Entry) (suppressed int64, ok bool) {
	key := messageKey(e.Message)
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.buckets[key]
	if b == nil && len(m.buckets) >= maxMessages {
		key = "" // all further messages share a bucket
		b = m.buckets[key]
	}
	if b == nil {
		b = &messageBucket{limit: rate.NewLimiter(linesPerSecond, lineBurst)}
		m.buckets[key] = b
	}
	if !b.limit.AllowN(e.Time, 1) {
		b.dropped++
		return 0, false
	}
	suppressed, b.dropped = b.dropped, 0
	return suppressed, true
}

// messageKey returns the constant part of a message. k8s.io libraries and net/http append the variable part after a colon.
func messageKey(message string) string {
	message, _, _ = strings.Cut(message, ":")
	return message[:min(len(message), maxMessageKey)]
}
