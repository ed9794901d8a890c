package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
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

const (
	// maxAbandoned is how many members that failed and could not be stopped a process carries: each keeps its memory.
	maxAbandoned = 8
	// abandonTimeout bounds how long a failed member may take to come to rest.
	abandonTimeout = 30 * time.Second
	// idleCheckInterval is how often it is looked at; it is at rest when it was so restLooks times in a row.
	idleCheckInterval = 50 * time.Millisecond
	idleChecks        = 3
)

// abandon leaves a member that has failed. Its goroutines that met the failure never go on, and others wait for those, so
// that it cannot be stopped; what can be stopped of it is. abandon returns when nothing of it runs any more and the locks on its
// files are gone, so that another member may open them. stopped is whether nothing of it is left.
func (m *runningMember) abandon(ctx context.Context, dataDir string) (stopped bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
	defer cancel()
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

// closeDatabase writes what the database holds in memory to its file and closes it, when all that was committed has been
// applied. It is for a member whose stop waits for a goroutine that failed outside of the database, and so never gets to
// closing the database itself.
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

// etcdIsIdle is whether no goroutine is at work in etcd's packages: all of them wait for something. The raft goroutine that is
// left over waits for somebody who would take what it has, before it writes anything.
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

// unlockFiles removes the locks that this process holds on files below dir. Whoever locked them never will.
func unlockFiles(dir string) error {
	const own = "/proc/self/fd"
	entries, err := os.ReadDir(own)
	if err != nil {
		return fmt.Errorf("release the files in %s: %w", dir, err)
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("release the files: %w", err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || !isBelow(dir, fd) {
			continue
		}
		// Another goroutine may close the descriptor and open something else under its number at any moment: what is unlocked
		// is a duplicate, which was looked at after it was made.
		duplicate, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			continue // it has been closed
		}
		if isBelow(dir, duplicate) {
			err = unlock(duplicate)
		}
		_ = unix.Close(duplicate)
		if err != nil {
			return fmt.Errorf("release the files in %s: %w", dir, err)
		}
	}
	return nil
}

func isBelow(dir string, fd int) bool {
	name, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
	return err == nil && strings.HasPrefix(name, dir+"/")
}

// unlock removes both kinds of lock that etcd takes: bbolt's on the database, and that on the segments of the log.
func unlock(fd int) error {
	if err := unix.Flock(fd, unix.LOCK_UN); err != nil {
		return err
	}
	return syscall.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &syscall.Flock_t{Type: syscall.F_UNLCK})
}
