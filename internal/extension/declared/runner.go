package declared

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

const (
	// settle lets a writer of several files finish, and several schemas change, before everything is looked at.
	settle = 200 * time.Millisecond
	// pollInterval is the backstop for changes that the file system does not announce.
	pollInterval = 30 * time.Second
)

// runner is what Run holds while it runs.
type runner struct {
	set     *Set
	running map[*live]func() // ends the resource and waits for it
}

// keep runs what is served and ends what is not.
func (r *runner) keep(ctx context.Context) {
	r.set.mu.Lock()
	lives := slices.Clone(r.set.lives)
	r.set.mu.Unlock()
	for l, stop := range r.running {
		if !slices.Contains(lives, l) {
			stop()
			delete(r.running, l)
		}
	}
	for _, l := range lives {
		if r.running[l] == nil {
			r.running[l] = begin(ctx, l)
		}
	}
}

func begin(ctx context.Context, l *live) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (r *runner) stopAll() {
	for _, stop := range r.running {
		stop()
	}
}

// follow reloads when files change and applies when schemas do. Where nothing can be watched, as on machines that have given
// all their inotify instances away, it looks at the files from time to time.
func (r *runner) follow(ctx context.Context) error {
	var events <-chan fsnotify.Event
	var complaints <-chan error
	if watcher, err := watch(r.set.config.Paths); err == nil {
		defer watcher.Close()
		events, complaints = watcher.Events, watcher.Errors
	} else {
		r.set.log.Warn("files of declared resources cannot be watched, and are looked at every half minute (too many open files: raise fs.inotify.max_user_instances)", zap.Error(err))
	}
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var changed, reshaped <-chan time.Time // set by the first sign; later ones do not put it off
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
			if changed == nil {
				changed = time.After(settle)
			}
		case err := <-complaints:
			r.set.log.Warn("file watcher of declared resources", zap.Error(err))
		case <-r.set.reshaped:
			if reshaped == nil {
				reshaped = time.After(settle)
			}
		case <-reshaped:
			reshaped = nil
			r.apply()
		case <-changed:
			changed = nil
			r.reload(ctx)
		case <-poll.C:
			r.reload(ctx)
		}
	}
}

// watch watches files and directories. Close ends it.
func watch(paths []string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		// The directory above a file too: editors and mounted ConfigMaps replace files instead of writing them.
		_ = watcher.Add(p)
		if err := watcher.Add(filepath.Dir(p)); err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", filepath.Dir(p), err), watcher.Close())
		}
	}
	return watcher, nil
}

// reload reads the files and serves what they say. Of a file that has become wrong, what it said before stays.
func (r *runner) reload(ctx context.Context) {
	s := r.set
	found, mistakes, err := s.read()
	if err != nil {
		s.note("files", err)
		return
	}
	s.note("files", nil)
	wrong := map[string]MistakesError{}
	for _, m := range mistakes {
		wrong[m.File] = append(wrong[m.File], m)
	}
	s.mu.Lock()
	for file := range wrong {
		if before, ok := s.good[file]; ok && fits(before, found) {
			found[file] = before
		}
	}
	lives, gone := s.renewed(found)
	same := len(gone) == 0 && len(lives) == len(s.lives)
	s.good, s.lives = found, lives
	s.mu.Unlock()
	s.noteMistakes(wrong)
	if same {
		return
	}
	s.log.Info("declared resources changed", zap.Int("resources", len(lives)), zap.Int("files", len(found)))
	r.keep(ctx)
	r.apply()
}

// fits is whether what a file said before can stand beside what the others say now.
func fits(before []*definition, found map[string][]*definition) bool {
	return len(clashes(before, found)) == 0
}

func (r *runner) apply() {
	if r.set.config.Apply == nil {
		return
	}
	err := r.set.config.Apply(r.set.Resources())
	if err != nil {
		err = fmt.Errorf("host declared resources: %w", err)
	}
	r.set.note("host", err)
}

// note keeps trouble of one kind for Trouble, and logs it when it is new.
func (s *Set) note(what string, err error) {
	s.mu.Lock()
	before := s.trouble[what]
	if err == nil {
		delete(s.trouble, what)
	} else {
		s.trouble[what] = err
	}
	s.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.log.Error("kept the declared resources as they were", zap.Error(err))
	case err == nil && before != nil:
		s.log.Info("declared resources are well again", zap.String("what", what))
	}
}

// noteMistakes notes the mistakes of each file, and forgets those that have been mended.
func (s *Set) noteMistakes(wrong map[string]MistakesError) {
	s.mu.Lock()
	known := sortedKeys(s.trouble)
	s.mu.Unlock()
	for _, what := range known {
		if file, ok := strings.CutPrefix(what, filePrefix); ok && wrong[file] == nil {
			s.note(what, nil)
		}
	}
	for _, file := range sortedKeys(wrong) {
		s.note(filePrefix+file, errors.Join(wrong[file].orNil()))
	}
}

// filePrefix tells the trouble of a file from other trouble.
const filePrefix = "file "

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
