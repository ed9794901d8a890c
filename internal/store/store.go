// Package store is etcd: embedded or external, our own keys, leases, election.
//
// The embedded server is reached by function calls (as by etcd's v3client): no listener, no gRPC, a third of the CPU of a
// socket for each read, and no port that a neighbour on the machine could talk to. A unix socket for etcdctl is opened
// only when it is asked for. External servers are reached over TLS.
//
// The objects of the API live under Config.Prefix and belong to internal/coreapi, which reads and writes them through
// Client. What other packages store (last-known documents) lives under /portico/, or for another Prefix where
// OwnKey says, and is reached through Get, Put, Delete and List. What is true only while a process lives (its verdicts, who
// leads) lives there under leases in live/ and is reached through Replicas.
//
// A process that starts while no member of an external etcd answers may read a state snapshot in its place: statesnapshot.go
// keeps the file, statefile.go has its form, and statekv.go answers from it.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.uber.org/zap"
)

// DefaultQuotaBytes is the most that etcd recommends.
const DefaultQuotaBytes = 8 << 30

// DefaultPrefix is kube-apiserver's prefix of objects, which tools expect.
const DefaultPrefix = "/registry"

// etcd is local or a few milliseconds away: a call that takes longer than these fails.
const (
	checkTimeout = 2 * time.Second
	keyTimeout   = 10 * time.Second
	closeTimeout = 10 * time.Second
	// finishTimeout bounds the wait for calls and watches before that.
	finishTimeout = 2 * time.Second
)

// ErrNotReady is the answer to every call made before Ready, or after Run has returned.
var ErrNotReady = errors.New("the store is not ready")

// Config says which etcd. The zero value of every field but DataDir (or Servers) is usable.
type Config struct {
	// Servers are the URLs of an external etcd. Empty: an etcd of our own in DataDir.
	// Plain http is refused except to this machine: etcd behind it would be open to whoever can reach it.
	Servers []string
	// CAFile is the PEM bundle that the external servers' certificates must chain to. Empty: the system's roots.
	CAFile string
	// CertFile and KeyFile are our client certificate for the external servers; replaced on disk, they are reloaded.
	CertFile, KeyFile string
	// Dial makes the connections to the external servers that are no sockets. Nil: they are direct.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Prefix holds the objects of the API. Empty: DefaultPrefix. Changing it hides every object stored before.
	Prefix string
	// DataDir holds the embedded etcd. It is created with mode 0700 and belongs to one process at a time.
	DataDir string
	// QuotaBytes is how large the embedded etcd may grow. Beyond it writes are refused (NOSPACE) while reads and deletions
	// go on. Zero: DefaultQuotaBytes.
	QuotaBytes int64
	// Volatile is for an embedded etcd whose data nobody needs after Run has returned: nothing is forced to disk, and a
	// transaction may be as large as ReplaceObjects needs. Default false.
	Volatile bool
	// UnixSocket is a path where the embedded etcd listens for etcdctl. Empty: no listener at all.
	// Whoever can open it can read every secret; it is created with mode 0600.
	UnixSocket string
	// Cluster makes the embedded etcd one of several members. Nil: it is the only one, and nothing listens.
	Cluster *Cluster
	// StateSnapshot, of an external etcd, lets a process start while no member answers. Nil: the start waits for etcd.
	StateSnapshot *StateSnapshotConfig
	// Logger receives etcd's own log too. Nil: nothing is logged.
	Logger *zap.Logger
}

// Store is one etcd, embedded or external. It does nothing until Run.
type Store struct {
	cfg     Config
	log     *zap.Logger
	own     string                            // the root of our own keys
	client  atomic.Pointer[kubernetes.Client] // nil outside the time between Ready and the end of Run
	ready   chan struct{}                     // closed once, when client is first set
	quorum  *quorum                           // nil: etcd is embedded, and has a single member
	source  atomic.Pointer[stateSource]       // what this process has started from; nil: etcd
	saved   atomic.Pointer[time.Time]         // of the last state that was written
	servers atomic.Pointer[memberWatch]       // the servers of an external etcd; nil before Run
	// What follows is of the embedded etcd.
	disk         *disk         // nil: etcd is external
	startTimeout time.Duration // bounds a start
	membership   sync.Mutex    // held while the file about it is changed
	// joined are the members of the cluster that is joined at this start; nil: none is.
	joined map[string][]string
	// member is the one that runs now; nil: none.
	member atomic.Pointer[etcdserver.EtcdServer]
}

// New checks cfg. It touches neither disk nor network.
func New(cfg Config) (*Store, error) {
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	cfg.Prefix = cmp.Or(cfg.Prefix, DefaultPrefix)
	cfg.QuotaBytes = cmp.Or(cfg.QuotaBytes, DefaultQuotaBytes)
	if !strings.HasPrefix(cfg.Prefix, "/") || strings.HasPrefix(cfg.Prefix+"/", ownPrefix) || strings.HasPrefix(cfg.Prefix+"/", otherPrefix) {
		return nil, fmt.Errorf("etcd prefix %q: it must begin with / and stay clear of %s and %s", cfg.Prefix, ownPrefix, otherPrefix)
	}
	if len(cfg.Servers) == 0 && cfg.DataDir == "" {
		return nil, errors.New("no etcd: give a data directory for an embedded one, or the URLs of external servers")
	}
	if cfg.StateSnapshot != nil && (len(cfg.Servers) == 0 || cfg.StateSnapshot.File == "" || len(cfg.StateSnapshot.Secret) == 0 || cfg.StateSnapshot.MaxAge <= 0) {
		return nil, errors.New("state snapshot: it is of an external etcd, and needs a file, a secret and an age")
	}
	for _, server := range cfg.Servers {
		if err := checkServer(server); err != nil {
			return nil, err
		}
	}
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		return nil, errors.New("etcd client certificate: the certificate file and the key file go together")
	}
	if cfg.UnixSocket != "" {
		if len(cfg.Servers) > 0 {
			return nil, errors.New("an etcd unix socket belongs to the embedded etcd: leave it out with external servers")
		}
		path, err := filepath.Abs(cfg.UnixSocket)
		if err != nil {
			return nil, fmt.Errorf("etcd unix socket: %w", err)
		}
		// sun_path holds 108 bytes on Linux; the kernel's own message for more is "invalid argument".
		if len(path) > 107 {
			return nil, fmt.Errorf("etcd unix socket %s: the path is longer than the 107 bytes that a socket may have; choose a shorter one", path)
		}
		cfg.UnixSocket = path
	}
	if cfg.Cluster != nil {
		if len(cfg.Servers) > 0 || cfg.Volatile {
			return nil, errors.New("an external or a volatile etcd has no members of ours")
		}
		if err := cfg.Cluster.check(); err != nil {
			return nil, err
		}
	}
	s := &Store{cfg: cfg, log: cfg.Logger, own: ownRoot(cfg.Prefix), ready: make(chan struct{}), startTimeout: startTimeout}
	if len(cfg.Servers) == 0 {
		s.disk = newDisk(cfg.DataDir, cfg.Logger)
	}
	if len(cfg.Servers) > 0 || cfg.Cluster != nil {
		s.quorum = newQuorum(cfg.Logger)
		if cfg.StateSnapshot != nil {
			s.cfg.StateSnapshot = cfg.StateSnapshot.withDefaults()
		}
	}
	return s, nil
}

func checkServer(server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("etcd server %q: %w", server, err)
	}
	switch u.Scheme {
	case "https", "unix":
		return nil
	case "http":
		host := u.Hostname()
		if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
			return nil
		}
		return fmt.Errorf("etcd server %q: plain http is refused except to this machine; use https with a CA file and a client certificate", server)
	}
	return fmt.Errorf("etcd server %q: want a URL that begins with https://, http:// or unix://", server)
}

// Lost returns a *QuorumError while no member of an etcd of several answers, be they external or embedded.
func (s *Store) Lost() error {
	if s.quorum == nil {
		return nil
	}
	_, err := s.quorum.held()
	return err
}

// Silence is how long no member of an etcd of several has answered. It is some time before etcd counts as lost.
func (s *Store) Silence() time.Duration {
	if s.quorum == nil {
		return 0
	}
	return time.Since(s.quorum.lastAnswer())
}

// ServersAnswer reports which servers of an external etcd, by their addresses, have answered within the last ten seconds. It is empty for
// an embedded one.
func (s *Store) ServersAnswer() map[string]bool {
	if w := s.servers.Load(); w != nil {
		return w.answers(time.Now())
	}
	return nil
}

// LostChanged returns a channel that is closed when Lost will return something else. Take it before calling Lost. It is nil for
// the single member of an embedded etcd.
func (s *Store) LostChanged() <-chan struct{} {
	if s.quorum == nil {
		return nil
	}
	s.quorum.mu.Lock()
	defer s.quorum.mu.Unlock()
	return s.quorum.changed
}

// Run starts or dials etcd, closes Ready once it answers, and blocks until ctx ends or etcd fails.
// It returns after etcd has stopped and its lock on the data directory is released, within a bounded time.
func (s *Store) Run(ctx context.Context) error {
	defer s.client.Store(nil)
	if len(s.cfg.Servers) > 0 {
		return s.runExternal(ctx)
	}
	return s.runEmbedded(ctx)
}

// publish makes the client available.
func (s *Store) publish(client *kubernetes.Client) {
	s.client.Store(client)
	close(s.ready)
}

// Ready is closed when etcd first answered.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// Prefix returns the prefix of the API objects.
func (s *Store) Prefix() string { return s.cfg.Prefix }

// objects begins the keys of API objects.
func (s *Store) objects() string { return strings.TrimSuffix(s.cfg.Prefix, "/") + "/" }

// Client returns the shared client. It is nil before Ready and after Run has returned. Callers must not close it.
func (s *Store) Client() *kubernetes.Client { return s.client.Load() }

// Check reads through consensus, so that its success means that etcd has a leader and would accept a write. Where there are several members,
// they are asked so all the time: it fails when Lost does.
func (s *Store) Check(ctx context.Context) error {
	if s.quorum != nil && s.Client() != nil {
		return s.Lost()
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if _, _, err := s.Get(ctx, "health"); err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	return nil
}
