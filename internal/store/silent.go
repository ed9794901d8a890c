package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A member of etcd that is frozen or partitioned keeps its connections. gRPC pings it every ten seconds at most, and every call
// and watch on such a connection waits until gRPC gives up. Therefore each member is probed with a read through consensus once
// a second. If a member has not responded for silentAfter while another one did, its connections are closed, so that calls and
// watches move to other members. It receives no new connections until it responds again.
//
// If no member responds, all of them keep their connections, and etcd is lost (quorum.go).
const (
	memberProbeInterval = time.Second
	memberProbeTimeout  = lostAfter
	silentAfter         = 2 * time.Second
	// lostProbeTimeout is the timeout of probes while etcd is lost. It is longer, so that a slow etcd is detected.
	lostProbeTimeout = 2 * lostAfter
)

var errSilentMember = errors.New("the member of etcd does not answer")

// memberWatch tracks which members respond, and the connections to them.
type memberWatch struct {
	members []string // addresses to dial, as host:port
	connect func(ctx context.Context, address string) (net.Conn, error)
	quorum  *quorum
	log     *zap.Logger

	mu     sync.Mutex // guards the fields below
	conns  map[string]map[*memberConn]struct{}
	silent map[string]bool
	// answered contains when each member last responded.
	answered map[string]time.Time
}

// memberConn is a connection to a member.
type memberConn struct {
	net.Conn
	watch *memberWatch
	at    string
}

func (c *memberConn) Close() error {
	c.watch.mu.Lock()
	delete(c.watch.conns[c.at], c)
	c.watch.mu.Unlock()
	return c.Conn.Close()
}

func newMemberWatch(servers []string, q *quorum, log *zap.Logger) *memberWatch {
	w := &memberWatch{connect: dialDirectly, quorum: q, log: log, conns: map[string]map[*memberConn]struct{}{}, silent: map[string]bool{}, answered: map[string]time.Time{}}
	for _, server := range servers {
		_, address, _ := strings.Cut(server, "://")
		w.members = append(w.members, address)
	}
	return w
}

func dialDirectly(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// hasChoice reports whether there are several members, reached over the network. Only then do calls use dial.
func hasChoice(servers []string) bool {
	return len(servers) > 1 && !usesSockets(servers)
}

func usesSockets(servers []string) bool {
	return slices.ContainsFunc(servers, func(server string) bool { return strings.HasPrefix(server, "unix") })
}

// dial connects to a member that is not silent.
func (w *memberWatch) dial(ctx context.Context, address string) (net.Conn, error) {
	if w.isSilent(address) {
		return nil, fmt.Errorf("%s: %w", address, errSilentMember)
	}
	conn, err := w.connect(ctx, address)
	if err != nil {
		return nil, err
	}
	c := &memberConn{Conn: conn, watch: w, at: address}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns[address] == nil {
		w.conns[address] = map[*memberConn]struct{}{}
	}
	w.conns[address][c] = struct{}{}
	return c, nil
}

func (w *memberWatch) isSilent(address string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent[address]
}

// deadAfter is how long after its last response a member counts as dead.
const deadAfter = 10 * time.Second

// answers reports which members respond.
func (w *memberWatch) answers(now time.Time) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := make(map[string]bool, len(w.answered))
	for address, at := range w.answered {
		answers[address] = now.Sub(at) < deadAfter
	}
	return answers
}

// run probes every member until ctx ends. config is the configuration of the client. Each member is probed by a separate
// client.
func (w *memberWatch) run(ctx context.Context, config clientv3.Config, key string) {
	var probes sync.WaitGroup
	defer probes.Wait()
	began := time.Now()
	w.mu.Lock()
	for _, address := range w.members {
		w.answered[address] = began
	}
	w.mu.Unlock()
	for i, address := range w.members {
		own := config
		own.Endpoints, own.Logger = config.Endpoints[i:i+1], zap.NewNop()
		probes.Go(func() { w.probe(ctx, own, key, address) })
	}
	probes.Go(func() {
		every(ctx, judgeInterval, func() { w.judge(time.Now()) })
	})
}

// probe probes one member until ctx ends.
func (w *memberWatch) probe(ctx context.Context, config clientv3.Config, key, address string) {
	client, err := clientv3.New(config)
	if err != nil {
		w.log.Warn("cannot probe an etcd member", zap.String("member", address), zap.Error(err))
		return
	}
	defer func() { _ = client.Close() }() // returns the error of its canceled context
	every(ctx, memberProbeInterval, func() {
		timeout := memberProbeTimeout
		if _, err := w.quorum.held(); err != nil {
			timeout = lostProbeTimeout
		}
		bounded, cancel := context.WithTimeout(ctx, timeout)
		_, err := client.Get(bounded, key)
		cancel()
		if err == nil {
			w.quorum.answered()
			w.mu.Lock()
			w.answered[address] = time.Now()
			w.mu.Unlock()
		}
	})
}

// every calls f at intervals until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// judge determines the silent members.
func (w *memberWatch) judge(now time.Time) {
	w.mu.Lock()
	var closing []*memberConn
	var last time.Time
	for _, at := range w.answered {
		if at.After(last) {
			last = at
		}
	}
	for _, address := range w.members {
		at := w.answered[address]
		silent := last.Sub(at) > silentAfter
		if now.Sub(last) > silentAfter+memberProbeInterval {
			silent = false // no member responds
		}
		if silent == w.silent[address] {
			continue
		}
		w.silent[address] = silent
		if !silent {
			w.log.Info("etcd member responds again; using it", zap.String("member", address))
			continue
		}
		w.log.Warn("etcd member does not respond; using the other members", zap.String("member", address), zap.Duration("for", now.Sub(at).Round(time.Millisecond)))
		closing = slices.AppendSeq(closing, maps.Keys(w.conns[address]))
	}
	w.mu.Unlock()
	for _, c := range closing {
		_ = c.Close() // the users of the connection receive its end
	}
}
