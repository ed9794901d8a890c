package apitest

import (
	"sync"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// libraryLog takes what the Kubernetes libraries log, of which there is one log in a process (klog), to the environment that was
// started last and runs. Without one that has a Logger it is dropped.
var libraryLog libraryLogger

type libraryLogger struct {
	install sync.Once

	mu      sync.Mutex // guards what follows
	running []*Environment
}

// follow begins to send lines to e. The first call replaces the logger of klog.
func (l *libraryLogger) follow(e *Environment) {
	l.mu.Lock()
	l.running = append(l.running, e)
	l.mu.Unlock()
	l.install.Do(func() {
		klog.SetLoggerWithOptions(zapr.NewLogger(zap.New(l)), klog.ContextualLogger(true))
	})
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

// Enabled, With, Check, Write and Sync implement zapcore.Core. Libraries are verbose: only their warnings and errors are of use.
func (l *libraryLogger) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

func (l *libraryLogger) With([]zapcore.Field) zapcore.Core { return l }

func (l *libraryLogger) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(entry.Level) {
		return checked.AddCore(entry, l)
	}
	return checked
}

// Write holds the lock while the test's log is written, so that the test cannot end meanwhile.
func (l *libraryLogger) Write(entry zapcore.Entry, fields []zapcore.Field) error {
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
