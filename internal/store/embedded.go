package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

const (
	memberName = "portico"
	// peerURL is the member's name in its own cluster of one. Nothing listens there and nothing dials it.
	peerURL = "http://127.0.0.1:2380"

	// A lone member waits for up to five ticks before it elects itself, so the tick is most of our start-up time;
	// the idle CPU it costs grows as it shrinks. No network is between the member and itself, so it may be short.
	tickMilliseconds     = 20
	electionMilliseconds = 100

	// progressInterval bounds how old the bookmark of an idle watch can be. It stays well under the five minutes of
	// history that compaction leaves, so that a quiet watch can always be resumed.
	progressInterval = time.Minute
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

	select {
	case <-server.Server.ReadyNotify():
	case <-server.Server.StopNotify():
		return errors.New("embedded etcd stopped while it started; its log says why")
	case err := <-server.Err():
		return fmt.Errorf("embedded etcd: %w", err)
	case <-ctx.Done():
		return nil
	}
	if s.cfg.UnixSocket != "" {
		if err := os.Chmod(s.cfg.UnixSocket, 0o600); err != nil {
			return fmt.Errorf("etcd unix socket: %w", err)
		}
	}

	inProcess := v3client.New(server.Server)
	defer func() { _ = inProcess.Close() }() // answers the cancellation of its own context
	client := &kubernetes.Client{Client: inProcess}
	client.Kubernetes = client
	if err := s.forgetReplicas(ctx, client); err != nil {
		return err
	}
	s.makeRoom(ctx, client, server.Server.Backend())
	s.publish(client)
	s.log.Info("embedded etcd is ready", zap.String("directory", s.cfg.DataDir), zap.String("socket", s.cfg.UnixSocket))

	select {
	case <-ctx.Done():
		return nil
	case <-server.Server.StopNotify():
		return errors.New("embedded etcd stopped; its log says why")
	case err := <-server.Err():
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
func startEmbedded(cfg Config) (server *embed.Etcd, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = damaged(cfg.DataDir, fmt.Errorf("%v", r))
		}
	}()
	server, err = embed.StartEtcd(embeddedConfig(cfg))
	if errors.Is(err, walpb.ErrCRCMismatch) {
		return nil, damaged(cfg.DataDir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", cfg.DataDir, err)
	}
	return server, nil
}

func damaged(dir string, err error) error {
	return fmt.Errorf("start etcd in %s: %w; restore the directory from a snapshot or choose another", dir, err)
}

func embeddedConfig(cfg Config) *embed.Config {
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = cfg.DataDir
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdLogger(cfg.Logger))

	peer, _ := url.Parse(peerURL) // a constant that parses
	c.AdvertisePeerUrls = []url.URL{*peer}
	c.InitialCluster = c.InitialClusterFromName(memberName)
	c.ListenPeerUrls = nil
	c.ListenClientUrls, c.AdvertiseClientUrls = nil, nil
	if cfg.UnixSocket != "" {
		socket := url.URL{Scheme: "unix", Path: cfg.UnixSocket}
		c.ListenClientUrls = []url.URL{socket}
		c.AdvertiseClientUrls = []url.URL{socket}
	}
	c.EnableGRPCGateway = false

	c.TickMs, c.ElectionMs = tickMilliseconds, electionMilliseconds
	c.PreVote = false // there is nobody to ask
	c.QuotaBackendBytes = cfg.QuotaBytes
	c.WatchProgressNotifyInterval = progressInterval
	// Compaction is asked for by the API's storage, at a revision that its watches have passed.
	return c
}

// closeEmbedded waits for etcd to stop, but not for ever: a disk that no longer answers must not hold the process.
func closeEmbedded(server *embed.Etcd) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		server.Close()
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
