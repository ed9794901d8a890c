package apitest

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// libraryLog forwards the log of the Kubernetes libraries (klog), which is global to the process, to the running environment
// that was started last and has a Logger. Without such an environment it drops the messages. Before the first start they go
// to standard error.
var libraryLog = libraryLogger{before: zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.Lock(os.Stderr), zapcore.InfoLevel)}

// klog's logger must be set before other goroutines log, and a test may start goroutines before an environment. A logger that
// the test binary sets later replaces this one.
func init() {
	klog.SetLoggerWithOptions(zapr.NewLogger(zap.New(&libraryLog)), klog.ContextualLogger(true))
}

type libraryLogger struct {
	before  zapcore.Core
	started atomic.Bool

	mu      sync.Mutex // guards running
	running []*Environment
}

// follow adds e as a target of the log.
func (l *libraryLogger) follow(e *Environment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = append(l.running, e)
	l.started.Store(true)
}

func (l *libraryLogger) unfollow(e *Environment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.running {
		if other == e {
			l.running = append(l.running[:i:i], l.running[i+1:]...)
			return
		}
	}
}

// Enabled, With, Check, Write and Sync implement zapcore.Core. After the first start, only warnings and errors are enabled,
// because the Kubernetes libraries are verbose.
func (l *libraryLogger) Enabled(level zapcore.Level) bool {
	return level >= zapcore.WarnLevel || !l.started.Load() && l.before.Enabled(level)
}

func (l *libraryLogger) With([]zapcore.Field) zapcore.Core { return l }

func (l *libraryLogger) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

// Write holds the lock while it writes to a test's log, so that the test cannot end before Write returns.
func (l *libraryLogger) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if !l.started.Load() {
		return l.before.Write(entry, fields)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.running) - 1; i >= 0; i-- {
		if log := l.running[i].Logger; log != nil {
			log.Named("kubernetes").Log(entry.Level, entry.Message, fields...)
			return nil
		}
	}
	return nil
}

func (l *libraryLogger) Sync() error { return nil }
