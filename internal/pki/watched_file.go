package pki

import (
	"context"
	"os"
	"sync/atomic"

	"go.uber.org/zap"
)

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
