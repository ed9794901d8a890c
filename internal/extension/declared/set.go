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

// Config makes a Set.
type Config struct {
	// Paths are files, and directories whose *.yaml and *.yml files are meant (hidden ones are not).
	Paths []string
	// AllowExec lets files name commands to run: with the rights of this server, so only where whoever may write the
	// files has those rights anyway. Default: such files are refused.
	AllowExec bool
	// ProcPath is where procfs is mounted. Default /proc.
	ProcPath string
	// Apply is told of every new list of resources while Run runs: Host.SetResources, or what adds others and calls it.
	Apply func([]extension.Resource) error
	// Logger is told of changes and failures. Default: silence.
	Logger *zap.Logger
}

// Set is every declared resource. New reads the files, Run keeps everything current.
type Set struct {
	config Config
	log    *zap.Logger
	reader reader
	// reshaped has a token while an inferred schema has changed and the host does not know yet.
	reshaped chan struct{}

	mu      sync.Mutex // guards what follows
	good    map[string][]*definition
	lives   []*liveResource
	trouble map[string]error // by file, or "host"
}

// New reads the files. The error is a MistakesError with everything that is wrong in any of them, or says that there
// are none: at the start, nobody would see a warning. It asks no source.
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

// Check reads files as New does and says how many resources they declare.
func Check(c Config) (resources int, err error) {
	s, err := New(c)
	if err != nil {
		return 0, err
	}
	return len(s.lives), nil
}

// Resources are what is to be hosted now.
func (s *Set) Resources() []extension.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]extension.Resource, len(s.lives))
	for i, l := range s.lives {
		out[i] = l.resource()
	}
	return out
}

// Sources are the sources of all resources, and the files themselves.
func (s *Set) Sources() []extension.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []extension.Source{{Name: "declared-resources", LastError: s.LastError}}
	for _, l := range s.lives {
		out = append(out, extension.Source{Name: "declared/" + l.definition.gvr.GroupResource().String() + "/" + l.definition.gvr.Version, LastError: l.LastError})
	}
	return out
}

// LastError is what is wrong with the files, or with hosting what they say; what they said before is served meanwhile.
func (s *Set) LastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []error
	for _, what := range sortedKeys(s.trouble) {
		all = append(all, s.trouble[what])
	}
	return errors.Join(all...)
}

// files are the files that Paths mean now, in the order of Paths and of names.
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

// read reads all files. A file with mistakes is not in found.
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

// clashes are the mistakes of saying again, or otherwise, what another file says.
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

// renewed is what serves found: for what is declared as before the live resource of before, with its data and its
// watches, and new ones for the rest. gone are those that are not served any more.
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
	default: // it will be seen together with the change that is waiting
	}
}

// Run asks the sources and follows the files until ctx ends. It returns after everything that it started has.
func (s *Set) Run(ctx context.Context) error {
	r := &runner{set: s, running: map[*liveResource]func(){}}
	defer r.stopAll()
	r.keep(ctx)
	return r.follow(ctx)
}

const (
	// settle lets a writer of several files finish, and several schemas change, before everything is looked at.
	settle = 200 * time.Millisecond
	// firstAnswer is how long a newly declared resource waits for its source before it is hosted: an inferred schema is there from the
	// beginning then, and clients of OpenAPI, which ask rarely, do not find an empty one.
	firstAnswer = 2 * time.Second
	// pollInterval is the backstop for changes that the file system does not announce.
	pollInterval = 30 * time.Second
)

// runner is what Run holds while it runs.
type runner struct {
	set     *Set
	running map[*liveResource]func() // ends the resource and waits for it
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
	r.awaitAnswers(ctx)
	r.apply()
}

// awaitAnswers waits until each source has answered or failed once, for firstAnswer at most.
func (r *runner) awaitAnswers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	for l := range r.running {
		select {
		case <-l.asked:
		case <-ctx.Done():
			return
		}
	}
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

// note keeps trouble of one kind for LastError, and logs it when it is new.
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
