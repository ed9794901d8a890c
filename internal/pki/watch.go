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

// settle lets a writer that replaces a certificate and then its key finish both before they are read.
const settle = 100 * time.Millisecond

// WatchFiles calls reload whenever one of files may have changed, every minute, and when ctx has a Wake that is woken, until ctx ends. It watches the
// directories, because mounted secrets are replaced by switching a symbolic link above the file. An error is logged
// once for as long as it stays the same. Without a file, or with an empty name, it just waits. As long as files cannot
// be watched, as on machines that have no inotify instances left, only the reload every minute remains.
func WatchFiles(ctx context.Context, log *zap.Logger, files []string, reload func() (changed bool, err error)) error {
	if files[0] == "" {
		<-ctx.Done()
		return nil
	}
	s := fileWatcher{files: files, log: log}
	defer s.close()
	s.open()
	wake, _ := ctx.Value(wakeKey{}).(*Wake)
	woken := wake.next()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	// Set by the first event of a change; later ones do not put it off. Set now, because what changed between the first
	// reading and the watch has no event.
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
			log.Warn("file watcher", zap.String("file", files[0]), zap.Error(err))
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
			log.Error("kept the last good version of a changed file", zap.Strings("files", files), zap.Error(err))
		case err == nil && changed:
			log.Info("reloaded", zap.Strings("files", files))
			complaint = ""
		case err == nil:
			complaint = ""
		}
	}
}

// Wake has all files looked at that are followed with its context. The zero value is ready.
type Wake struct {
	mu    sync.Mutex
	woken chan struct{} // nil: nobody waits
}

type wakeKey struct{}

// In returns a context for WatchFiles.
func (w *Wake) In(ctx context.Context) context.Context { return context.WithValue(ctx, wakeKey{}, w) }

// Wake has the files looked at now. It does not wait for that.
func (w *Wake) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken != nil {
		close(w.woken)
		w.woken = nil
	}
}

// next is closed by the next Wake.
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

// fileWatcher watches the directories of files, once that is possible.
type fileWatcher struct {
	files   []string
	log     *zap.Logger
	watcher *fsnotify.Watcher // nil until files can be watched
	events  <-chan fsnotify.Event
	errors  <-chan error
	warned  bool // a warning was logged
}

// open begins to watch, if that has not been possible before.
func (w *fileWatcher) open() {
	if w.watcher != nil {
		return
	}
	watcher, err := watchDirectories(w.files)
	if err != nil {
		if !w.warned {
			w.log.Warn("files cannot be watched, and are looked at every minute (too many open files: raise fs.inotify.max_user_instances)",
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

// watchDirectories watches the directories of files. Close ends it.
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

// ReadFile reads a file. It returns tooLarge if the file has more than limit bytes.
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

// WatchedFile is the last good version of a settings file that may be edited while it is in use. An edit takes effect
// within a moment, or within a minute where the file system does not announce edits. One that cannot be read leaves the
// last good version in force; Stale and the log report it. Reading is safe for concurrent use.
type WatchedFile[T any] struct {
	name    string
	load    func(name string) (T, error)
	current atomic.Pointer[T]
	problem atomic.Pointer[error]
	read    os.FileInfo // of what current came from; only OpenWatchedFile and Run touch it
}

// OpenWatchedFile reads a file with load, whose error says what is wrong with a bad one. Without a name load is called
// once, and Run just waits.
func OpenWatchedFile[T any](name string, load func(name string) (T, error)) (*WatchedFile[T], error) {
	f := &WatchedFile[T]{name: name, load: load}
	if err := f.reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Current is the last good version.
func (f *WatchedFile[T]) Current() T { return *f.current.Load() }

// Stale is why the file as it is now is not what is in force, nil when it is.
func (f *WatchedFile[T]) Stale() error {
	if p := f.problem.Load(); p != nil {
		return *p
	}
	return nil
}

func (f *WatchedFile[T]) reload() error {
	var info os.FileInfo
	if f.name != "" {
		// Stat before reading: a write in between is seen as a change at the next check.
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

// Run reloads the file when it changes, until ctx ends. tried is called after each attempt to read a changed file, with
// nil once the new version is in force; a bad file that stays as it is counts once.
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
