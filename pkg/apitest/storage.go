package apitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"portico.dev/internal/store"
)

// SharedStorage is an etcd for several environments, each of which has a separate prefix, so that it does not see the objects
// of the others. It saves memory if many environments run at once. Restore and Advance are not available with it.
type SharedStorage struct {
	dir      string
	socket   string
	cancel   context.CancelFunc
	done     chan struct{} // closed when the store has stopped
	err      error         // error of the store
	prefixes atomic.Int64
}

// NewSharedStorage starts an etcd in this process. Stop the environments that use it before calling Close.
func NewSharedStorage() (*SharedStorage, error) {
	dir, err := os.MkdirTemp("", "portico-")
	if err != nil {
		return nil, fmt.Errorf("directory of shared storage: %w", err)
	}
	s := &SharedStorage{dir: dir, socket: filepath.Join(dir, "etcd.sock"), done: make(chan struct{})}
	etcd, err := store.New(store.Config{DataDir: filepath.Join(dir, "etcd"), UnixSocket: s.socket, Volatile: true})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.err = etcd.Run(ctx)
	}()
	timer := time.NewTimer(defaultTimeout)
	defer timer.Stop()
	select {
	case <-etcd.Ready():
		return s, nil
	case <-s.done:
		err = s.err
	case <-timer.C:
		err = fmt.Errorf("it is not ready after %s", defaultTimeout)
	}
	_ = s.Close() // the first error is more useful
	return nil, fmt.Errorf("shared storage: %w", err)
}

// Close stops the etcd and removes its files.
func (s *SharedStorage) Close() error {
	s.cancel()
	<-s.done
	if err := os.RemoveAll(s.dir); err != nil && s.err == nil {
		return fmt.Errorf("remove shared storage: %w", err)
	}
	return s.err
}

// take returns the URLs of the etcd and a unique prefix.
func (s *SharedStorage) take() (servers []string, prefix string, err error) {
	select {
	case <-s.done:
		return nil, "", fmt.Errorf("the shared storage is closed")
	default:
		return []string{"unix://" + s.socket}, fmt.Sprintf("/test-%d", s.prefixes.Add(1)), nil
	}
}

// directory creates a data directory for the keys of an environment.
func (s *SharedStorage) directory() (string, error) { return os.MkdirTemp(s.dir, "environment-") }
