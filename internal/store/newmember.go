package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

const (
	// memberDir is where etcd keeps the files of its member, below the data directory.
	memberDir = "member"
	// newMemberDir is where a member is made before it takes that name. What is there was never used.
	newMemberDir = "member.new"
	// unusedMemberDir is where a member goes that a start before left half made. What is there was never used either.
	unusedMemberDir = "member.unused"
)

// prepareMember leaves a member in the data directory that etcd can start from, or says why there is none. A member that is
// missing is made; one that a start left half made, before anything could be stored in it, is made anew.
func prepareMember(cfg Config, space *disk) error {
	for _, leftover := range []string{newMemberDir, unusedMemberDir} {
		if err := os.RemoveAll(filepath.Join(cfg.DataDir, leftover)); err != nil {
			return fmt.Errorf("remove what an earlier start left: %w", err)
		}
	}
	dir := filepath.Join(cfg.DataDir, memberDir)
	switch _, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return makeMember(cfg, space)
	case err != nil:
		return unreadable(err)
	}
	found, err := inspect(dir)
	if err != nil {
		return err
	}
	if !found.neverUsed() {
		return found.check()
	}
	cfg.Logger.Warn("the first start of etcd was cut short before anything was stored: it is begun anew", zap.String("directory", dir))
	unused := filepath.Join(cfg.DataDir, unusedMemberDir)
	if err := errors.Join(os.Rename(dir, unused), syncDir(cfg.DataDir)); err != nil {
		return fmt.Errorf("move what an earlier start left: %w", err)
	}
	if err := makeMember(cfg, space); err != nil {
		return err
	}
	if err := os.RemoveAll(unused); err != nil {
		return fmt.Errorf("remove what an earlier start left: %w", err)
	}
	return nil
}

// makeMember makes the log of a member that is alone in its cluster, with the one entry that says so, committed: what
// etcd itself has written when a first start has got as far as that. It is made under another name and takes its own in
// one step, so that a member is there with all that it needs, or is not there.
func makeMember(cfg Config, space *disk) (err error) {
	if free, _ := space.measure(); free < diskFirstStart {
		return fmt.Errorf("etcd cannot start in %s: a first start needs %d MiB on that disk, and %d MiB are free; make room, or choose another directory",
			cfg.DataDir, diskFirstStart>>20, free>>20)
	}
	made := filepath.Join(cfg.DataDir, newMemberDir)
	defer func() {
		if err != nil {
			err = fmt.Errorf("make etcd's files in %s: %w", cfg.DataDir, errors.Join(err, os.RemoveAll(made)))
		}
	}()
	if err := os.Mkdir(made, 0o700); err != nil {
		return err
	}
	config := embeddedConfig(cfg)
	cluster, err := membership.NewClusterFromURLsMap(config.Logger, clusterToken, types.URLsMap{memberName: config.PeerURLs})
	if err != nil {
		return err
	}
	self := cluster.MemberByName(memberName)
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: new(uint64(self.ID)), ClusterID: new(uint64(cluster.ID()))})
	if err != nil {
		return err
	}
	entry, err := firstEntry(self)
	if err != nil {
		return err
	}
	log, err := wal.Create(config.Logger, filepath.Join(made, "wal"), metadata)
	if err != nil {
		return err
	}
	committed := &raftpb.HardState{Term: entry.Term, Vote: new(uint64(0)), Commit: entry.Index}
	if err := errors.Join(log.Save(committed, []*raftpb.Entry{entry}), log.Close()); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(made, "wal"), made} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	if err := os.Rename(made, filepath.Join(cfg.DataDir, memberDir)); err != nil {
		return err
	}
	return syncDir(cfg.DataDir)
}

// firstEntry adds the member to its cluster.
func firstEntry(self *membership.Member) (*raftpb.Entry, error) {
	description, err := json.Marshal(self)
	if err != nil {
		return nil, err
	}
	change, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(self.ID)), Context: description})
	if err != nil {
		return nil, err
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Term: new(uint64(1)), Index: new(uint64(1)), Data: change}, nil
}

// syncDir makes the names in a directory last over a loss of power.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
