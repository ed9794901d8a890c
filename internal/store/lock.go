package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFile lies beside etcd's files. etcd locks its own database too, but it waits for that lock without end and
// without a word; ours is tried once, first.
const lockFile = "portico.lock"

// directoryLock is the claim of one process to a data directory. The kernel drops it with the process, however that ends.
type directoryLock struct {
	file *os.File
}

// lockDirectory creates dir if it is missing and claims it.
func lockDirectory(dir string) (*directoryLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s cannot be written: %w", dir, err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by another process: stop that one, or choose another directory", dir)
		}
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return &directoryLock{file}, nil
}

// release gives the directory up. The file stays: removing it would let two processes lock two files of one name.
func (l *directoryLock) release() error { return l.file.Close() }
