package store

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

const (
	// startTimeout bounds a start of the embedded etcd. Reading a database and a log of several gigabytes takes seconds for
	// each gigabyte.
	startTimeout = 5 * time.Minute
	// progressLogInterval is the interval between progress messages of a start.
	progressLogInterval = 5 * time.Second
	// maxAttempts bounds the attempts of one start (mayStartAgain).
	maxAttempts = 6
	// stableTime is the time after a failure at which a further failure counts as the first again: etcd is then restarted
	// without waiting for free space on the disk.
	stableTime = 5 * time.Minute
)

// errStillWrites means that the data directory stays locked because etcd may still write to it.
var errStillWrites = errors.New("the embedded etcd still holds its files")

// runEmbedded holds the lock of the data directory from start to end.
func (s *Store) runEmbedded(ctx context.Context) (err error) {
	lock, err := lockDirectory(s.cfg.DataDir)
	if err != nil {
		return err
	}
	members := newMemberSwitch(s.disk, s.OwnKey(liveKeys))
	client := members.client(s.log)
	if s.quorum != nil {
		client.KV = &quorumKV{KV: client.KV, quorum: s.quorum}
		client.Watcher = &resumingWatcher{Watcher: client.Watcher, quorum: s.quorum}
	}
	closeClient := sync.OnceFunc(func() { _ = client.Client.Close() }) // returns the error of its canceled context
	defer closeClient()
	if s.cfg.Cluster == nil {
		if err = prepareMember(s.cfg, s.disk); err == nil {
			err = s.runMembers(ctx, members, client, closeClient)
		}
	} else {
		err = s.runClustered(ctx, members, client, closeClient)
	}
	if errors.Is(err, errStillWrites) {
		// The lock remains until this process ends.
		return err
	}
	return errors.Join(err, lock.release())
}

// runClustered runs a member of a cluster. A member that is joining starts over if other members have changed the cluster in
// the meantime.
func (s *Store) runClustered(ctx context.Context, members *memberSwitch, client *kubernetes.Client, closeClient func()) error {
	for attempt := 1; ; attempt++ {
		joined, err := s.prepareCluster(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		s.joined = joined
		err = s.runWatched(ctx, members, client, closeClient)
		if err == nil || joined == nil || HoldsEtcd(s.cfg.DataDir) || attempt == joinAttempts {
			return err
		}
		s.log.Warn("failed to join the etcd cluster; retrying", zap.Error(err))
		if !pause(ctx, time.Second) {
			return nil
		}
	}
}

// runWatched runs a member. As soon as it is ready, it is probed together with the other members.
func (s *Store) runWatched(ctx context.Context, members *memberSwitch, client *kubernetes.Client, closeClient func()) error {
	watching, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-s.ready:
		case <-watching.Done():
			return
		}
		if err := s.watchMembers(watching, members); err != nil {
			s.log.Error("cannot probe the etcd members", zap.Error(err))
		}
	})
	return s.runMembers(ctx, members, client, closeClient)
}

// runMembers runs a member in the directory, and a new one after each disk error that ends it.
func (s *Store) runMembers(ctx context.Context, members *memberSwitch, client *kubernetes.Client, closeClient func()) error {
	abandoned, attempts := 0, 1
	var failed time.Time // time of the last failure
	for {
		m, err := s.startMember(ctx)
		if err == nil && ctx.Err() == nil {
			err = s.useMember(ctx, m, members, client, closeClient)
		}
		if m == nil && isDiskFull(err) && s.isReady() {
			if !members.disk.awaitRoom(ctx, time.Second) {
				return nil
			}
			continue
		}
		if m == nil {
			return err
		}
		if !m.hasFailed() {
			return errors.Join(err, m.close())
		}
		members.set(nil, m.failure.err)
		if !s.isReady() && mayStartAgain(m.failure.err) && attempts < maxAttempts {
			attempts++
			if _, err := m.abandon(ctx, s.cfg.DataDir); err != nil {
				return err
			}
			continue
		}
		if !s.isReady() {
			return failedStart(s.cfg.DataDir, m.failure.err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: it failed while it stopped: %w", errStillWrites, m.failure.err)
		}
		if !isOfDisk(m.failure.err) {
			return fmt.Errorf("the embedded etcd in %s failed: %w; start again, and if it fails again, %s", s.cfg.DataDir, m.failure.err, remedy)
		}
		s.log.Error("embedded etcd stopped after a disk error; restarting it", zap.String("directory", s.cfg.DataDir), zap.Error(m.failure.err))
		stopped, err := m.abandon(ctx, s.cfg.DataDir)
		if err != nil {
			return err
		}
		if !stopped {
			abandoned++
		}
		if abandoned > maxAbandoned {
			return fmt.Errorf("the disk failed the embedded etcd in %s %d times: %w; start again when it is well", s.cfg.DataDir, abandoned, m.failure.err)
		}
		calm := time.Since(failed) > stableTime
		if failed = time.Now(); calm {
			continue // it may be able to serve reads on a full disk
		}
		if !members.disk.awaitRoom(ctx, time.Second<<abandoned) {
			return nil
		}
	}
}

// useMember publishes the client of the member, and blocks until ctx or the member ends.
func (s *Store) useMember(ctx context.Context, m *runningMember, members *memberSwitch, client *kubernetes.Client, closeClient func()) error {
	socket, err := serveSocket(m.server, s.cfg.UnixSocket)
	if err != nil {
		return err
	}
	several := s.cfg.Cluster != nil
	s.member.Store(m.server)
	defer s.member.Store(nil)
	defer func() {
		if m.hasFailed() {
			socket.abandon()
		} else {
			socket.close()
		}
	}()
	api := newMemberAPI(m.server, m.failure)
	members.set(api, nil)
	if several {
		var following sync.WaitGroup
		defer following.Wait()
		bounded, cancel := context.WithCancel(ctx)
		defer cancel()
		following.Go(func() { s.followMembership(bounded, m.server) })
	}
	if !s.isReady() {
		if !several || isAlone(m.server) {
			if err := s.forgetReplicas(ctx, client); err != nil {
				return err
			}
		}
		s.makeRoom(ctx, client, m.server.Backend())
		s.publish(client)
	}
	s.log.Info("embedded etcd is ready", zap.String("directory", s.cfg.DataDir), zap.String("socket", s.cfg.UnixSocket))

	select {
	case <-ctx.Done():
		closeClient()
		api.finish(finishTimeout)
		return nil
	case <-m.failure.failed:
		return m.failure.err
	case <-m.server.StopNotify():
		return s.stoppedError(m)
	case err := <-socket.failed:
		return fmt.Errorf("embedded etcd: %w", err)
	case err := <-m.peersFailed():
		return fmt.Errorf("embedded etcd: serve other members: %w", err)
	}
}

func (s *Store) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// mayStartAgain reports whether the failure of a start depends on the order of etcd's goroutines, so that another attempt may
// succeed.
//
// On a disk that is nearly full, etcd allocates the rest of its log and the next segment concurrently. The start fails only if
// the first of them does not fit.
//
// After a start, one goroutine of etcd applies the log and truncates it in memory, while another one reports to raft that the
// entries were applied. If the election timeout expires in between, raft scans entries that no longer exist, and panics.
func mayStartAgain(err error) bool {
	return isDiskFull(err) || strings.HasPrefix(err.Error(), "error scanning unapplied entries ")
}

// failedStart returns the error for the operator if etcd could not be started.
func failedStart(dir string, err error) error {
	if isDiskFull(err) {
		return fmt.Errorf("etcd cannot start in %s: its disk is full (%w); make room on it, at least %d MiB, and start again", dir, err, diskResume>>20)
	}
	return damaged(dir, err)
}

// forgetReplicas deletes the leased keys of earlier processes. These have ended, because the directory belongs to one process
// at a time. Waiting for the lease of a killed process to expire would only delay this one.
func (s *Store) forgetReplicas(ctx context.Context, client *kubernetes.Client) error {
	bounded, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	_, err := client.KV.Delete(bounded, s.OwnKey(liveKeys), clientv3.WithPrefix())
	if full := (*DiskFullError)(nil); errors.As(err, &full) {
		return nil // their leases expire; stored data can be read until then
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("forget the replicas of before: %w", err)
	}
	return nil
}

// startEmbedded opens the files and starts the member. It converts a panic of etcd in this goroutine into an error that names
// the directory. Panics in other goroutines are handled by the member's logger.
func startEmbedded(config config.ServerConfig) (server *etcdserver.EtcdServer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = damaged(config.DataDir, fmt.Errorf("%v", r))
		}
	}()
	server, err = etcdserver.NewServer(config)
	if errors.Is(err, walpb.ErrCRCMismatch) {
		return nil, damaged(config.DataDir, err)
	}
	if err != nil && !config.NewCluster { // the other members do not respond, or refuse this one
		return nil, err
	}
	if err != nil {
		return nil, failedStart(config.DataDir, err)
	}
	server.Start()
	return server, nil
}

// runningMember is a member of etcd from its start to its end.
type runningMember struct {
	server   *etcdserver.EtcdServer // nil if the start failed before
	peers    *peerServer            // nil without other members
	failure  *failure
	elected  bool
	removed  atomic.Bool // from its cluster
	stopping atomic.Bool // set before it is stopped
}

// peersFailed returns the channel with the error that ends the listener for other members.
func (m *runningMember) peersFailed() <-chan error {
	if m.peers == nil {
		return nil
	}
	return m.peers.failed
}

func (m *runningMember) closePeers() {
	if m.peers != nil {
		m.peers.close()
	}
}

// removalCore detects in etcd's log that the member was removed. etcd does not report this in any other way.
type removalCore struct {
	zapcore.Core
	removed *atomic.Bool
}

func (c removalCore) Enabled(l zapcore.Level) bool {
	return l >= zapcore.WarnLevel || c.Core.Enabled(l)
}

func (c removalCore) With(fields []zapcore.Field) zapcore.Core {
	return removalCore{c.Core.With(fields), c.removed}
}

func (c removalCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.Contains(e.Message, "data-dir used by this member must be removed") {
		c.removed.Store(true)
	}
	return c.Core.Check(e, checked)
}

func (m *runningMember) hasFailed() bool {
	select {
	case <-m.failure.failed:
		return true
	default:
		return false
	}
}

// startMember starts a member and logs the progress. It returns when the member has been elected or has failed, or when ctx has
// ended, within startTimeout. The member is nil if there is nothing to stop.
func (s *Store) startMember(ctx context.Context) (*runningMember, error) {
	if err := repairLog(filepath.Join(s.cfg.DataDir, memberDir, "wal"), s.log); err != nil {
		return nil, err
	}
	m := &runningMember{failure: newFailure()}
	config := embeddedConfig(s.cfg)
	config.Logger = m.failure.logger(config.Logger).WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return stoppingCore{c, &m.stopping}
	}))
	if s.cfg.Cluster != nil {
		config.Logger = config.Logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return removalCore{c, &m.removed} }))
		if err := s.cfg.Cluster.amongOthers(&config, s.joined); err != nil {
			return nil, err
		}
	}
	type result struct {
		server *etcdserver.EtcdServer
		err    error
	}
	opened := make(chan result, 1)
	go func() {
		server, err := startEmbedded(config)
		opened <- result{server, err}
	}()
	deadline := time.NewTimer(s.startTimeout)
	defer deadline.Stop()
	progress := time.NewTicker(progressLogInterval)
	defer progress.Stop()
	began := time.Now()
	for {
		select {
		case r := <-opened:
			if m.server = r.server; r.err != nil && s.joined != nil {
				return nil, fmt.Errorf("join the cluster of etcd: %w", r.err)
			} else if r.err != nil {
				return nil, r.err
			}
			if s.cfg.Cluster == nil {
				return m, s.awaitElected(ctx, m, deadline.C, progress.C)
			}
			var err error
			if m.peers, err = servePeers(m.server, s.cfg.Cluster, s.log); err != nil {
				return m, err
			}
			if err := s.awaitElected(ctx, m, nil, progress.C); err != nil || ctx.Err() != nil { // without a quorum, it waits for the other members
				return m, err
			}
			return m, s.takePlace(ctx, m)
		case <-m.failure.failed:
			return m, m.failure.err
		case <-progress.C:
			s.log.Info("etcd is opening its database and reading its log", zap.String("directory", s.cfg.DataDir), zap.Duration("since", time.Since(began)))
		case <-deadline.C:
			return nil, fmt.Errorf("%w: it did not open its files in %s within %s; look at the disk, and start again", errStillWrites, s.cfg.DataDir, s.startTimeout)
		}
	}
}

// awaitElected waits until the member can serve requests. A single member does not wait for the election timeout: after it has
// read its log, it receives the raft message MsgTimeoutNow, with which a leader that steps down starts the election of another
// member.
func (s *Store) awaitElected(ctx context.Context, m *runningMember, deadline, progress <-chan time.Time) error {
	server := m.server
	self := uint64(server.MemberID())
	look := time.NewTicker(electionPollInterval)
	defer look.Stop()
	for {
		select {
		case <-server.ReadyNotify():
			m.elected = true
			return nil
		case <-m.failure.failed:
			return m.failure.err
		case <-server.StopNotify():
			return s.stoppedError(m)
		case <-ctx.Done():
			return nil
		case <-deadline:
			return damaged(s.cfg.DataDir, fmt.Errorf("it was not elected within %s, at entry %d of %d of its log", s.startTimeout, server.AppliedIndex(), server.CommittedIndex()))
		case <-progress:
			s.log.Info(either(s.cfg.Cluster == nil || isAlone(server), "etcd is applying its log", "etcd is waiting for a quorum"), zap.String("directory", s.cfg.DataDir),
				zap.Uint64("applied", server.AppliedIndex()), zap.Uint64("committed", server.CommittedIndex()))
		case <-look.C:
			if server.Leader() != 0 || s.cfg.Cluster != nil && !isAlone(server) || !hasReadItsLog(server) {
				continue // it is elected and has yet to write that, or it must not start an election yet
			}
			bounded, cancel := context.WithTimeout(ctx, electionTicks*tickMilliseconds*time.Millisecond)
			// A lost message is harmless, because the election timeout follows.
			_ = server.Process(bounded, &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: &self, From: &self})
			cancel()
		}
	}
}

func either(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

// hasReadItsLog reports whether raft has recorded that all entries are applied. Before that, etcd may have truncated entries
// that it reads at the start of an election, and would panic. etcd publishes this status once per process, not per member. If
// in doubt, the result is false.
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
	return fmt.Errorf("start etcd in %s: %w; %s", dir, err, remedy)
}

// close waits a limited time for etcd to stop. A disk that does not respond must not prevent the process from ending.
func (m *runningMember) close() error {
	defer m.closePeers() // after the member, because a leader transfers its leadership while it stops
	closed := make(chan struct{})
	m.stopping.Store(true)
	go func() {
		defer close(closed)
		m.server.Stop()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-closed:
		return nil
	case <-m.failure.failed:
		return fmt.Errorf("%w: it failed while it stopped: %w", errStillWrites, m.failure.err)
	case <-timer.C:
		return fmt.Errorf("%w: it did not stop within %s", errStillWrites, closeTimeout)
	}
}

// lockFile is in the directory of etcd's files. etcd also locks its database, but waits for that lock indefinitely without a
// message. This lock is tried once, before etcd starts.
const lockFile = "portico.lock"

// directoryLock is a process's lock on a data directory. The kernel releases it when the process ends.
type directoryLock struct {
	file *os.File
}

// lockDirectory creates dir if it is missing, and locks it.
func lockDirectory(dir string) (*directoryLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s cannot be written: %w", dir, err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by another process: stop that one, or choose another directory", dir)
		}
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return &directoryLock{file}, nil
}

// release releases the lock. It keeps the file: if it were removed, two processes could lock different files of the same name.
func (l *directoryLock) release() error { return l.file.Close() }
