package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"portico.dev/internal/pki"
)

// StateSnapshotConfig configures a copy of a part of an external etcd in a file, from which a process starts if no member
// responds.
type StateSnapshotConfig struct {
	// File is the path of the file. Its directory is created with mode 0700.
	File string
	// Secret is the secret from which the key of the file is derived. It permits creating any state.
	Secret []byte
	// MaxAge is the maximum age of a state.
	MaxAge time.Duration
	// Wait is how long a start waits for etcd. Default 10 s.
	Wait time.Duration
	// Interval is the minimum time between two writes of the file. Default 10 s.
	Interval time.Duration
	// Objects are the directories below Config.Prefix that the file contains. Frequent are additional directories with frequent
	// changes. Changes in these alone are written once per FrequentInterval. Own are prefixes of internal keys.
	Objects, Frequent, Own []string
	// FrequentInterval defaults to one minute.
	FrequentInterval time.Duration
}

const (
	// settleTime is how long a change waits for further changes.
	settleTime = 250 * time.Millisecond
	// maxRefresh bounds the time after which a file is rewritten without a change. The time is a quarter of MaxAge.
	maxRefresh = 5 * time.Minute
	// statePage is the number of keys per read.
	statePage = 500
)

func (c *StateSnapshotConfig) withDefaults() *StateSnapshotConfig {
	d := *c
	d.Wait = cmp.Or(d.Wait, 10*time.Second)
	d.Interval = cmp.Or(d.Interval, 10*time.Second)
	d.FrequentInterval = cmp.Or(d.FrequentInterval, time.Minute)
	return &d
}

// StartedFrom returns the time of the state from which this process started, or false if it started from etcd. The result is
// valid after the store is ready.
func (s *Store) StartedFrom() (at time.Time, ok bool) {
	if source := s.source.Load(); source != nil {
		return source.at, true
	}
	return time.Time{}, false
}

// UsesEtcd returns a channel that is closed when reads are served by etcd, and not from a state snapshot. It must be called
// after the store is ready.
func (s *Store) UsesEtcd() <-chan struct{} {
	if source := s.source.Load(); source != nil {
		return source.used
	}
	return s.ready
}

// HasInState reports whether the objects below a directory of Config.Prefix are in the state snapshot from which this process
// started.
func (s *Store) HasInState(directory string) bool {
	source := s.source.Load()
	return source != nil && source.covers(clientv3.OpGet(s.objects()+directory+"/"))
}

// StateSaved returns the time of the last state written by this process, or zero if it has not written one.
func (s *Store) StateSaved() time.Time {
	if at := s.saved.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// openState reads the state to start from. If it is not usable, openState logs the reason and returns nil.
func (s *Store) openState() *stateSource {
	read, err := readStateFile(s.cfg.StateSnapshot, s.cfg.Prefix, time.Now())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.log.Warn("etcd is unavailable and there is no state snapshot; startup waits for etcd", zap.String("file", s.cfg.StateSnapshot.File))
		return nil
	case err != nil:
		s.log.Error("state snapshot rejected; startup waits for etcd", zap.String("file", s.cfg.StateSnapshot.File), zap.NamedError("why", err))
		return nil
	}
	s.log.Warn("etcd is unavailable; starting from the state snapshot without local groups",
		zap.String("file", s.cfg.StateSnapshot.File), zap.Time("of", read.at), zap.Duration("age", time.Since(read.at).Round(time.Second)))
	return newStateSource(read)
}

// SaveState writes the state snapshot whenever it changes, until ctx ends. It begins when etcd is used.
func (s *Store) SaveState(ctx context.Context) error {
	c := s.cfg.StateSnapshot
	if c == nil {
		<-ctx.Done()
		return nil
	}
	select {
	case <-s.UsesEtcd():
	case <-ctx.Done():
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.File), 0o700); err != nil {
		return fmt.Errorf("directory of the state snapshot: %w", err)
	}
	ranges := c.ranges(s.cfg.Prefix)
	w := &stateWriter{store: s, config: c, wake: make(chan struct{}, 1), ranges: make(map[string]map[string][]byte, len(ranges))}
	w.removeLeftovers()
	var following sync.WaitGroup
	defer following.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, start := range ranges {
		frequent := i >= len(c.Objects) && i < len(c.Objects)+len(c.Frequent)
		following.Go(func() { w.follow(ctx, start, frequent) })
	}
	w.run(ctx, len(ranges))
	return nil
}

// stateWriter follows etcd and writes the file.
type stateWriter struct {
	store  *Store
	config *StateSnapshotConfig
	wake   chan struct{} // contains an element when a range has changed

	mu     sync.Mutex                   // guards the fields below
	ranges map[string]map[string][]byte // by key prefix; only ranges that have been read
	// changed is when the oldest unwritten change occurred, frequently when the oldest unwritten change of Frequent occurred.
	// They are zero if all changes are written.
	changed, frequently time.Time
}

// note is called with mu held.
func (w *stateWriter) note(frequent bool) {
	since := &w.changed
	if frequent {
		since = &w.frequently
	}
	if since.IsZero() {
		*since = time.Now()
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// follow mirrors one range until ctx ends.
func (w *stateWriter) follow(ctx context.Context, start string, frequent bool) {
	for ctx.Err() == nil {
		if err := w.followOnce(ctx, start, frequent); err != nil && ctx.Err() == nil {
			w.store.log.Debug("reading the keys of the state snapshot again", zap.String("keys", start), zap.Error(err))
		}
		pause(ctx, followRetry)
	}
}

func (w *stateWriter) followOnce(ctx context.Context, start string, frequent bool) error {
	client := w.store.Client()
	if client == nil {
		return ErrNotReady
	}
	reading, cancel := context.WithTimeout(ctx, contentsTimeout)
	defer cancel()
	before, err := client.KV.Get(reading, start, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	all, err := listRange(reading, client.KV, start, statePage)
	if err != nil {
		return err
	}
	w.mu.Lock()
	if known, again := w.ranges[start]; !again || !maps.EqualFunc(known, all, func(a, b []byte) bool { return string(a) == string(b) }) {
		w.ranges[start] = all
		w.note(frequent)
	}
	w.mu.Unlock()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	for answer := range client.Watch(watching, start, clientv3.WithPrefix(), clientv3.WithRev(before.Header.Revision+1)) {
		if err := answer.Err(); err != nil {
			return err
		}
		w.mu.Lock()
		for _, e := range answer.Events {
			if e.Type == clientv3.EventTypeDelete {
				delete(w.ranges[start], string(e.Kv.Key))
			} else {
				w.ranges[start][string(e.Kv.Key)] = e.Kv.Value
			}
		}
		if len(answer.Events) > 0 {
			w.note(frequent)
		}
		w.mu.Unlock()
	}
	return errWatchEnded
}

// run writes until ctx ends. n is the number of ranges.
func (w *stateWriter) run(ctx context.Context, n int) {
	refresh := min(w.config.MaxAge/4, maxRefresh)
	var attempted time.Time
	var problem string
	for {
		var due <-chan time.Time
		if at, ok := w.due(n, attempted, refresh); ok {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			if w.waits(n) {
				_ = w.write() // if it fails, the existing file remains
			}
			return
		case <-w.wake:
			continue
		case <-due:
		}
		attempted = time.Now()
		err := w.write()
		switch {
		case err == nil:
			problem = ""
		case err.Error() != problem: // once per reason
			problem = err.Error()
			w.store.log.Error("failed to write the state snapshot; retrying", zap.String("file", w.config.File), zap.Error(err))
		}
	}
}

// waits reports whether there are unwritten changes and all ranges have been read.
func (w *stateWriter) waits(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ranges) == n && !(w.changed.IsZero() && w.frequently.IsZero())
}

// due returns the time of the next write. It returns false until all ranges have been read.
func (w *stateWriter) due(n int, attempted time.Time, refresh time.Duration) (at time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ranges) < n {
		return time.Time{}, false
	}
	at = attempted.Add(refresh)
	sooner := func(since time.Time, interval time.Duration) {
		if since.IsZero() {
			return
		}
		next := since.Add(settleTime)
		if least := attempted.Add(interval); next.Before(least) {
			next = least
		}
		if next.Before(at) {
			at = next
		}
	}
	sooner(w.changed, w.config.Interval)
	sooner(w.frequently, w.config.FrequentInterval)
	return at, true
}

// write writes the mirrored ranges with the time of the last response of etcd. It does nothing while etcd is lost.
func (w *stateWriter) write() error {
	if w.store.Lost() != nil {
		return nil
	}
	at := w.store.quorum.lastAnswer()
	w.mu.Lock()
	changed, frequently := w.changed, w.frequently
	now := &state{at: at, ranges: w.config.ranges(w.store.cfg.Prefix), values: map[string][]byte{}}
	size := 0
	for _, values := range w.ranges {
		for key, value := range values {
			now.values[key] = value
			size += len(key) + len(value)
		}
	}
	w.changed, w.frequently = time.Time{}, time.Time{}
	w.mu.Unlock()
	err := w.writeFile(now, size)
	if err != nil { // the changes remain unwritten
		w.mu.Lock()
		w.changed, w.frequently = earlier(w.changed, changed), earlier(w.frequently, frequently)
		w.mu.Unlock()
		return err
	}
	w.store.saved.Store(&at)
	return nil
}

func (w *stateWriter) writeFile(s *state, size int) error {
	if size > maxStateBytes/2 {
		return fmt.Errorf("the state has %d bytes, and at most %d are allowed", size, maxStateBytes/2)
	}
	data, err := encodeState(s, w.config.Secret, w.store.cfg.Prefix)
	if err != nil {
		return err
	}
	return pki.WriteFile(w.config.File, data, 0o600)
}

// earlier returns the earlier of two times. Zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// removeLeftovers removes temporary files of a process that was killed while it wrote.
func (w *stateWriter) removeLeftovers() {
	dir, name := filepath.Split(w.config.File)
	left, err := filepath.Glob(filepath.Join(dir, "."+name+".*"))
	if err != nil {
		return
	}
	for _, file := range left {
		if info, err := os.Lstat(file); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > time.Minute {
			_ = os.Remove(file)
		}
	}
}
