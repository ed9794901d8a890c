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
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	rotating := &lumberjack.Logger{
		Filename: c.LogPath, MaxAge: c.LogMaxAge, MaxBackups: c.LogMaxBackups, MaxSize: c.LogMaxSize, Compress: c.LogCompress,
	}
	return &lines{out: rotating, closer: rotating}, nil
}

// send writes event by event: a batch may be larger than a file may become.
func (l *lines) send(_ context.Context, events [][]byte) (written int, err error) {
	var errs []error
	for _, e := range events {
		if _, err := l.out.Write(append(e, '\n')); err != nil {
			errs = append(errs, err)
			continue
		}
		written++
	}
	return written, errors.Join(errs...)
}

func (l *lines) close() error {
	if l.closer == nil {
		return nil
	}
	return l.closer.Close()
}
