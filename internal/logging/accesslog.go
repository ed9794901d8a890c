package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// maxQueuedAccess bounds the lines of the access log that wait for its file.
	maxQueuedAccess = 8 << 20
	// maxAccessWrite bounds one write of the access log, unless a single line is larger.
	maxAccessWrite = 64 << 10
	// accessCloseTimeout is how long the file may take at shutdown to take the waiting lines.
	accessCloseTimeout = 5 * time.Second
)

// AccessDestination is the flag that enables the access log and selects its destination. A boolean enables the access log in
// the log of the program, or disables it. Other values are a file, "-" for standard output, or "off".
type AccessDestination struct {
	Enabled *bool
	Path    *string
}

// AccessDestinationType is the type of the flag in help texts. Fields of configuration files are a boolean or a string.
const AccessDestinationType = "file"

// AddTo adds the flag, which is true if it has no value.
func (d AccessDestination) AddTo(fs *pflag.FlagSet) {
	fs.Var(d, "access-log", `log one line for each request: true in the log of this program, FILE in a separate file, "-" on standard output; false or off disables it`)
	fs.Lookup("access-log").NoOptDefVal = "true"
}

// Type implements pflag.Value.
func (AccessDestination) Type() string { return AccessDestinationType }

// String implements pflag.Value.
func (d AccessDestination) String() string {
	if d.Enabled == nil { // pflag calls it for a zero value
		return ""
	}
	if *d.Enabled && *d.Path != "" {
		return *d.Path
	}
	return strconv.FormatBool(*d.Enabled)
}

// Set implements pflag.Value.
func (d AccessDestination) Set(text string) error {
	enabled, err := strconv.ParseBool(text)
	switch {
	case err == nil:
		*d.Enabled, *d.Path = enabled, ""
	case text == "off":
		*d.Enabled, *d.Path = false, ""
	case text == "":
		return fmt.Errorf("no value: want true, off, a file, or - for standard output")
	default:
		*d.Enabled, *d.Path = true, text
	}
	return nil
}

// AccessLog writes an access log to a separate destination. Requests do not wait for the destination: lines are written in
// the background, ten times a second. Lines are dropped while too many wait, and counted in the log of the program.
type AccessLog struct {
	log  *zap.Logger
	out  io.WriteCloser
	wake chan struct{} // holds a value while lines are pending

	mu      sync.Mutex // guards the fields below
	pending []byte
	spare   []byte // buffer for the next pending lines
	dropped int
}

// OpenAccessLog opens the destination. The result reports failures to log.
func OpenAccessLog(f File, log *zap.Logger) (*AccessLog, error) {
	out, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("--access-log: %w", err)
	}
	return &AccessLog{log: log, out: out, wake: make(chan struct{}, 1)}, nil
}

// Logger returns the logger of the access log. It has the format of the program's log, and JSON if another package made that
// log. Its level is info, independent of the level of the program's log.
func (a *AccessLog) Logger() *zap.Logger {
	return a.log.Named("access").WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		encoder := newJSONEncoder()
		if c, ok := c.(core); ok {
			encoder = c.encoder.Clone()
		}
		return zapcore.NewCore(encoder, a, zapcore.InfoLevel)
	}))
}

// Write implements zapcore.WriteSyncer. It does not wait.
func (a *AccessLog) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending)+len(line) > maxQueuedAccess {
		a.dropped++
		return len(line), nil
	}
	a.pending = append(a.pending, line...)
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

// Sync implements zapcore.WriteSyncer. Run writes all lines before it returns.
func (a *AccessLog) Sync() error { return nil }

// Run writes lines until ctx ends, then the remaining ones, and closes the destination.
func (a *AccessLog) Run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.writeUntil(ctx)
	}()
	<-ctx.Done()
	timer := time.NewTimer(accessCloseTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C: // the goroutine is blocked in a write that cannot be canceled
		a.log.Error("access log did not take the last lines in time; they are lost", zap.Duration("after", accessCloseTimeout))
	}
	return nil
}

// writeUntil writes lines until ctx ends. The first line after a pause is written at once.
func (a *AccessLog) writeUntil(ctx context.Context) {
	var last error
	flush := func() {
		err := a.flush()
		if err != nil && last == nil {
			a.log.Error("failed to write the access log; requests are served without it until it can be written", zap.Error(err))
		}
		last = err
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-a.wake:
			flush()
			select {
			case <-ctx.Done():
			case <-time.After(flushInterval):
			}
		}
	}
	flush()
	if err := a.out.Close(); err != nil {
		a.log.Error("failed to close the access log", zap.Error(err))
	}
}

// flush writes the pending lines. Lines that cannot be written are lost.
func (a *AccessLog) flush() error {
	a.mu.Lock()
	lines, dropped := a.pending, a.dropped
	a.pending, a.spare, a.dropped = a.spare[:0], nil, 0
	a.mu.Unlock()
	if dropped > 0 {
		a.log.Warn("lines of the access log were dropped because its destination is too slow", zap.Int("dropped", dropped))
	}
	var err error
	for rest := lines; len(rest) > 0 && err == nil; {
		n := wholeLines(rest)
		_, err = a.out.Write(rest[:n])
		rest = rest[n:]
	}
	if cap(lines) <= 4*maxAccessWrite { // a burst does not keep its memory
		a.mu.Lock()
		a.spare = lines[:0]
		a.mu.Unlock()
	}
	return err
}

// wholeLines returns the length of the first lines that fit into a write, or of the first line if it does not fit.
func wholeLines(lines []byte) int {
	if len(lines) <= maxAccessWrite {
		return len(lines)
	}
	if end := bytes.LastIndexByte(lines[:maxAccessWrite], '\n'); end >= 0 {
		return end + 1
	}
	return bytes.IndexByte(lines, '\n') + 1 // every line ends with a line feed
}
