package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

// Snapshot is a consistent snapshot of etcd in the format of `etcdctl snapshot save`: the database and its SHA-256. The caller
// must close it. Until then etcd keeps its pages.
type Snapshot struct {
	io.Reader
	// Revision is etcd's revision immediately before the snapshot. The snapshot contains all writes up to this revision.
	Revision int64
	// ClusterID is etcd's cluster ID.
	ClusterID uint64
	// ServerVersion is the version of etcd, StorageVersion the version of its database format.
	ServerVersion, StorageVersion string
	// EstimatedSize is the approximate number of bytes.
	EstimatedSize int64

	close func() error
}

// Close allows etcd to reuse the pages of the snapshot.
func (s *Snapshot) Close() error { return s.close() }

// Snapshot starts to read all of etcd. It does not block writes. The snapshot ends with ctx.
func (s *Store) Snapshot(ctx context.Context) (*Snapshot, error) {
	client := s.Client()
	if client == nil {
		return nil, ErrNotReady
	}
	if len(s.cfg.Servers) == 0 {
		return snapshotOf(ctx, client.Client, "", func() error { return nil })
	}
	// Use a client of one member. With the shared client, the revision could come from one member and the snapshot from a
	// lagging one.
	var errs []error
	for _, server := range s.cfg.Servers {
		snapshot, err := s.snapshotFrom(ctx, server)
		if err == nil {
			return snapshot, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}
	return nil, errors.Join(errs...)
}

func (s *Store) snapshotFrom(ctx context.Context, server string) (*Snapshot, error) {
	config := clientv3.Config{
		Endpoints: []string{server}, DialTimeout: dialTimeout, DialKeepAliveTime: keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout, Logger: etcdLogger(s.log), DialOptions: s.dialOptions(),
	}
	if usesTLS(config.Endpoints) {
		tlsConfig, _, err := s.clientTLS()
		if err != nil {
			return nil, err
		}
		config.TLS = tlsConfig
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("dial etcd: %w", err)
	}
	snapshot, err := snapshotOf(ctx, client, server, client.Close)
	if err != nil {
		_ = client.Close() // the client was not used
		return nil, err
	}
	return snapshot, nil
}

func snapshotOf(ctx context.Context, client *clientv3.Client, server string, end func() error) (*Snapshot, error) {
	bounded, done := context.WithTimeout(ctx, keyTimeout)
	defer done()
	status, err := client.Status(bounded, server)
	if err != nil {
		return nil, fmt.Errorf("ask etcd for its version: %w", err)
	}
	// A member responds to a read through consensus only after it has applied all earlier writes.
	read, err := client.Get(bounded, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("read the revision: %w", err)
	}
	reading, cancel := context.WithCancel(ctx)
	answer, err := client.SnapshotWithVersion(reading)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("begin a snapshot: %w", err)
	}
	return &Snapshot{
		Reader: answer.Snapshot, Revision: read.Header.Revision, ClusterID: read.Header.ClusterId,
		ServerVersion: status.Version, StorageVersion: answer.Version, EstimatedSize: status.DbSize,
		close: func() error {
			cancel()
			err := answer.Snapshot.Close()
			return errors.Join(err, end())
		},
	}, nil
}

// HoldsEtcd reports whether a data directory contains an etcd, running or not.
func HoldsEtcd(dir string) bool { return wal.Exist(filepath.Join(dir, "member", "wal")) }

// InUse reports whether a process has locked a data directory.
func InUse(dir string) bool {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer file.Close() // also releases the lock if it was acquired
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// NewSnapshot returns a snapshot with this content. Close calls end.
func NewSnapshot(content io.Reader, revision int64, end func() error) *Snapshot {
	return &Snapshot{Reader: content, Revision: revision, close: end}
}

// RevisionBump is added to the revision of restored data, and all revisions below are marked as compacted. A watch that has
// received revisions after the snapshot then receives a compaction error and lists again, instead of waiting until the same
// revisions appear with other contents. The value is etcd's recommendation. It exceeds the number of writes that a backup can
// lack.
const RevisionBump = 1_000_000_000

// RestoreSnapshot creates the data directory of an embedded etcd from a snapshot of `etcdctl snapshot save`. It verifies the
// checksum of the snapshot. dir must not exist. It exists afterwards only if all of it is on the disk.
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
	defer func() { err = errors.Join(err, os.RemoveAll(making)) }() // empty after the rename
	made := filepath.Join(making, "etcd")
	single := identity{name: memberName, peerURL: peerURL, token: clusterToken}
	if err := single.restore(snapshotFile, made, log); err != nil {
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

// identity is the identity of a restored member.
type identity struct {
	name, peerURL, token string
	// file reports that the snapshot is the database file of a stopped member, which has no checksum.
	file bool
}

// restore converts the panics of etcd's storage about unreadable data or failed writes into errors.
func (i identity) restore(snapshotFile, dir string, log *zap.Logger) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("etcd cannot restore the snapshot: %v", r)
		}
	}()
	// etcd's fatal errors, for example on a full disk, must panic instead of ending the process.
	log = etcdLogger(log).WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic))
	err = snapshot.NewV3(log).Restore(snapshot.RestoreConfig{
		SnapshotPath: snapshotFile, OutputDataDir: dir,
		Name: i.name, PeerURLs: []string{i.peerURL}, InitialCluster: i.name + "=" + i.peerURL, InitialClusterToken: i.token, SkipHashCheck: i.file,
		RevisionBump: RevisionBump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("etcd cannot restore the snapshot: %w", err)
	}
	return nil
}

// syncTree flushes a directory and its content to the disk.
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
