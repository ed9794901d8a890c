package store

import (
	"math"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

const (
	memberName = "portico"
	// peerURL is the member's name in its own cluster of one. Nothing listens there and nothing dials it.
	peerURL = "http://127.0.0.1:2380"
	// clusterToken is part of what the identity of the cluster is made of at the first start: etcd's own default.
	clusterToken = "etcd-cluster"

	// A lone member that is not told to stand for election waits for up to nine ticks. Each tick costs idle CPU.
	tickMilliseconds = 100
	electionTicks    = 5
	// electionPollInterval is how often it is looked at, whether it has read its log, and can be told.
	electionPollInterval = 2 * time.Millisecond

	// progressInterval bounds how old the bookmark of an idle watch can be. It stays well under the five minutes of
	// history that compaction leaves, so that a quiet watch can always be resumed.
	progressInterval = time.Minute
)

// embeddedConfig is a member alone in its cluster. Package embed of etcd, which makes this from flags, links a gateway to
// JSON, cluster discovery and pages of traces with it; that we agree with its defaults is tested.
func embeddedConfig(cfg Config) config.ServerConfig {
	log := etcdLogger(cfg.Logger)
	peer, _ := url.Parse(peerURL) // a constant that parses
	peers := types.URLs{*peer}
	c := config.ServerConfig{
		Name: memberName, DataDir: cfg.DataDir, Logger: log,
		PeerURLs: peers, NewCluster: true, StrictReconfigCheck: true, MaxLearners: membership.DefaultMaxLearners,

		TickMs: tickMilliseconds, ElectionTicks: electionTicks, InitialElectionTickAdvance: true,
		PreVote: false, // there is nobody to ask

		SnapshotCount: etcdserver.DefaultSnapshotCount, SnapshotCatchUpEntries: etcdserver.DefaultSnapshotCatchUpEntries,
		MaxSnapFiles: 5, MaxWALFiles: 5, BackendFreelistType: "hashmap", QuotaBackendBytes: cfg.QuotaBytes,
		// Compaction is asked for by the API's storage, at a revision that its watches have passed.
		AutoCompactionMode: "periodic", AutoCompactionRetention: 0,
		CompactHashCheckTime: time.Minute, DowngradeCheckTime: 5 * time.Second, V2Deprecation: config.V2DeprDefault,

		MaxTxnOps: 128, MaxRequestBytes: 1536 << 10, MaxConcurrentStreams: math.MaxUint32,
		WatchProgressNotifyInterval: progressInterval,
		WarningApplyDuration:        100 * time.Millisecond, WarningUnaryRequestDuration: 300 * time.Millisecond,

		// etcd's own users are not used, but it makes what they would need.
		AuthToken: "simple", BcryptCost: 10, TokenTTL: 300,

		Metrics: "basic", ServerFeatureGate: features.NewDefaultServerFeatureGate(memberName, nil),
	}
	if cfg.UnixSocket != "" {
		c.ClientURLs = types.URLs{{Scheme: "unix", Path: cfg.UnixSocket}}
	}
	if !wal.Exist(filepath.Join(cfg.DataDir, "member", "wal")) {
		c.InitialPeerURLsMap, c.InitialClusterToken = types.URLsMap{memberName: peers}, clusterToken
	}
	return c
}
