package store

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// failure is how a member of etcd ends that cannot go on. etcd says so to its logger, and expects that the process ends.
// Here the goroutine that said it never goes on, so that nothing is done after what must not be left undone, and the
// process learns of it and decides.
type failure struct {
	once   sync.Once
	failed chan struct{} // closed when the member has failed
	// What follows is set before failed is closed.
	err error // why
	// inDatabase is whether it failed in the database, whose lock is held from then on.
	inDatabase bool
	// inApply is whether it failed while it applied what was committed, or after.
	inApply bool
}

func newFailure() *failure { return &failure{failed: make(chan struct{})} }

// logger is l for one member.
func (f *failure) logger(l *zap.Logger) *zap.Logger {
	return l.WithOptions(zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// OnWrite implements zapcore.CheckWriteHook: it is called after a line was logged that etcd does not survive. It does not
// return.
func (f *failure) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	f.once.Do(func() {
		f.err = errors.New(e.Message)
		if cause := causeIn(fields); cause != nil {
			f.err = fmt.Errorf("%s: %w", e.Message, cause)
		}
		stack := string(debug.Stack())
		f.inDatabase = strings.Contains(stack, "storage/backend.")
		f.inApply = strings.Contains(stack, "(*EtcdServer).applyAll")
		close(f.failed)
	})
	select {}
}

func causeIn(fields []zapcore.Field) error {
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return err
		}
	}
	return nil
}

// isDiskFull is whether an error is that of a disk without room.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isOfDisk is whether an error is that of a disk, which may be gone after another try.
func isOfDisk(err error) bool { return isDiskFull(err) || errors.Is(err, syscall.EIO) }
