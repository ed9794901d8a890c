// Package store provides etcd, embedded or external, with internal keys, leases and an election.
//
// The embedded server is accessed by function calls, as in etcd's v3client. Without a listener and gRPC, a read takes a third
// of the CPU of a socket, and other processes on the machine cannot connect. A unix socket for etcdctl is opened only if it is
// configured. External servers are accessed over TLS.
//
// API objects are stored below Config.Prefix and belong to internal/coreapi, which reads and writes them through Client. Other
// packages store internal keys, such as last-known documents, below /portico/, or below the root that OwnKey uses for another
// Prefix. They access them through Get, Put, Delete and List. Data that is valid only while a process lives, such as its
// verdicts and leadership, is stored there under leases in live/, and accessed through Replicas.
//
// A process that starts while no member of an external etcd responds may read a state snapshot instead: statesnapshot.go
// maintains the file, statefile.go defines its format, and statekv.go serves reads from it.
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

// DefaultQuotaBytes is the maximum that etcd recommends.
const DefaultQuotaBytes = 8 << 30

// DefaultPrefix is kube-apiserver's prefix of objects, which tools expect.
const DefaultPrefix = "/registry"

// etcd is local or a few milliseconds away. Calls that exceed these timeouts fail.
const (
	checkTimeout = 2 * time.Second
	keyTimeout   = 10 * time.Second
	closeTimeout = 10 * time.Second
	// finishTimeout bounds the preceding wait for calls and watches.
	finishTimeout = 2 * time.Second
)

// ErrNotReady is returned by every call before Ready or after Run has returned.
var ErrNotReady = errors.New("the store is not ready")

// Config configures the etcd to use. The zero value of every field except DataDir or Servers is usable.
type Config struct {
	// Servers are the URLs of an external etcd. If empty, an embedded etcd runs in DataDir. Plain http is refused except for
	// loopback addresses, because such an etcd would be open to every client that can reach it.
	Servers []string
	// CAFile is the PEM bundle that verifies the external servers' certificates. If empty, the system's roots are used.
	CAFile string
	// CertFile and KeyFile are the client certificate for the external servers. They are reloaded when they are replaced on
	// disk.
	CertFile, KeyFile string
	// Dial opens the connections to external servers that are not unix sockets. If nil, they are dialed directly.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Prefix is the prefix of the API objects. Default DefaultPrefix. A change of the prefix hides all stored objects.
	Prefix string
	// DataDir is the directory of the embedded etcd. It is created with mode 0700 and belongs to one process at a time.
	DataDir string
	// QuotaBytes bounds the size of the embedded etcd. Beyond it, writes are refused (NOSPACE) while reads and deletions still
	// work. Default DefaultQuotaBytes.
	QuotaBytes int64
	// Volatile marks an embedded etcd with data that is not needed after Run has returned. Writes are not flushed to disk, and
	// a transaction may be as large as ReplaceContents needs. Default false.
	Volatile bool
	// UnixSocket is the path at which the embedded etcd listens for etcdctl. If empty, it does not listen for etcdctl. A client
	// of the socket can read every Secret. The socket is created with mode 0600.
	UnixSocket string
	// Cluster makes the embedded etcd a member of a cluster. If nil, it is the only member, and has no listener.
	Cluster *Cluster
	// StateSnapshot lets a process start while no member of an external etcd responds. If nil, the start waits for etcd.
	StateSnapshot *StateSnapshotConfig
	// Logger also receives etcd's log. If nil, nothing is logged.
	Logger *zap.Logger
}

// Store is one etcd, embedded or external. It is idle until Run.
type Store struct {
	cfg     Config
	log     *zap.Logger
	own     string                            // the root of the internal keys
	client  atomic.Pointer[kubernetes.Client] // nil before Ready and after the end of Run
	ready   chan struct{}                     // closed once, when client is first set
	quorum  *quorum                           // nil for a single embedded member
	source  atomic.Pointer[stateSource]       // the state from which this process started; nil for etcd
	saved   atomic.Pointer[time.Time]         // time of the last state that was written
	servers atomic.Pointer[memberWatch]       // the servers of an external etcd; nil before Run
	// The following fields belong to the embedded etcd.
	disk         *disk         // nil for an external etcd
	startTimeout time.Duration // bounds a start
	membership   sync.Mutex    // held while the membership file is changed
	// joined contains the members of the cluster joined at this start; nil if it does not join one.
	joined map[string][]string
	// member is the running member; nil if none is running.
	member atomic.Pointer[etcdserver.EtcdServer]
}

// New checks cfg and returns a Store. It does not access the disk or the network.
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
		// sun_path holds 108 bytes on Linux. The kernel's error for longer paths is "invalid argument".
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

// Lost returns a *QuorumError while no member of an etcd cluster responds, external or embedded.
func (s *Store) Lost() error {
	if s.quorum == nil {
		return nil
	}
	_, err := s.quorum.held()
	return err
}

// Silence returns the time since a member of an etcd cluster last responded. It grows for some time before etcd counts as lost.
func (s *Store) Silence() time.Duration {
	if s.quorum == nil {
		return 0
	}
	return time.Since(s.quorum.lastAnswer())
}

// ServersAnswer reports for each server of an external etcd, by address, whether it has responded within the last ten seconds.
// It returns nil for an embedded etcd.
func (s *Store) ServersAnswer() map[string]bool {
	if w := s.servers.Load(); w != nil {
		return w.answers(time.Now())
	}
	return nil
}

// LostChanged returns a channel that is closed when the result of Lost changes. Callers must obtain it before they call Lost.
// It is nil for a single embedded member.
func (s *Store) LostChanged() <-chan struct{} {
	if s.quorum == nil {
		return nil
	}
	s.quorum.mu.Lock()
	defer s.quorum.mu.Unlock()
	return s.quorum.changed
}

// Run starts or dials etcd, closes Ready when it responds, and blocks until ctx ends or etcd fails. It returns after etcd has
// stopped and its lock on the data directory is released, within a bounded time.
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

// Ready is closed when etcd first responds.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// Prefix returns the prefix of the API objects.
func (s *Store) Prefix() string { return s.cfg.Prefix }

// objects returns the prefix of the keys of API objects.
func (s *Store) objects() string { return strings.TrimSuffix(s.cfg.Prefix, "/") + "/" }

// Client returns the shared client. It is nil before Ready and after Run has returned. Callers must not close it.
func (s *Store) Client() *kubernetes.Client { return s.client.Load() }

// Check reads through consensus. Its success means that etcd has a leader and would accept a write. A cluster is probed
// continuously, so that Check only returns the error of Lost.
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
