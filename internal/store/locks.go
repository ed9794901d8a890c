package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// fileID identifies a file on every system. The name of a descriptor's file can be read on Linux only.
type fileID struct{ device, inode uint64 }

// unlockFiles removes the locks of this process on files below dir. The goroutines that hold them are blocked forever. A
// removed file does not block another member, and keeps its locks.
func unlockFiles(dir string) error {
	files, err := filesBelow(dir)
	if err != nil {
		return fmt.Errorf("release the files in %s: %w", dir, err)
	}
	entries, err := os.ReadDir(ownDescriptors)
	if err != nil {
		return fmt.Errorf("release the files in %s: %w", dir, err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || !files[idOf(fd)] {
			continue
		}
		// Another goroutine may close the descriptor and reuse its number at any moment. Therefore a duplicate is unlocked,
		// after its file has been checked.
		duplicate, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			continue // it has been closed
		}
		if files[idOf(duplicate)] {
			err = unlock(duplicate)
		}
		_ = unix.Close(duplicate)
		if err != nil {
			return fmt.Errorf("release the files in %s: %w", dir, err)
		}
	}
	return nil
}

// filesBelow returns the files in a directory and its subdirectories.
func filesBelow(dir string) (map[fileID]bool, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	files := map[fileID]bool{}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed concurrently
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		var status unix.Stat_t
		switch err := unix.Lstat(path, &status); {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
		files[fileID{uint64(status.Dev), uint64(status.Ino)}] = true
		return nil
	})
	return files, err
}

// idOf returns the file of a descriptor, or a zero fileID if the descriptor is closed.
func idOf(fd int) fileID {
	var status unix.Stat_t
	if err := unix.Fstat(fd, &status); err != nil {
		return fileID{}
	}
	return fileID{uint64(status.Dev), uint64(status.Ino)}
}
