package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"portico.dev/internal/pki"
	"portico.dev/internal/simulation/network"
)

const etcdPort = 2379

// etcd is the real server of etcd, with one member, on a host of the network.
type etcd struct {
	host *network.Host
	dir  string // contains one directory for each start after a crash
	keys *pki.Directory

	crashes int
	full    bool // its alarm is raised, or will be disarmed in the next start
	server  *etcdserver.EtcdServer
	clients *grpc.Server
	served  chan struct{}
}

// start starts a server with the files of the one before.
func (e *etcd) start(ctx context.Context) (err error) {
	authority, certificate, key := e.keys.EtcdFiles()
	clients, err := pki.LoadBundle(authority)
	if err != nil {
		return err
	}
	pair, err := pki.LoadKeyPair(certificate, key)
	if err != nil {
		return err
	}
	if e.server, err = etcdserver.NewServer(e.config()); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	e.server.Start()
	select {
	case <-e.server.ReadyNotify():
	case <-ctx.Done():
		return ctx.Err()
	}
	if len(e.server.Alarms()) > 0 && !e.full {
		if err := e.setFull(ctx, false); err != nil {
			return err
		}
	}
	listener, err := e.host.Listen(etcdPort)
	if err != nil {
		return err
	}
	e.clients, e.served = v3rpc.Server(e.server, pki.MutualServerConfig(pair, clients.Pool()), nil), make(chan struct{})
	go func(server *grpc.Server, served chan<- struct{}) {
		defer close(served)
		_ = server.Serve(listener) // ends with the listener
	}(e.clients, e.served)
	return nil
}

func (e *etcd) files() string { return filepath.Join(e.dir, fmt.Sprint(e.crashes)) }

func (e *etcd) config() config.ServerConfig {
	urls := types.MustNewURLs([]string{"http://" + net.JoinHostPort(e.host.String(), "2380")}) // nothing listens there
	c := config.ServerConfig{
		Name: "etcd", DataDir: e.files(), Logger: zap.NewNop(), PeerURLs: urls, ClientURLs: urls, NewCluster: true,
		MaxLearners: membership.DefaultMaxLearners, TickMs: 500, ElectionTicks: 4, InitialElectionTickAdvance: true,
		SnapshotCount: etcdserver.DefaultSnapshotCount, SnapshotCatchUpEntries: 500, BackendFreelistType: "hashmap",
		QuotaBackendBytes: 1 << 30, AutoCompactionMode: "periodic", CompactHashCheckTime: time.Minute, DowngradeCheckTime: time.Minute,
		V2Deprecation: config.V2DeprDefault, MaxTxnOps: 128, MaxRequestBytes: 1536 << 10, MaxConcurrentStreams: 1 << 30,
		WatchProgressNotifyInterval: time.Minute, WarningApplyDuration: time.Minute, WarningUnaryRequestDuration: time.Minute,
		AuthToken: "simple", BcryptCost: 4, TokenTTL: 300, Metrics: "basic", ServerFeatureGate: features.NewDefaultServerFeatureGate("etcd", nil),
		UnsafeNoFsync: true, // a crash loses no file of this machine
	}
	if !wal.Exist(filepath.Join(e.files(), "member", "wal")) {
		c.InitialPeerURLsMap, c.InitialClusterToken = types.URLsMap{"etcd": urls}, "simulation"
	}
	return c
}

// progressInterval is how often changes checks that it has received all changes, in virtual time.
const progressInterval = 10 * time.Millisecond

// changes returns the changes of the keys with a prefix after a revision, in their order.
func (e *etcd) changes(ctx context.Context, prefix string, since int64) ([]*mvccpb.Event, error) {
	stream := e.server.Watchable().NewWatchStream()
	defer stream.Close()
	last := stream.Rev()
	id, err := stream.Watch(ctx, 0, []byte(prefix), []byte(clientv3.GetPrefixRangeEnd(prefix)), since+1)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	var all []*mvccpb.Event
	for {
		select {
		case <-tick.C:
			stream.RequestProgress(id) // without a response before all earlier changes were sent
		case r := <-stream.Chan():
			if r.CompactRevision > since {
				return nil, fmt.Errorf("etcd has compacted revision %d, which is after %d", r.CompactRevision, since)
			}
			all = append(all, r.Events...)
			if len(r.Events) == 0 && r.Revision >= last {
				return all, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// crash ends the server. The next start continues with the files as they are now: what etcd has acknowledged is in its log, and
// transactions of its database that are not committed are lost. All other goroutines of the bubble must wait (synctest.Wait).
func (e *etcd) crash() error {
	e.host.Kill()
	from := e.files()
	e.crashes++
	err := os.CopyFS(e.files(), os.DirFS(from))
	e.stop()
	return errors.Join(err, os.RemoveAll(from))
}

// stop ends the server.
func (e *etcd) stop() {
	if e.server == nil {
		return
	}
	e.clients.Stop()
	<-e.served
	e.server.HardStop()
	e.server = nil
}

func (e *etcd) url() string { return fmt.Sprintf("https://%s:%d", e.host, etcdPort) }
