package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// failure is the fatal error of a member of etcd. etcd logs such an error and expects the logger to end the process. Here the
// goroutine that logged it blocks forever, so that it does nothing more, and the process decides how to proceed.
type failure struct {
	once   sync.Once
	failed chan struct{} // closed when the member has failed
	// The following fields are set before failed is closed.
	err error // cause of the failure
	// inDatabase reports whether the member failed in the database. The lock of the database is then held forever.
	inDatabase bool
	// inApply reports whether it failed while it applied committed entries, or afterwards.
	inApply bool
}

func newFailure() *failure { return &failure{failed: make(chan struct{})} }

// logger returns the logger of one member.
func (f *failure) logger(l *zap.Logger) *zap.Logger {
	return l.WithOptions(zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// OnWrite implements zapcore.CheckWriteHook. It is called after etcd has logged a fatal error, and does not return.
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

// isDiskFull reports whether an error means that the disk is full.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isOfDisk reports whether an error is a disk error, which may be temporary.
func isOfDisk(err error) bool { return isDiskFull(err) || errors.Is(err, syscall.EIO) }

const (
	// maxAbandoned bounds the failed members that could not be stopped, because each of them keeps its memory.
	maxAbandoned = 8
	// abandonTimeout bounds the time until a failed member is idle.
	abandonTimeout = 30 * time.Second
	// idleCheckInterval is the interval between checks. A member is idle after idleChecks successful checks in a row.
	idleCheckInterval = 50 * time.Millisecond
	idleChecks        = 3
)

// abandon gives up a member that has failed. Such a member cannot be stopped, because the goroutines that met the failure are
// blocked forever, and other goroutines wait for them. abandon stops the remaining parts. It returns when they are idle and the
// locks on the member's files are released, so that another member can open them. stopped reports whether the member has ended
// completely.
func (m *runningMember) abandon(ctx context.Context, dataDir string) (stopped bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
	defer cancel()
	m.closePeers()
	var done <-chan struct{}
	if m.server != nil {
		done = m.server.StopNotify()
		go m.server.Stop()
		if !m.failure.inDatabase {
			go m.closeDatabase(ctx)
		}
	}
	tick := time.NewTicker(idleCheckInterval)
	defer tick.Stop()
	for rested := 0; rested < idleChecks; {
		select {
		case <-done:
			return true, nil
		case <-ctx.Done():
			return false, fmt.Errorf("%w: it failed (%w) and did not come to rest within %s", errStillWrites, m.failure.err, abandonTimeout)
		case <-tick.C:
			if rested++; !etcdIsIdle() {
				rested = 0
			}
		}
	}
	return false, unlockFiles(filepath.Join(dataDir, memberDir))
}

// closeDatabase flushes and closes the database after all committed entries have been applied. It serves a member that cannot
// close its database, because its stop waits for a goroutine that failed outside of the database.
func (m *runningMember) closeDatabase(ctx context.Context) {
	tick := time.NewTicker(idleCheckInterval)
	defer tick.Stop()
	select {
	case <-m.server.StoppingNotify():
	case <-ctx.Done():
		return
	}
	for m.server.AppliedIndex() < m.server.CommittedIndex() && !m.failure.inApply {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	_ = m.server.KV().Close()
	_ = m.server.Backend().Close()
}

// etcdIsIdle reports whether all goroutines in etcd's packages are blocked. A remaining raft goroutine waits for a receiver
// before it writes anything.
func etcdIsIdle() bool {
	stacks := make([]byte, 1<<20)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		head, frames, _ := strings.Cut(stack, "\n")
		_, state, _ := strings.Cut(head, "[")
		state, _, _ = strings.Cut(strings.TrimRight(state, "]:"), ",")
		working := state == "running" || state == "runnable" || state == "syscall" || state == "sleep"
		if working && (strings.Contains(frames, "go.etcd.io/etcd/server/") || strings.Contains(frames, "go.etcd.io/bbolt")) {
			return false
		}
	}
	return true
}
