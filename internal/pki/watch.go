package pki

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// settle lets a writer that replaces a certificate and then its key finish both before they are read.
const settle = 100 * time.Millisecond

// WatchFiles calls reload whenever one of files may have changed, and every minute, until ctx ends. It watches the
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
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxPEMBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxPEMBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, MaxPEMBytes)
	}
	return data, nil
}
