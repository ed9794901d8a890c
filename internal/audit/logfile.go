package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"gopkg.in/natefinch/lumberjack.v2"
)

// lines writes an event a line.
type lines struct {
	out    io.Writer
	closer io.Closer // nil: out is not ours to close
	room   []byte
}

// openLog opens the file, "-" for standard output, before anything is promised: a path that cannot be written is found
// at the start and not with the first request.
func openLog(c Config) (*lines, error) {
	if c.LogPath == "-" {
		return &lines{out: os.Stdout}, nil
	}
	f, err := os.OpenFile(c.LogPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return &lines{out: f, closer: f}, nil // a rotation would rename the device or the pipe
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	rotating := &lumberjack.Logger{
		Filename: c.LogPath, MaxAge: c.LogMaxAge, MaxBackups: c.LogMaxBackups, MaxSize: c.LogMaxSize, Compress: c.LogCompress,
	}
	return &lines{out: rotating, closer: rotating}, nil
}

// atOnce bounds what is written at once. A batch may be larger than a file may become.
const atOnce = 64 << 10

// send writes as many events at once as fit.
func (l *lines) send(_ context.Context, events [][]byte) (written int, err error) {
	var errs []error
	for len(events) > 0 {
		n := l.gather(events)
		if _, err := l.out.Write(l.room); err != nil {
			errs = append(errs, err)
		} else {
			written += n
		}
		events = events[n:]
		if cap(l.room) > 2*atOnce {
			l.room = nil
		}
	}
	return written, errors.Join(errs...)
}

// gather puts the first events into the room, a line each, and returns how many.
func (l *lines) gather(events [][]byte) (n int) {
	l.room = l.room[:0]
	for _, e := range events {
		if n > 0 && len(l.room)+len(e) >= atOnce {
			break
		}
		l.room = append(append(l.room, e...), '\n')
		n++
	}
	return n
}

func (l *lines) close() error {
	if l.closer == nil {
		return nil
	}
	return l.closer.Close()
}
