package pki

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// settle gives a writer that replaces a certificate and then its key time to write both.
const settle = 100 * time.Millisecond

// WatchFiles calls reload when one of files may have changed, every minute, and on the Wake in ctx, until ctx ends.
// It watches the directories, because mounted Secrets are replaced by changing a symbolic link above the file.
// Repeated equal errors are logged once. If the first name is empty, it only waits. While files cannot be watched,
// for example because the machine has no inotify instances left, only the reload every minute remains.
func WatchFiles(ctx context.Context, log *zap.Logger, files []string, reload func() (changed bool, err error)) error {
	if files[0] == "" {
		<-ctx.Done()
		return nil
	}
	s := fileWatcher{files: files, log: log, disabled: ctx.Value(pollKey{}) != nil}
	defer s.close()
	s.open()
	wake, _ := ctx.Value(wakeKey{}).(*Wake)
	woken := wake.next()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	// The first event of a change sets the timer; later events do not postpone it. It is set initially because a
	// change between the first reading and the start of the watch causes no event.
	settled := time.After(settle)
	var complaint string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.events:
			if settled == nil {
				settled = time.After(settle)
			}
			continue
		case err := <-s.errors:
			log.Warn("file watcher error", zap.String("file", files[0]), zap.Error(err))
			continue
		case <-settled:
			settled = nil
		case <-woken:
			woken = wake.next()
		case <-poll.C:
			s.open()
		}
		changed, err := reload()
		switch {
		case err != nil && err.Error() != complaint:
			complaint = err.Error()
			log.Error("failed to reload files; the last valid version stays in use", zap.Strings("files", files), zap.Error(err))
		case err == nil && changed:
			log.Info("reloaded", zap.Strings("files", files))
			complaint = ""
		case err == nil:
			complaint = ""
		}
	}
}

type pollKey struct{}

// PollOnly returns a context with which WatchFiles uses no notifications of the kernel. A goroutine that waits for them keeps
// virtual time from passing in a bubble of testing/synctest.
func PollOnly(ctx context.Context) context.Context { return context.WithValue(ctx, pollKey{}, true) }

// Wake triggers a reload of all files that are watched with its context. The zero value is ready to use.
type Wake struct {
	mu    sync.Mutex
	woken chan struct{} // nil without waiters
}

type wakeKey struct{}

// In returns a context for WatchFiles that contains w.
func (w *Wake) In(ctx context.Context) context.Context { return context.WithValue(ctx, wakeKey{}, w) }

// Wake triggers a reload without waiting for it.
func (w *Wake) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken != nil {
		close(w.woken)
		w.woken = nil
	}
}

// next returns a channel that is closed by the next Wake.
func (w *Wake) next() <-chan struct{} {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken == nil {
		w.woken = make(chan struct{})
	}
	return w.woken
}

// fileWatcher watches the directories of files, as soon as that is possible.
type fileWatcher struct {
	files    []string
	log      *zap.Logger
	disabled bool
	watcher  *fsnotify.Watcher // nil until files can be watched
	events   <-chan fsnotify.Event
	errors   <-chan error
	warned   bool // a warning has been logged
}

// open starts watching, unless it has already started.
func (w *fileWatcher) open() {
	if w.watcher != nil || w.disabled {
		return
	}
	watcher, err := watchDirectories(w.files)
	if err != nil {
		if !w.warned {
			w.log.Warn("cannot watch files; polling them every minute (if too many files are open, raise fs.inotify.max_user_instances)",
				zap.Strings("files", w.files), zap.Error(err))
		}
		w.warned = true
		return
	}
	w.watcher, w.events, w.errors = watcher, watcher.Events, watcher.Errors
}

func (w *fileWatcher) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
}

// watchDirectories watches the directories of files until Close is called.
func watchDirectories(files []string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := watcher.Add(filepath.Dir(f)); err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", filepath.Dir(f), err), watcher.Close())
		}
	}
	return watcher, nil
}

func readFile(name string) ([]byte, error) {
	return ReadFile(name, MaxPEMBytes, fmt.Errorf("%s is larger than %d bytes", name, MaxPEMBytes))
}

// ReadFile reads a file. It returns tooLarge if the file is longer than limit bytes.
func ReadFile(name string, limit int64, tooLarge error) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, tooLarge
	}
	return data, nil
}

// WatchedFile holds the last valid version of a configuration file that may be edited while in use. An edit takes
// effect almost immediately, or within a minute if the file system does not report it. If an edit is invalid, the
// last valid version stays in use, and Stale and the log report the error. Current and Stale are safe for concurrent
// use.
type WatchedFile[T any] struct {
	name    string
	load    func(name string) (T, error)
	current atomic.Pointer[T]
	problem atomic.Pointer[error]
	read    os.FileInfo // the file info of current; used only by OpenWatchedFile and Run
}

// OpenWatchedFile reads a file with load. If name is empty, load is called once and Run only waits.
func OpenWatchedFile[T any](name string, load func(name string) (T, error)) (*WatchedFile[T], error) {
	f := &WatchedFile[T]{name: name, load: load}
	if err := f.reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Current returns the last valid version.
func (f *WatchedFile[T]) Current() T { return *f.current.Load() }

// Stale returns why the current content of the file is not in use, or nil.
func (f *WatchedFile[T]) Stale() error {
	if p := f.problem.Load(); p != nil {
		return *p
	}
	return nil
}

func (f *WatchedFile[T]) reload() error {
	var info os.FileInfo
	if f.name != "" {
		// Stat before reading, so that a concurrent write is detected as a change by the next check.
		var err error
		if info, err = os.Stat(f.name); err != nil {
			return err
		}
	}
	value, err := f.load(f.name)
	if err != nil {
		return err
	}
	f.current.Store(&value)
	f.read = info
	return nil
}

func (f *WatchedFile[T]) changed() bool {
	info, err := os.Stat(f.name)
	return err != nil || !os.SameFile(info, f.read) || info.Size() != f.read.Size() || !info.ModTime().Equal(f.read.ModTime())
}

// Run reloads the file when it changes, until ctx ends. tried is called with the result of each attempt to read a
// changed file. A repeated equal error is reported once.
func (f *WatchedFile[T]) Run(ctx context.Context, log *zap.Logger, tried func(error)) error {
	return WatchFiles(ctx, log, []string{f.name}, func() (changed bool, err error) {
		before := f.Stale()
		if before == nil && !f.changed() {
			return false, nil
		}
		if err := f.reload(); err != nil {
			f.problem.Store(&err)
			if before == nil || before.Error() != err.Error() {
				tried(err)
			}
			return false, err
		}
		f.problem.Store(nil)
		tried(nil)
		return true, nil
	})
}
