package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// RevisionBump is added to the revision of what is restored, and everything below is marked as compacted: a watch that has
// seen revisions after the snapshot is then told that they are gone, and lists anew, instead of waiting until they come
// again with other contents. It is etcd's own recommendation, and more writes than any backup can be late by.
const RevisionBump = 1_000_000_000

// RestoreSnapshot makes the data directory of an embedded etcd out of a snapshot, as `etcdctl snapshot save` writes it, whose
// checksum it verifies. dir must not exist. It is there when all of it is on the disk, and not there after an error.
func RestoreSnapshot(snapshotFile, dir string, log *zap.Logger) (err error) {
	switch _, err := os.Lstat(dir); {
	case err == nil:
		return fmt.Errorf("%s is there already", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	making, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".restore-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(making)) }() // after the rename there is nothing left in it
	made := filepath.Join(making, "etcd")
	if err := restoreInto(snapshotFile, made, log); err != nil {
		return err
	}
	if err := os.Chmod(made, 0o700); err != nil {
		return err
	}
	if err := syncTree(made); err != nil {
		return err
	}
	if err := os.Rename(made, dir); err != nil {
		return err
	}
	return syncPath(parent)
}

// restoreInto turns the panics that etcd's storage has for what it cannot read, or write, into errors.
func restoreInto(snapshotFile, dir string, log *zap.Logger) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("etcd cannot restore the snapshot: %v", r)
		}
	}()
	// Where a server of etcd's would end its process, on a disk that is full for example, it is to panic.
	log = etcdLogger(log).WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic))
	err = snapshot.NewV3(log).Restore(snapshot.RestoreConfig{
		SnapshotPath: snapshotFile, OutputDataDir: dir,
		Name: memberName, PeerURLs: []string{peerURL}, InitialCluster: memberName + "=" + peerURL, InitialClusterToken: clusterToken,
		RevisionBump: RevisionBump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("etcd cannot restore the snapshot: %w", err)
	}
	return nil
}

// syncTree has a directory and all that is in it written to the disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(path)
	})
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
