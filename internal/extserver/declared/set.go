package declared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"portico.dev/pkg/extension"
)

// Config configures a Set.
type Config struct {
	// Paths are files and directories. In a directory, all *.yaml and *.yml files are read, except hidden ones.
	Paths []string
	// AllowExec allows files to specify commands, which run with the permissions of this server. Enable it only if all users
	// with write access to the files have these permissions anyway. Default: such files are rejected.
	AllowExec bool
	// ProcPath is the mount point of procfs. Default: /proc.
	ProcPath string
	// Apply is called with every new list of resources while Run runs. It is Host.SetResources, or a function that adds other
	// resources and calls it.
	Apply func([]extension.Resource) error
	// Logger logs changes and failures. Default: no logging.
	Logger *zap.Logger
}

// Set contains all declared resources. New reads the files, and Run keeps the resources up to date.
type Set struct {
	config Config
	log    *zap.Logger
	reader reader
	// reshaped has a token if an inferred schema has changed since the last call of Apply.
	reshaped chan struct{}

	mu      sync.Mutex // guards the fields below
	good    map[string][]*definition
	lives   []*liveResource
	trouble map[string]error // keyed by file, or "host"
}

// New reads the files. If any of them is invalid, it returns a MistakesError with all mistakes, because a warning at the
// start could be overlooked. It returns another error if a path cannot be read. It does not query sources.
func New(c Config) (*Set, error) {
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	s := &Set{config: c, log: c.Logger, reader: reader{allowExec: c.AllowExec, procRoot: c.ProcPath},
		reshaped: make(chan struct{}, 1), trouble: map[string]error{}}
	found, mistakes, err := s.read()
	if err != nil {
		return nil, err
	}
	if err := mistakes.orNil(); err != nil {
		return nil, err
	}
	s.good = found
	s.lives, _ = s.renewed(found)
	return s, nil
}

// Check reads files as New does and returns the number of resources that they declare.
func Check(c Config) (resources int, err error) {
	s, err := New(c)
	if err != nil {
		return 0, err
	}
	return len(s.lives), nil
}

// Resources returns the current resources.
func (s *Set) Resources() []extension.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]extension.Resource, len(s.lives))
	for i, l := range s.lives {
		out[i] = l.resource()
	}
	return out
}

// Sources returns the sources of all resources, and a source that represents the files.
func (s *Set) Sources() []extension.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []extension.Source{{Name: "declared-resources", LastError: s.LastError}}
	for _, l := range s.lives {
		out = append(out, extension.Source{Name: "declared/" + l.definition.gvr.GroupResource().String() + "/" + l.definition.gvr.Version, LastError: l.LastError})
	}
	return out
}

// LastError returns the errors of the files and of the last Apply. The previous resources remain in effect.
func (s *Set) LastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []error
	for _, what := range sortedKeys(s.trouble) {
		all = append(all, s.trouble[what])
	}
	return errors.Join(all...)
}

// files returns the files in Paths, sorted by name.
func (s *Set) files() ([]string, error) {
	var out []string
	for _, p := range s.config.Paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("declared resources: %w", err)
		}
		if !info.IsDir() {
			out = append(out, p)
			continue
		}
		entries, err := os.ReadDir(p)
		if err != nil {
			return nil, fmt.Errorf("declared resources: %w", err)
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") {
				out = append(out, filepath.Join(p, e.Name()))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// read parses all files. found does not contain files with mistakes.
func (s *Set) read() (found map[string][]*definition, mistakes MistakesError, err error) {
	files, err := s.files()
	if err != nil {
		return nil, nil, err
	}
	found = map[string][]*definition{}
	for _, file := range files {
		definitions, wrong := s.reader.file(file)
		if len(wrong) == 0 {
			wrong = clashes(definitions, found)
		}
		if len(wrong) == 0 {
			found[file] = definitions
		}
		mistakes = append(mistakes, wrong...)
	}
	return found, mistakes, nil
}

// clashes returns the conflicts of definitions with the definitions of other files.
func clashes(definitions []*definition, others map[string][]*definition) (mistakes MistakesError) {
	for _, d := range definitions {
		for _, file := range sortedKeys(others) {
			for _, other := range others[file] {
				if problem := d.clash(other); problem != "" {
					mistakes = append(mistakes, d.mistake(problem))
				}
			}
		}
	}
	return mistakes
}

// renewed returns the liveResources for found. Unchanged definitions keep their liveResource, with its data and watches. gone
// contains the liveResources that are no longer needed.
func (s *Set) renewed(found map[string][]*definition) (lives, gone []*liveResource) {
	gone = slices.Clone(s.lives)
	for _, file := range sortedKeys(found) {
		for _, d := range found[file] {
			i := slices.IndexFunc(gone, func(l *liveResource) bool { return l.definition.digest == d.digest })
			if i >= 0 {
				lives, gone = append(lives, gone[i]), slices.Delete(gone, i, i+1)
				continue
			}
			lives = append(lives, newLiveResource(d, s.log, s.noteReshaped))
		}
	}
	return lives, gone
}

func (s *Set) noteReshaped() {
	select {
	case s.reshaped <- struct{}{}:
	default: // the pending token covers this change
	}
}

// Run queries the sources and watches the files until ctx ends. It returns after its goroutines have ended.
func (s *Set) Run(ctx context.Context) error {
	r := &runner{set: s, running: map[*liveResource]func(){}}
	defer r.stopAll()
	r.keep(ctx)
	return r.follow(ctx)
}

const (
	// settle is the delay after a change. It lets a writer finish several files, and merges changes of several schemas.
	settle = 200 * time.Millisecond
	// firstAnswer is how long a new resource waits for its source before it is hosted. The inferred schema is then complete
	// from the beginning, and clients that rarely read OpenAPI do not see an empty one.
	firstAnswer = 2 * time.Second
	// pollInterval is the polling interval for changes without a file system event.
	pollInterval = 30 * time.Second
)

// runner is the state of Run.
type runner struct {
	set     *Set
	running map[*liveResource]func() // stops the resource and waits for it
}

// keep starts new resources and stops removed ones.
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

func begin(ctx context.Context, l *liveResource) (stop func()) {
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

// follow reloads the files when they change and calls Apply when schemas change. If the files cannot be watched, e.g. because
// the machine has no free inotify instances, it only polls.
func (r *runner) follow(ctx context.Context) error {
	var events <-chan fsnotify.Event
	var complaints <-chan error
	if watcher, err := watch(r.set.config.Paths); err == nil {
		defer watcher.Close()
		events, complaints = watcher.Events, watcher.Errors
	} else {
		r.set.log.Warn("cannot watch the files of declared resources; polling them every 30s (if too many files are open, raise fs.inotify.max_user_instances)", zap.Error(err))
	}
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var changed, reshaped <-chan time.Time // set by the first event; later events do not extend the delay
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
			if changed == nil {
				changed = time.After(settle)
			}
		case err := <-complaints:
			r.set.log.Warn("file watcher error for declared resources", zap.Error(err))
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

// watch watches files and directories until the watcher is closed.
func watch(paths []string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		// Watch the parent directory too, because editors and mounted ConfigMaps replace files instead of writing to them.
		_ = watcher.Add(p)
		if err := watcher.Add(filepath.Dir(p)); err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", filepath.Dir(p), err), watcher.Close())
		}
	}
	return watcher, nil
}

// reload reads the files and updates the resources. For a file that has become invalid, the previous definitions remain in
// effect.
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
	r.awaitAnswers(ctx)
	r.apply()
}

// awaitAnswers waits until each source has answered or failed once, up to firstAnswer.
func (r *runner) awaitAnswers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	for l := range r.running {
		select {
		case <-l.fetched:
		case <-ctx.Done():
			return
		}
	}
}

// fits reports whether the previous definitions of a file do not conflict with found.
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

// note sets or clears an error for LastError, and logs it if it has changed.
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
		s.log.Error("failed to update the declared resources; the previous ones stay in use", zap.Error(err))
	case err == nil && before != nil:
		s.log.Info("declared resources recovered", zap.String("what", what))
	}
}

// noteMistakes sets the mistakes of each file and clears the mistakes of corrected files.
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

// filePrefix distinguishes the keys of files in trouble from other keys.
const filePrefix = "file "

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
