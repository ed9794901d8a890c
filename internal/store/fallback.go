package store

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// This process uses its member of the cluster directly, without a socket. If this member does not respond while another one
// does, for example after a disk failure or a network partition, the process uses the other members as any client of etcd. Both
// are probed once a second. The local member is judged like a member of an external etcd (silent.go).

// answers contains the times of the last responses of the local member and of the other members.
type answers struct {
	mu          sync.Mutex // guards the fields below
	own, others time.Time
}

func (a *answers) note(at *time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*at = time.Now()
}

// ownIsSilent reports whether the local member has not responded for silentAfter while another member did.
func (a *answers) ownIsSilent(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.others.Sub(a.own) > silentAfter && now.Sub(a.others) <= silentAfter+memberProbeInterval
}

// watchMembers probes etcd and selects the members to use, until ctx ends.
func (s *Store) watchMembers(ctx context.Context, members *memberSwitch) error {
	remote, err := newRemote(s)
	if err != nil {
		return err
	}
	defer remote.close()
	defer members.fallBack(nil)
	s.quorum.answered()
	answered := &answers{own: time.Now()}
	key := []byte(s.OwnKey("health"))
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		s.probeEvery(ctx, func(ctx context.Context) error { return members.askOwn(ctx, key) }, func() { answered.note(&answered.own) })
	})
	asking.Go(func() {
		s.probeEvery(ctx, func(ctx context.Context) error { return remote.probe(ctx, key) }, func() { answered.note(&answered.others) })
	})
	silent := false
	every(ctx, judgeInterval, func() {
		s.quorum.tick()
		switch now := answered.ownIsSilent(time.Now()); {
		case now == silent:
		case now:
			s.log.Warn("local etcd member does not respond; using the other members")
			members.fallBack(remote.api)
		default:
			s.log.Info("local etcd member responds again; using it")
			members.fallBack(nil)
		}
		silent = members.fellBack()
	})
	return nil
}

// probeEvery probes the local member or the other members until ctx ends.
func (s *Store) probeEvery(ctx context.Context, ask func(context.Context) error, answered func()) {
	every(ctx, memberProbeInterval, func() {
		timeout := memberProbeTimeout
		if s.Lost() != nil {
			timeout = lostProbeTimeout
		}
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if ask(bounded) == nil {
			s.quorum.answered()
			answered()
		}
	})
}

// remote represents the other members as a single one that is used like the local member.
type remote struct {
	store  *Store
	client *clientv3.Client
	api    *memberAPI
}

func newRemote(s *Store) (*remote, error) {
	client, err := s.cfg.Cluster.dial(s.log, s.cfg.Cluster.Address) // until the other members are known
	if err != nil {
		return nil, err
	}
	conn := client.ActiveConnection()
	return &remote{store: s, client: client, api: &memberAPI{
		failure: newFailure(), kv: &remoteKV{client: pb.NewKVClient(conn)}, lease: &remoteLease{client: pb.NewLeaseClient(conn)},
		watch: &remoteWatch{client: pb.NewWatchClient(conn)}, maintenance: &remoteMaintenance{client: pb.NewMaintenanceClient(conn)},
		cluster: &remoteCluster{client: pb.NewClusterClient(conn)},
	}}, nil
}

func (r *remote) close() { _ = r.client.Close() } // returns the error of its canceled context

var errAlone = errors.New("there are no other members")

// probeEvery reads through consensus at another member.
func (r *remote) probe(ctx context.Context, key []byte) error {
	known, err := ReadMembership(r.store.cfg.DataDir)
	if err != nil {
		return err
	}
	if known == nil || len(known.Others) == 0 {
		return errAlone
	}
	var endpoints []string
	for _, address := range known.Others {
		endpoints = append(endpoints, memberURL(address))
	}
	if !slices.Equal(endpoints, r.client.Endpoints()) {
		r.client.SetEndpoints(endpoints...)
	}
	_, err = r.api.kv.Range(ctx, &pb.RangeRequest{Key: key})
	return err
}

// relay forwards messages between two ends of a stream until one of them ends.
func relay[Q, A any](here grpc.BidiStreamingServer[Q, A], open func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Q, A], error)) error {
	ctx, cancel := context.WithCancel(here.Context())
	defer cancel()
	there, err := open(ctx)
	if err != nil {
		return err
	}
	go func() { // ends with the context of here, which ends when this function has returned
		for {
			q, err := here.Recv()
			if err != nil {
				_ = there.CloseSend() // Recv returns the reason
				return
			}
			if there.Send(q) != nil {
				return // Recv returns the reason
			}
		}
	}()
	return forwardAll(there.Recv, here.Send)
}

// forwardAll forwards messages until the stream ends.
func forwardAll[A any](receive func() (*A, error), send func(*A) error) error {
	for {
		a, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := send(a); err != nil {
			return err
		}
	}
}

type remoteKV struct {
	pb.UnimplementedKVServer
	client pb.KVClient
}

func (k *remoteKV) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return k.client.Range(ctx, r)
}

func (k *remoteKV) RangeStream(r *pb.RangeRequest, answers grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	there, err := k.client.RangeStream(answers.Context(), r)
	if err != nil {
		return err
	}
	return forwardAll(there.Recv, answers.Send)
}

func (k *remoteKV) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return k.client.Put(ctx, r)
}

func (k *remoteKV) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return k.client.DeleteRange(ctx, r)
}

func (k *remoteKV) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return k.client.Txn(ctx, r)
}

func (k *remoteKV) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return k.client.Compact(ctx, r)
}

type remoteLease struct {
	pb.UnimplementedLeaseServer
	client pb.LeaseClient
}

func (l *remoteLease) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return l.client.LeaseGrant(ctx, r)
}

func (l *remoteLease) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return l.client.LeaseRevoke(ctx, r)
}

func (l *remoteLease) LeaseKeepAlive(both grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	return relay(both, l.client.LeaseKeepAlive)
}

func (l *remoteLease) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	return l.client.LeaseTimeToLive(ctx, r)
}

func (l *remoteLease) LeaseLeases(ctx context.Context, r *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	return l.client.LeaseLeases(ctx, r)
}

type remoteWatch struct {
	pb.UnimplementedWatchServer
	client pb.WatchClient
}

func (w *remoteWatch) Watch(both grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	return relay(both, w.client.Watch)
}

type remoteMaintenance struct {
	pb.UnimplementedMaintenanceServer
	client pb.MaintenanceClient
}

func (m *remoteMaintenance) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return m.client.Alarm(ctx, r)
}

func (m *remoteMaintenance) Status(ctx context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	return m.client.Status(ctx, r)
}

func (m *remoteMaintenance) Hash(ctx context.Context, r *pb.HashRequest) (*pb.HashResponse, error) {
	return m.client.Hash(ctx, r)
}

func (m *remoteMaintenance) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	return m.client.HashKV(ctx, r)
}

func (m *remoteMaintenance) Snapshot(r *pb.SnapshotRequest, answers grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	there, err := m.client.Snapshot(answers.Context(), r)
	if err != nil {
		return err
	}
	return forwardAll(there.Recv, answers.Send)
}

type remoteCluster struct {
	pb.UnimplementedClusterServer
	client pb.ClusterClient
}

func (c *remoteCluster) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	return c.client.MemberAdd(ctx, r)
}

func (c *remoteCluster) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	return c.client.MemberRemove(ctx, r)
}

func (c *remoteCluster) MemberUpdate(ctx context.Context, r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	return c.client.MemberUpdate(ctx, r)
}

func (c *remoteCluster) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	return c.client.MemberList(ctx, r)
}

func (c *remoteCluster) MemberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	return c.client.MemberPromote(ctx, r)
}

// fallBack switches from the local member to the other members, or back to the local one if others is nil. Calls without a
// response from the previous member fail, and watches continue at the new one.
func (s *memberSwitch) fallBack(others *memberAPI) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others == others {
		return
	}
	s.others = others
	close(s.left)
	s.left = make(chan struct{})
	close(s.changed)
	s.changed = make(chan struct{})
}

// fellBack reports whether the other members are in use.
func (s *memberSwitch) fellBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.others != nil
}

// leaves returns a channel that is closed at the next switch.
func (s *memberSwitch) leaves() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// askOwn reads through consensus at the local member.
func (s *memberSwitch) askOwn(ctx context.Context, key []byte) error {
	s.mu.Lock()
	own := s.member
	s.mu.Unlock()
	if own == nil || !own.begin() {
		return ErrNotReady
	}
	done := make(chan error, 1)
	go func() {
		defer own.end()
		_, err := own.kv.Range(ctx, &pb.RangeRequest{Key: key})
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-own.failure.failed:
		return own.failure.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errLeft is returned for calls without a response from the previous member. They may have been executed.
var errLeft = errors.New("this member does not answer, and another one is used")
