package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// compactRevisionKey is written by the API's storage at each compaction, which frees space.
const compactRevisionKey = "compact_rev_key"

// memberAPI serves the API of one member of etcd.
type memberAPI struct {
	failure     *failure
	kv          pb.KVServer
	lease       pb.LeaseServer
	watch       pb.WatchServer
	maintenance pb.MaintenanceServer
	cluster     pb.ClusterServer

	mu      sync.Mutex // guards the fields below
	running int        // running calls
	idle    chan struct{}
}

// begin and end count the running calls. begin returns false after finish has been called.
func (m *memberAPI) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle != nil {
		return false
	}
	m.running++
	return true
}

func (m *memberAPI) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running--; m.running == 0 && m.idle != nil {
		close(m.idle)
	}
}

// finish prevents further calls, and waits up to limit until the running calls have ended. etcd does not wait for them when it
// closes its database: a watch that reads the previous value of an event at that moment ends the process.
func (m *memberAPI) finish(limit time.Duration) {
	m.mu.Lock()
	m.idle = make(chan struct{})
	if m.running == 0 {
		close(m.idle)
	}
	m.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-m.idle:
	case <-timer.C:
	case <-m.failure.failed: // a call that met the failure never ends
	}
}

func newMemberAPI(server *etcdserver.EtcdServer, f *failure) *memberAPI {
	return &memberAPI{
		failure: f, kv: v3rpc.NewQuotaKVServer(server), lease: v3rpc.NewQuotaLeaseServer(server),
		watch: v3rpc.NewWatchServer(server), maintenance: v3rpc.NewMaintenanceServer(server, nil), cluster: v3rpc.NewClusterServer(server),
	}
}

// memberSwitch connects the client of this process with the running member, so that etcd can be restarted while the client
// stays in use. During a restart calls fail, and watches and leases continue afterwards. It refuses writes if the disk is full.
type memberSwitch struct {
	disk *disk
	live string // prefix of the keys of live processes, which are written as long as possible

	mu      sync.Mutex // guards the fields below
	member  *memberAPI // nil if none is running
	cause   error      // why none is running
	others  *memberAPI // members used instead; nil if the local member is used
	changed chan struct{}
	left    chan struct{} // closed and replaced when others has changed
}

func newMemberSwitch(d *disk, live string) *memberSwitch {
	return &memberSwitch{disk: d, live: live, changed: make(chan struct{}), left: make(chan struct{})}
}

// set sets the running member. It is nil if none is running because of cause.
func (s *memberSwitch) set(member *memberAPI, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.member, s.cause = member, cause
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *memberSwitch) now() (member *memberAPI, changed <-chan struct{}, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others != nil {
		return s.others, s.changed, nil
	}
	return s.member, s.changed, s.cause
}

// await waits for a running member and returns it.
func (s *memberSwitch) await(ctx context.Context) (*memberAPI, error) {
	for {
		member, changed, _ := s.now()
		if member != nil {
			return member, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// client returns a client of the current member, similar to etcd's v3client.
func (s *memberSwitch) client(l *zap.Logger) *kubernetes.Client {
	c := clientv3.NewCtxClient(context.Background(), clientv3.WithZapLogger(etcdLogger(l)))
	c.KV = clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(&kvSwitch{s: s}), c)
	c.Lease = clientv3.NewLeaseFromLeaseClient(adapter.LeaseServerToLeaseClient(&leaseSwitch{s: s}), c, time.Second)
	c.Watcher = &plainWatcher{clientv3.NewWatchFromWatchClient(&watchClient{server: &watchSwitch{s: s}}, c)}
	c.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(adapter.MaintenanceServerToMaintenanceClient(&maintenanceSwitch{s: s}), c)
	c.Cluster = clientv3.NewClusterFromClusterClient(adapter.ClusterServerToClusterClient(&clusterSwitch{s: s}), c)
	c.Auth = clientv3.NewAuthFromAuthClient(adapter.AuthServerToAuthClient(pb.UnimplementedAuthServer{}), c) // etcd's users are not used
	client := &kubernetes.Client{Client: c}
	client.Kubernetes = client
	return client
}

// plainWatcher hides the string form of contexts. The watcher uses it as a key and reads it while other goroutines may modify
// the context.
type plainWatcher struct{ clientv3.Watcher }

type plainContext struct{ context.Context }

func (*plainContext) String() string { return "a watch" }

func (w *plainWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return w.Watcher.Watch(&plainContext{ctx}, key, opts...)
}

// failedError is returned for a call that was running when the member failed. It may have been executed.
func failedError(f *failure) error {
	return status.Error(codes.Unavailable, fmt.Sprintf("the embedded etcd failed and is restarted: %v", f.err))
}

// absent is returned for a call that was not started because no member is running. Reads also fail with a full disk error,
// because a write begins with a read.
func (s *memberSwitch) absent(cause error) error {
	if isDiskFull(cause) {
		free, _ := s.disk.measure()
		return s.disk.fullError(free, cause)
	}
	return rpctypes.ErrGRPCNoLeader // the call was not executed, and may succeed in a moment
}

// call calls the current member, and stops waiting when the member fails or the request ends. A goroutine that holds locks of a
// failed member never releases them.
func call[A any](ctx context.Context, s *memberSwitch, ask func(*memberAPI) (A, error)) (A, error) {
	var none A
	left := s.leaves() // obtained before the member is chosen
	member, _, cause := s.now()
	if member == nil {
		return none, s.absent(cause)
	}
	type result struct {
		answer A
		err    error
	}
	if !member.begin() {
		return none, s.absent(nil)
	}
	done := make(chan result, 1)
	go func() {
		defer member.end()
		answer, err := ask(member)
		done <- result{answer, err}
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-member.failure.failed:
		return none, failedError(member.failure)
	case <-left:
		return none, failedError(&failure{err: errLeft})
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// stream passes a stream to the current member, as soon as there is one, until either of them ends.
func stream(ctx context.Context, s *memberSwitch, serve func(*memberAPI) error) error {
	left := s.leaves()
	member, err := s.await(ctx)
	if err != nil {
		return err
	}
	if !member.begin() {
		return s.absent(nil)
	}
	done := make(chan error, 1)
	go func() {
		defer member.end()
		done <- serve(member)
	}()
	select {
	case err := <-done:
		if now, _, _ := s.now(); now != member && ctx.Err() == nil {
			return failedError(&failure{err: context.Canceled}) // the member was stopped: the client should retry
		}
		return err
	case <-member.failure.failed:
		return failedError(member.failure)
	case <-left:
		return failedError(&failure{err: errLeft})
	}
}

type kvSwitch struct {
	pb.UnimplementedKVServer
	s *memberSwitch
}

func (k *kvSwitch) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return call(ctx, k.s, func(m *memberAPI) (*pb.RangeResponse, error) { return m.kv.Range(ctx, r) })
}

func (k *kvSwitch) RangeStream(r *pb.RangeRequest, answers grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	return stream(answers.Context(), k.s, func(m *memberAPI) error { return m.kv.RangeStream(r, answers) })
}

func (k *kvSwitch) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := k.s.disk.checkWrite(k.s.essential(r)); err != nil {
		return nil, err
	}
	return call(ctx, k.s, func(m *memberAPI) (*pb.PutResponse, error) { return m.kv.Put(ctx, r) })
}

func (k *kvSwitch) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := k.s.disk.checkWrite(true); err != nil {
		return nil, err
	}
	return call(ctx, k.s, func(m *memberAPI) (*pb.DeleteRangeResponse, error) { return m.kv.DeleteRange(ctx, r) })
}

func (k *kvSwitch) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	writes, essential := k.s.inspectTxn(r)
	if writes {
		if err := k.s.disk.checkWrite(essential); err != nil {
			return nil, err
		}
	}
	return call(ctx, k.s, func(m *memberAPI) (*pb.TxnResponse, error) { return m.kv.Txn(ctx, r) })
}

func (k *kvSwitch) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if err := k.s.disk.checkWrite(true); err != nil {
		return nil, err
	}
	return call(ctx, k.s, func(m *memberAPI) (*pb.CompactionResponse, error) { return m.kv.Compact(ctx, r) })
}

// essential reports whether a write frees space or keeps the lease of this process.
func (s *memberSwitch) essential(r *pb.PutRequest) bool {
	key := string(r.Key)
	return key == compactRevisionKey || strings.HasPrefix(key, s.live)
}

// inspectTxn reports whether a transaction writes, and whether all its puts are essential. Deletions free space.
func (s *memberSwitch) inspectTxn(r *pb.TxnRequest) (writes, essential bool) {
	essential = true
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if put := op.GetRequestPut(); put != nil {
				writes, essential = true, essential && s.essential(put)
			}
			if op.GetRequestDeleteRange() != nil {
				writes = true
			}
			if inner := op.GetRequestTxn(); inner != nil {
				w, e := s.inspectTxn(inner)
				writes, essential = writes || w, essential && e
			}
		}
	}
	return writes, essential
}

type leaseSwitch struct {
	pb.UnimplementedLeaseServer
	s *memberSwitch
}

func (l *leaseSwitch) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if err := l.s.disk.checkWrite(true); err != nil {
		return nil, err
	}
	return call(ctx, l.s, func(m *memberAPI) (*pb.LeaseGrantResponse, error) { return m.lease.LeaseGrant(ctx, r) })
}

func (l *leaseSwitch) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if err := l.s.disk.checkWrite(true); err != nil {
		return nil, err
	}
	return call(ctx, l.s, func(m *memberAPI) (*pb.LeaseRevokeResponse, error) { return m.lease.LeaseRevoke(ctx, r) })
}

func (l *leaseSwitch) LeaseKeepAlive(both grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	return stream(both.Context(), l.s, func(m *memberAPI) error { return m.lease.LeaseKeepAlive(both) })
}

func (l *leaseSwitch) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	return call(ctx, l.s, func(m *memberAPI) (*pb.LeaseTimeToLiveResponse, error) { return m.lease.LeaseTimeToLive(ctx, r) })
}

func (l *leaseSwitch) LeaseLeases(ctx context.Context, r *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	return call(ctx, l.s, func(m *memberAPI) (*pb.LeaseLeasesResponse, error) { return m.lease.LeaseLeases(ctx, r) })
}

type watchSwitch struct {
	pb.UnimplementedWatchServer
	s *memberSwitch
}

func (w *watchSwitch) Watch(both grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	return stream(both.Context(), w.s, func(m *memberAPI) error { return m.watch.Watch(both) })
}

type maintenanceSwitch struct {
	pb.UnimplementedMaintenanceServer
	s *memberSwitch
}

func (m *maintenanceSwitch) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return call(ctx, m.s, func(a *memberAPI) (*pb.AlarmResponse, error) { return a.maintenance.Alarm(ctx, r) })
}

func (m *maintenanceSwitch) Status(ctx context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	return call(ctx, m.s, func(a *memberAPI) (*pb.StatusResponse, error) { return a.maintenance.Status(ctx, r) })
}

func (m *maintenanceSwitch) Hash(ctx context.Context, r *pb.HashRequest) (*pb.HashResponse, error) {
	return call(ctx, m.s, func(a *memberAPI) (*pb.HashResponse, error) { return a.maintenance.Hash(ctx, r) })
}

func (m *maintenanceSwitch) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	return call(ctx, m.s, func(a *memberAPI) (*pb.HashKVResponse, error) { return a.maintenance.HashKV(ctx, r) })
}

func (m *maintenanceSwitch) Snapshot(r *pb.SnapshotRequest, answers grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	return stream(answers.Context(), m.s, func(a *memberAPI) error { return a.maintenance.Snapshot(r, answers) })
}

type clusterSwitch struct {
	pb.UnimplementedClusterServer
	s *memberSwitch
}

func (c *clusterSwitch) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return call(ctx, c.s, func(a *memberAPI) (*pb.MemberListResponse, error) { return a.cluster.MemberList(ctx, r) })
}

func (c *clusterSwitch) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	return call(ctx, c.s, func(m *memberAPI) (*pb.MemberAddResponse, error) { return m.cluster.MemberAdd(ctx, r) })
}

func (c *clusterSwitch) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	return call(ctx, c.s, func(m *memberAPI) (*pb.MemberRemoveResponse, error) { return m.cluster.MemberRemove(ctx, r) })
}

func (c *clusterSwitch) MemberUpdate(ctx context.Context, r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	return call(ctx, c.s, func(m *memberAPI) (*pb.MemberUpdateResponse, error) { return m.cluster.MemberUpdate(ctx, r) })
}

func (c *clusterSwitch) MemberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	return call(ctx, c.s, func(m *memberAPI) (*pb.MemberPromoteResponse, error) { return m.cluster.MemberPromote(ctx, r) })
}
