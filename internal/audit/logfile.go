package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
)

// logSink writes an event a line.
type logSink struct {
	out    io.Writer
	closer io.Closer // nil: out is not ours to close
}

// openLog opens the file, "-" for standard output, before anything is promised: a path that cannot be written is found
// at the start and not with the first request.
func openLog(c Config) (*logSink, error) {
	if c.LogPath == "-" {
		return &logSink{out: os.Stdout}, nil
	}
	f, err := os.OpenFile(c.LogPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return &logSink{out: f, closer: f}, nil // a rotation would rename the device or the pipe
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	rotating := &lumberjack.Logger{
		Filename: c.LogPath, MaxAge: c.LogMaxAge, MaxBackups: c.LogMaxBackups, MaxSize: c.LogMaxSize, Compress: c.LogCompress,
	}
	return &logSink{out: rotating, closer: rotating}, nil
}

// maxWriteBytes bounds one write, unless one event is larger. A larger write could exceed the size of a log file.
const maxWriteBytes = 64 << 10

// logInterval is the time between two batches of events in the log: while requests come one after another, each costs
// its part of a write, and not a write and a wakeup of its own.
const logInterval = 100 * time.Millisecond

// logBatching is when the log is written.
var logBatching = batching{maxBytes: maxWriteBytes, wait: logInterval, eager: true}

func (l *logSink) send(_ context.Context, b *batch) (written int, err error) {
	if _, err := l.out.Write(b.text); err != nil {
		return 0, err
	}
	return len(b.ends), nil
}

func (l *logSink) close() error {
	if l.closer == nil {
		return nil
	}
	return l.closer.Close()
}
