package pki

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A machine may have no free inotify instances. A front door must start nevertheless and read its files. A directory
// that does not exist cannot be watched either.
func TestUnwatchableFilesAreReadEveryMinute(t *testing.T) {
	file := filepath.Join(t.TempDir(), "not-there", "tls.crt")
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		var looked atomic.Int64
		go func() {
			done <- WatchFiles(ctx, zap.New(core), []string{file}, func() (bool, error) { looked.Add(1); return false, nil })
		}()
		time.Sleep(2*pollInterval + time.Second) // on the bubble's clock
		cancel()
		if err := <-done; err != nil {
			t.Errorf("WatchFiles() = %v, want no error", err)
		}
		if got := looked.Load(); got != 3 { // at the beginning, and after each of two minutes
			t.Errorf("%d reads of the files, want 3", got)
		}
		if logged.Len() != 1 {
			t.Errorf("log lines = %v, want one warning", logged.All())
		}
	})
}

// A file that cannot be watched at first is watched as soon as possible.
func TestWatchStartsWhenFileBecomesWatchable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mounted-late")
	s := fileWatcher{files: []string{filepath.Join(dir, "tls.crt")}, log: zap.NewNop()}
	defer s.close()
	if s.open(); s.events != nil {
		t.Fatal("open() watches a directory that does not exist, want no watch")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.open()
	if err := os.WriteFile(s.files[0], []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.events:
	case <-time.After(30 * time.Second):
		t.Error("no event arrived within 30 seconds after the directory was created, want one")
	}
}

// Wake triggers a read of the files before the next interval.
func TestWakeReadsFilesBeforeNextInterval(t *testing.T) {
	file := filepath.Join(t.TempDir(), "not-there", "tls.crt")
	synctest.Test(t, func(t *testing.T) {
		var wake Wake
		ctx, cancel := context.WithCancel(wake.In(t.Context()))
		done := make(chan error, 1)
		var looked atomic.Int64
		go func() {
			done <- WatchFiles(ctx, zap.NewNop(), []string{file}, func() (bool, error) { looked.Add(1); return false, nil })
		}()
		time.Sleep(settle)
		synctest.Wait()
		for want := int64(1); want <= 3; want++ {
			if got := looked.Load(); got != want {
				t.Errorf("%d reads of the files, want %d", got, want)
			}
			wake.Wake()
			synctest.Wait()
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		wake.Wake() // without a waiting reader
	})
}
