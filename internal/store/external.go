package store

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"portico.dev/internal/pki"
)

const (
	// A silent server is detected within keepaliveTime+keepaliveTimeout. If there are several servers, it is detected sooner
	// (silent.go).
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	dialTimeout      = 5 * time.Second
	dialRetry        = time.Second
)

// redial is the backoff for lost connections. gRPC's default backoff grows to two minutes.
var redial = backoff.Config{BaseDelay: 250 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}

// runExternal maintains a connection to the servers until ctx ends. It waits for servers that do not respond yet, because the
// front door may start before etcd.
func (s *Store) runExternal(ctx context.Context) error {
	config := clientv3.Config{
		Endpoints:            s.cfg.Servers,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		Logger:               etcdLogger(s.log),
		DialOptions:          append(s.dialOptions(), grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: dialTimeout})),
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if usesTLS(s.cfg.Servers) {
		tlsConfig, certificate, err := s.clientTLS()
		if err != nil {
			return err
		}
		config.TLS = tlsConfig
		if certificate != nil {
			running.Go(func() {
				if err := certificate.Run(ctx, s.log); err != nil && ctx.Err() == nil {
					s.log.Warn("etcd client certificate is no longer reloaded", zap.Error(err))
				}
			})
		}
	}
	members, probes := newMemberWatch(s.cfg.Servers, s.quorum, s.log), config
	if s.cfg.Dial != nil {
		members.connect = s.cfg.Dial
	}
	if hasChoice(s.cfg.Servers) {
		config.DialOptions = append(slices.Clip(config.DialOptions), grpc.WithContextDialer(members.dial))
	}
	s.servers.Store(members)
	running.Go(func() { members.run(ctx, probes, s.OwnKey("health")) })
	client, err := kubernetes.New(config)
	if err != nil {
		return fmt.Errorf("dial etcd: %w", err)
	}
	defer func() { _ = client.Client.Close() }() // returns the error of its canceled context

	source := s.awaitServers(ctx, client)
	if ctx.Err() != nil {
		return nil
	}
	if source == nil {
		s.quorum.answered()
	}
	running.Go(func() { every(ctx, judgeInterval, s.quorum.tick) })
	client.KV = &quorumKV{KV: client.KV, quorum: s.quorum}
	client.Watcher = &resumingWatcher{Watcher: client.Watcher, quorum: s.quorum}
	if source == nil {
		s.publish(client)
		s.log.Info("etcd is ready", zap.Strings("servers", s.cfg.Servers))
	} else {
		client.KV = &stateKV{KV: client.KV, source: source}
		client.Watcher = &stateWatcher{Watcher: client.Watcher, source: source}
		s.source.Store(source)
		s.publish(client)
		if s.quorum.await(ctx) == nil {
			source.useEtcd()
			s.log.Info("etcd is ready; switching from the state snapshot to etcd", zap.Strings("servers", s.cfg.Servers))
		}
	}
	<-ctx.Done()
	return nil
}

// dialOptions returns the options of every connection to external servers.
func (s *Store) dialOptions() []grpc.DialOption {
	if s.cfg.Dial == nil || usesSockets(s.cfg.Servers) {
		return nil
	}
	return []grpc.DialOption{grpc.WithContextDialer(s.cfg.Dial)}
}

func usesTLS(servers []string) bool {
	return slices.ContainsFunc(servers, func(server string) bool { return strings.HasPrefix(server, "https://") })
}

func (s *Store) clientTLS() (*tls.Config, *pki.KeyPair, error) {
	options := pki.ClientOptions{}
	if s.cfg.CAFile != "" {
		roots, err := os.ReadFile(s.cfg.CAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("etcd CA file: %w", err)
		}
		options.Roots = roots
	}
	if s.cfg.CertFile != "" {
		certificate, err := pki.LoadKeyPair(s.cfg.CertFile, s.cfg.KeyFile)
		if err != nil {
			return nil, nil, fmt.Errorf("etcd client certificate: %w", err)
		}
		options.Certificate = certificate
	}
	config, err := pki.ClientConfig(options)
	if err != nil {
		return nil, nil, fmt.Errorf("etcd CA file %s: %w", s.cfg.CAFile, err)
	}
	return config, options.Certificate, nil
}

// awaitServers reads through consensus until a server responds or ctx ends. If no server responds for StateSnapshot.Wait and
// there is a usable state snapshot, it returns that snapshot. The store then counts as lost until a server responds.
func (s *Store) awaitServers(ctx context.Context, client *kubernetes.Client) *stateSource {
	var patience <-chan time.Time // nil without a state snapshot: wait without limit
	if s.cfg.StateSnapshot != nil {
		patience = time.After(s.cfg.StateSnapshot.Wait)
	}
	answered := make(chan struct{})
	asking, cancel := context.WithCancel(ctx)
	var asks sync.WaitGroup
	defer asks.Wait()
	defer cancel()
	asks.Go(func() {
		if s.askServers(asking, client) {
			close(answered)
		}
	})
	for {
		select {
		case <-answered:
			return nil
		case <-ctx.Done():
			return nil
		case <-patience:
			if source := s.openState(); source != nil {
				s.quorum.loseAtStart()
				return source
			}
			patience = nil
		}
	}
}

// askServers reads until a server responds. It returns false if ctx ended first.
func (s *Store) askServers(ctx context.Context, client *kubernetes.Client) bool {
	var last string
	for {
		attempt, cancel := context.WithTimeout(ctx, dialTimeout)
		_, err := client.KV.Get(attempt, s.OwnKey("health"))
		cancel()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if err.Error() != last { // once per reason, not once per second
			last = err.Error()
			s.log.Warn("etcd is not available yet", zap.Strings("servers", s.cfg.Servers), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(dialRetry):
		}
	}
}
