package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"portico.dev/internal/metrics"
	"portico.dev/internal/store"
)

// canned returns contents with a snapshot that is not from etcd, but has a sum like one.
func canned() Contents {
	body := []byte("a database")
	sum := sha256.Sum256(body)
	return Contents{Snapshot: store.NewSnapshot(bytes.NewReader(append(body, sum[:]...)), 7, func() error { return nil })}
}

type scheduled struct {
	*Schedule
	t   *testing.T
	log *observer.ObservedLogs

	mu     sync.Mutex // guards the fields below
	leads  bool
	broken error
	room   uint64
}

// change changes the inputs of the schedule while it runs.
func (s *scheduled) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *scheduled) now() (leads bool, room uint64, broken error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads, s.room, s.broken
}

func newScheduled(t *testing.T) *scheduled {
	core, log := observer.New(zap.InfoLevel)
	s := &scheduled{t: t, log: log, leads: true, room: 1 << 40}
	s.Schedule = &Schedule{
		Dir: filepath.Join(t.TempDir(), "backups"), Interval: time.Hour, Retention: 3,
		Contents: func(context.Context) (Contents, error) {
			if _, _, broken := s.now(); broken != nil {
				return Contents{}, broken
			}
			return canned(), nil
		},
		Leads: func() bool {
			leads, _, _ := s.now()
			return leads
		},
		Metrics: metrics.NewBackup(prometheus.NewRegistry()), Log: zap.New(core),
		free: func(string) (uint64, error) {
			_, room, _ := s.now()
			return room, nil
		},
	}
	return s
}

func (s *scheduled) files() []string {
	s.t.Helper()
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// start runs the schedule until the returned function is called.
func (s *scheduled) start() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		s.t.Helper()
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
}

// after lets time pass and waits until all work that is due is done.
func after(d time.Duration) {
	time.Sleep(d) // in a bubble of synctest
	synctest.Wait()
}

func TestScheduledBackupsReplaceOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduled(t)
		if err := os.MkdirAll(s.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		others := []string{"notes.txt", "portico-of-mine.backup"}
		for _, name := range others {
			if err := os.WriteFile(filepath.Join(s.Dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		unfinished := filepath.Join(s.Dir, ".portico-20200101T000000Z.backup.123")
		if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		stop := s.start()
		synctest.Wait()
		first := time.Now()
		if made, _ := s.made(); len(made) != 1 {
			t.Fatalf("files at the start = %v, want 1 backup", s.files())
		}
		if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Stat of the unfinished backup: error = %v, want %v", err, os.ErrNotExist)
		}
		after(30 * time.Minute)
		stop() // a restart neither adds a backup nor skips one
		stop = s.start()
		after(20 * time.Minute)
		if made, _ := s.made(); len(made) != 1 {
			t.Errorf("files after a restart = %v, want 1 backup", s.files())
		}
		after(4 * time.Hour)
		stop()
		made, err := s.made()
		if err != nil || len(made) != s.Retention || !made[0].After(first) {
			t.Errorf("files after four hours = %v, error %v, want %d newer backups", s.files(), err, s.Retention)
		}
		for _, name := range others {
			if !slices.Contains(s.files(), name) {
				t.Errorf("%s was deleted, want it kept", name)
			}
		}
		if got := testutil.ToFloat64(s.Metrics.LastSuccess); got != float64(made[len(made)-1].Unix()) {
			t.Errorf("time of the last success = %f, want that of the newest backup %v", got, made[len(made)-1])
		}
		if testutil.ToFloat64(s.Metrics.Failures) != 0 || testutil.ToFloat64(s.Metrics.Size) == 0 {
			t.Errorf("failures = %f, size = %f, want 0 failures and a size", testutil.ToFloat64(s.Metrics.Failures), testutil.ToFloat64(s.Metrics.Size))
		}
		a, err := Open(s.file(made[0]), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Verify(), a.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A failure, such as a full disk, is logged once for each attempt, deletes no existing backup, and is temporary.
func TestFailedBackupIsLoggedAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduled(t)
		stop := s.start()
		defer func() { stop() }()
		synctest.Wait()
		for name, c := range map[string]struct {
			breakIt func()
			says    string
		}{
			"etcd does not answer": {func() { s.broken = errors.New("etcdserver: no leader") }, "no leader"},
			"no room":              {func() { s.room = 1 << 20 }, "make room"},
		} {
			kept := s.files()
			s.change(c.breakIt)
			before := testutil.ToFloat64(s.Metrics.Failures)
			after(time.Hour + time.Minute)
			if got := testutil.ToFloat64(s.Metrics.Failures) - before; got != 1 {
				t.Errorf("%s: %f failures were counted, want 1", name, got)
			}
			said := s.log.FilterLevelExact(zap.ErrorLevel).TakeAll()
			if len(said) != 1 || !strings.Contains(said[0].ContextMap()["error"].(string), c.says) {
				t.Errorf("%s: logged errors = %v, want one that contains %q", name, said, c.says)
			}
			if !slices.Equal(s.files(), kept) {
				t.Errorf("%s: files = %v, want %v", name, s.files(), kept)
			}
			s.change(func() { s.broken, s.room = nil, 1<<40 })
			after(retryInterval + askLeader)
			if len(s.files()) != len(kept)+1 {
				t.Errorf("%s: files after the recovery = %v, want one more than %v", name, s.files(), kept)
			}
			s.log.TakeAll()
		}
	})
}

func TestOnlyLeaderMakesBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduled(t)
		s.change(func() { s.leads = false })
		stop := s.start()
		after(5 * time.Hour)
		if len(s.files()) != 0 {
			t.Errorf("files of a replica that does not lead = %v, want none", s.files())
		}
		stop()
		s.change(func() { s.leads = true })
		stop = s.start()
		after(askLeader)
		stop()
		if len(s.files()) != 1 {
			t.Errorf("files of the leader = %v, want 1 backup", s.files())
		}
	})
}
