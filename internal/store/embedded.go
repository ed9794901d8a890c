package store

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// runEmbedded owns the data directory from lock to close.
func (s *Store) runEmbedded(ctx context.Context) (err error) {
	lock, err := lockDirectory(s.cfg.DataDir)
	if err != nil {
		return err
	}
	server, err := startEmbedded(s.cfg)
	if err != nil {
		return errors.Join(err, lock.release())
	}
	defer func() {
		if closeErr := closeEmbedded(server); closeErr != nil {
			// etcd still writes to the directory. The lock stays with this process until it ends.
			err = errors.Join(err, closeErr)
			return
		}
		err = errors.Join(err, lock.release())
	}()

	if err := awaitElected(ctx, server); err != nil || ctx.Err() != nil {
		return err
	}
	door, err := openDoor(server, s.cfg.UnixSocket)
	if err != nil {
		return err
	}
	defer door.close()

	inProcess := v3client.New(server)
	defer func() { _ = inProcess.Close() }() // answers the cancellation of its own context
	client := &kubernetes.Client{Client: inProcess}
	client.Kubernetes = client
	if err := s.forgetReplicas(ctx, client); err != nil {
		return err
	}
	s.makeRoom(ctx, client, server.Backend())
	s.publish(client)
	s.log.Info("embedded etcd is ready", zap.String("directory", s.cfg.DataDir), zap.String("socket", s.cfg.UnixSocket))

	select {
	case <-ctx.Done():
		return nil
	case <-server.StopNotify():
		return errors.New("embedded etcd stopped; its log says why")
	case err := <-door.failed:
		return fmt.Errorf("embedded etcd: %w", err)
	}
}

// forgetReplicas removes what processes before this one left under leases. The directory belongs to one process at a
// time, so they have ended; waiting for a lease of one that was killed would only delay this one.
func (s *Store) forgetReplicas(ctx context.Context, client *kubernetes.Client) error {
	bounded, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	if _, err := client.KV.Delete(bounded, s.OwnKey(liveKeys), clientv3.WithPrefix()); err != nil && ctx.Err() == nil {
		return fmt.Errorf("forget the replicas of before: %w", err)
	}
	return nil
}

// startEmbedded opens the files and starts the member. etcd panics on some of what it finds on disk; people get an error
// that names the directory instead, unless the panic is on a goroutine of etcd's, which opens the database.
func startEmbedded(cfg Config) (server *etcdserver.EtcdServer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = damaged(cfg.DataDir, fmt.Errorf("%v", r))
		}
	}()
	server, err = etcdserver.NewServer(embeddedConfig(cfg))
	if errors.Is(err, walpb.ErrCRCMismatch) {
		return nil, damaged(cfg.DataDir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", cfg.DataDir, err)
	}
	server.Start()
	return server, nil
}

// awaitElected waits until the member leads itself. It has nobody to wait for, so it is told to stand for election, as a
// leader that steps down tells another member, once it has read its log; its own patience would be up later.
func awaitElected(ctx context.Context, server *etcdserver.EtcdServer) error {
	self := uint64(server.MemberID())
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		select {
		case <-server.ReadyNotify():
			return nil
		case <-server.StopNotify():
			return errors.New("embedded etcd stopped while it started; its log says why")
		case <-ctx.Done():
			return nil
		case <-look.C:
			if server.Leader() != 0 || !hasReadItsLog(server) {
				continue // it will be ready as soon as it has written that it leads; or it is not to stand yet
			}
			bounded, cancel := context.WithTimeout(ctx, electionTicks*tickMilliseconds*time.Millisecond)
			// What is lost would be done anyway.
			_ = server.Process(bounded, &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: &self, From: &self})
			cancel()
		}
	}
}

// hasReadItsLog says whether raft itself knows that everything is applied. A moment before it does, etcd may have cut off
// what it would look at when told to stand, and then it panics. It is asked where etcd publishes it, which is one place for
// all members in a process; in doubt the answer is no.
func hasReadItsLog(server *etcdserver.EtcdServer) bool {
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return false
	}
	status, ok := published().(raft.Status)
	return ok && status.ID == uint64(server.MemberID()) && status.HardState != nil &&
		status.GetCommit() > 0 && status.GetCommit() == server.CommittedIndex() && status.Applied == status.GetCommit()
}

func damaged(dir string, err error) error {
	return fmt.Errorf("start etcd in %s: %w; restore the directory from a snapshot or choose another", dir, err)
}

// closeEmbedded waits for etcd to stop, but not for ever: a disk that no longer answers must not hold the process.
func closeEmbedded(server *etcdserver.EtcdServer) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		server.Stop()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-closed:
		return nil
	case <-timer.C:
		return fmt.Errorf("embedded etcd did not stop within %s", closeTimeout)
	}
}
