package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

const (
	memberName = "portico"
	// peerURL is the member's address in its cluster of one. There is neither a listener nor a client for it.
	peerURL = "http://127.0.0.1:2380"
	// clusterToken is one of the inputs of the cluster ID at the first start. It is etcd's default.
	clusterToken = "etcd-cluster"

	// Without the message of awaitElected, a single member waits for up to nine ticks. Each tick costs idle CPU.
	tickMilliseconds = 100
	electionTicks    = 5
	// electionPollInterval is the interval at which awaitElected checks whether the member has read its log.
	electionPollInterval = 2 * time.Millisecond

	// progressInterval bounds the age of the bookmark of an idle watch. It is well below the five minutes of history that
	// compaction keeps, so that an idle watch can always be resumed.
	progressInterval = time.Minute
)

// catchUpEntries is the number of recent writes kept in memory for members that lag. A member that lags further receives the
// whole database, which is small. etcd's default is 5,000. A write may have 1.5 MiB, and a thousand APIServices with their
// documents would take 17 MiB.
const catchUpEntries = 500

// embeddedConfig returns the configuration of a single member. etcd's package embed, which derives it from flags, also links a
// JSON gateway, cluster discovery and trace pages. A test compares these values with its defaults.
func embeddedConfig(cfg Config) config.ServerConfig {
	log, name, peers := etcdLogger(cfg.Logger), cfg.memberName(), cfg.peerURLs()
	c := config.ServerConfig{
		Name: name, DataDir: cfg.DataDir, Logger: log,
		PeerURLs: peers, NewCluster: true, StrictReconfigCheck: true, MaxLearners: membership.DefaultMaxLearners,

		TickMs: tickMilliseconds, ElectionTicks: electionTicks, InitialElectionTickAdvance: true,
		PreVote: false, // a single member has no other voters

		SnapshotCount: etcdserver.DefaultSnapshotCount, SnapshotCatchUpEntries: catchUpEntries,
		MaxSnapFiles: 5, MaxWALFiles: 5, BackendFreelistType: "hashmap", QuotaBackendBytes: cfg.QuotaBytes,
		// Compaction is requested by the API's storage, at a revision that its watches have passed.
		AutoCompactionMode: "periodic", AutoCompactionRetention: 0,
		CompactHashCheckTime: time.Minute, DowngradeCheckTime: 5 * time.Second, V2Deprecation: config.V2DeprDefault,

		MaxTxnOps: 128, MaxRequestBytes: 1536 << 10, MaxConcurrentStreams: math.MaxUint32,
		WatchProgressNotifyInterval: progressInterval,
		WarningApplyDuration:        100 * time.Millisecond, WarningUnaryRequestDuration: 300 * time.Millisecond,

		// etcd's users are not used, but etcd initializes their token provider.
		AuthToken: "simple", BcryptCost: 10, TokenTTL: 300,

		Metrics: "basic", ServerFeatureGate: features.NewDefaultServerFeatureGate(name, nil),
	}
	if cfg.Volatile {
		c.UnsafeNoFsync = true
		c.MaxTxnOps, c.MaxRequestBytes = volatileTxnOps, volatileRequestBytes
	}
	if cfg.UnixSocket != "" {
		c.ClientURLs = types.URLs{{Scheme: "unix", Path: cfg.UnixSocket}}
	}
	if !wal.Exist(filepath.Join(cfg.DataDir, "member", "wal")) {
		c.InitialPeerURLsMap, c.InitialClusterToken = types.URLsMap{name: peers}, clusterToken
	}
	return c
}

// Limits of a transaction in a volatile etcd, where ReplaceContents writes all objects in one transaction.
const (
	volatileTxnOps       = 1 << 18
	volatileRequestBytes = 10 << 20 // etcd warns about larger values
)

const (
	// memberDir is the directory of etcd's member, below the data directory.
	memberDir = "member"
	// newMemberDir is the directory in which a member is created before it is renamed. Its content was never used.
	newMemberDir = "member.new"
	// unusedMemberDir is the directory to which an incomplete member of an earlier start is moved. Its content was never used
	// either.
	unusedMemberDir = "member.unused"
)

// prepareMember ensures that the data directory contains a member from which etcd can start. It creates a missing member, and
// replaces an incomplete member of an earlier start in which nothing could have been stored.
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
		return found.check(cfg.Cluster != nil)
	}
	cfg.Logger.Warn("first start of etcd was interrupted before it stored data; starting over with an empty directory", zap.String("directory", dir))
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

// makeMember creates the log of a single member, with one committed entry that adds it to its cluster. This equals the log that
// etcd has written at that point of a first start. It is created under another name and then renamed, so that a member is
// either complete or missing.
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
	cluster, err := membership.NewClusterFromURLsMap(config.Logger, clusterToken, types.URLsMap{config.Name: config.PeerURLs})
	if err != nil {
		return err
	}
	self := cluster.MemberByName(config.Name)
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
	if cfg.Volatile {
		log.SetUnsafeNoFsync()
	}
	committed := &raftpb.HardState{Term: entry.Term, Vote: new(uint64(0)), Commit: entry.Index}
	if err := errors.Join(log.Save(committed, []*raftpb.Entry{entry}), log.Close()); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(made, "wal"), made} {
		if cfg.Volatile {
			break
		}
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	if err := os.Rename(made, filepath.Join(cfg.DataDir, memberDir)); err != nil || cfg.Volatile {
		return err
	}
	return syncDir(cfg.DataDir)
}

// firstEntry returns the entry that adds the member to its cluster.
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

// syncDir makes the directory entries survive a power loss.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
