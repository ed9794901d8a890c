package faulty

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/pki"
)

// Config configures a Server. Stores, Listen, Observe and Command are optional.
type Config struct {
	// Group is the API group; its only version is v1.
	Group string
	// ServerName is the DNS name in the certificate: <service>.<namespace>.svc.
	ServerName string
	// Address is the listen address. Port 0 selects a free port, which the server then keeps.
	Address string
	// Stores selects the resource widgets, which clients can create and delete and which are kept in memory.
	// Otherwise the resource is readings, which clients can get and list and which are synthetic, like those of a
	// metrics server.
	Stores bool
	// Listen opens the listener, and opens it again on the same address after Refuse. Default: TCP.
	Listen func(address string) (net.Listener, error)
	// Handler serves the requests instead of the API of Group. The faults that are about objects or documents of that API
	// have no effect then. May be nil.
	Handler http.Handler
	// Observe is called with each request before it is served. May be nil.
	Observe func(*http.Request)
	// Command, with its arguments, starts a process that calls ServeProcess. If it is empty, the server runs in this
	// process. A server with Command supports no fault but Stopped and no Replica; its Stored, Deleted and Served
	// return zero.
	Command []string
}

// Server is an extension server that can have a fault.
type Server struct {
	cfg      Config
	identity *identity
	store    *store
	ready    chan struct{}
	gate     *faultListener // set before ready is closed

	mu      sync.Mutex // guards fault, turn, process and clients
	fault   Fault
	process *os.Process       // nil if the server runs in this process
	turn    chan struct{}     // closed and replaced when the fault changes
	clients map[string]string // fingerprint of the client certificate by user agent
	serving atomic.Int64
	served  atomic.Int64
	// upgraded is the number of connections that connect serves.
	upgraded atomic.Int64
}

// New returns a healthy server that does not listen yet.
func New(cfg Config) (*Server, error) {
	identity, err := newIdentity(cfg.ServerName)
	if err != nil {
		return nil, err
	}
	return newServer(cfg, identity, newStore()), nil
}

func newServer(cfg Config, id *identity, objects *store) *Server {
	return &Server{
		cfg: cfg, identity: id, store: objects, ready: make(chan struct{}), turn: make(chan struct{}), clients: map[string]string{},
	}
}

// Replica returns another server with the same objects, authority and name, for a second endpoint of a Service.
func (s *Server) Replica() (*Server, error) {
	identity, err := s.identity.another()
	if err != nil {
		return nil, err
	}
	return newServer(s.cfg, identity, s.store), nil
}

// CABundle returns the CA certificates that verify the server's certificate while it is healthy.
func (s *Server) CABundle() []byte { return s.identity.bundle() }

// RotateAuthority creates a new authority and adds it to CABundle. ShowRotated then presents a certificate of the new
// authority on new connections and removes the old authority from CABundle.
func (s *Server) RotateAuthority() error { return s.identity.rotate() }

// ShowRotated completes the rotation that RotateAuthority began.
func (s *Server) ShowRotated() error { return s.identity.finishRotation() }

// Ready returns a channel that is closed when the server listens.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Port returns the listening port. It is valid once Ready is closed.
func (s *Server) Port() int32 {
	at, ok := s.gate.Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return int32(at.Port)
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if len(s.cfg.Command) > 0 {
		return s.runProcess(ctx)
	}
	gate, err := newFaultListener(s.cfg.Address, s.cfg.Listen)
	if err != nil {
		return err
	}
	return s.serve(ctx, gate)
}

func (s *Server) serve(ctx context.Context, gate *faultListener) error {
	s.gate = gate
	close(s.ready)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	hs := &http.Server{
		Handler: s, TLSConfig: s.tlsConfig(), Protocols: protocols,
		ErrorLog:          log.New(io.Discard, "", 0), // failed handshakes are expected
		ReadHeaderTimeout: 30 * time.Second,
		ConnContext:       countRequests,
	}
	stop := context.AfterFunc(ctx, func() { _ = hs.Close() })
	defer stop()
	err := hs.ServeTLS(gate, "", "")
	_ = gate.Close()
	_ = hs.Close()
	s.awaitHandlers()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// awaitHandlers returns when no handler is running, because http.Server.Close does not wait for handlers. Their
// contexts have ended with their connections.
func (s *Server) awaitHandlers() {
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.serving.Load() > 0 {
		select {
		case <-tick.C:
		case <-deadline.C:
			return
		}
	}
}

// SetFault replaces the current fault. Healthy repairs the server. It must not be called before Ready is closed.
func (s *Server) SetFault(f Fault) error {
	if len(s.cfg.Command) > 0 {
		return s.setProcessFault(f)
	}
	s.mu.Lock()
	before := s.fault
	s.fault = f
	close(s.turn)
	s.turn = make(chan struct{})
	s.mu.Unlock()

	if f.showsWrongCertificate() || before.showsWrongCertificate() {
		if err := s.identity.show(f); err != nil {
			return err
		}
		s.gate.cut() // otherwise connections made with the other certificate stay open
	}
	if f == OtherDiscovery {
		s.gate.cut()
	}
	s.gate.setTrickle(f == Trickle)
	s.gate.setPartitioned("")
	if f == Blackhole {
		s.gate.freeze()
	} else {
		s.gate.thaw()
	}
	if f == Refuse {
		s.gate.refuse()
		return nil
	}
	return s.gate.reopen()
}

// Fault returns the failure mode.
func (s *Server) Fault() Fault {
	fault, _ := s.now()
	return fault
}

// Partition stops all bytes from and to one client until SetFault, like a network partition. The client is identified
// by the fingerprint of its certificate (ClientOf).
func (s *Server) Partition(client string) { s.gate.setPartitioned(client) }

// ClientOf returns the fingerprint of the client certificate of the latest request with a user agent, or an empty
// string.
func (s *Server) ClientOf(userAgent string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients[userAgent]
}

// maxClients bounds the number of recorded user agents.
const maxClients = 16

// noteClient records the client certificate of a user agent's requests.
func (s *Server) noteClient(r *http.Request) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.clients[r.UserAgent()]; known || len(s.clients) < maxClients {
		s.clients[r.UserAgent()] = fingerprint(r.TLS.PeerCertificates[0])
	}
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// tlsConfig returns a configuration that records the client of each connection once it has presented its certificate.
func (s *Server) tlsConfig() *tls.Config {
	config := pki.ServerConfig(s.identity.shown)
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, ok := hello.Conn.(*conn)
		if !ok {
			return nil, nil
		}
		own := config.Clone()
		own.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) > 0 {
				c.identify(fingerprint(state.PeerCertificates[0]))
			}
			return nil
		}
		return own, nil
	}
	return config
}

// Served returns the number of requests that the server has begun to serve.
func (s *Server) Served() int64 { return s.served.Load() }

// Upgraded returns the number of upgraded connections that are open.
func (s *Server) Upgraded() int64 { return s.upgraded.Load() }

// Stored returns the number of objects in a namespace, independently of what clients see.
func (s *Server) Stored(namespace string) int { return s.store.count(namespace) }

// SetHidden hides an object from clients, or shows it again, like a server whose cache is not complete after a restart. The object
// is still stored.
func (s *Server) SetHidden(namespace, name string, hide bool) {
	s.store.setHidden(types.NamespacedName{Namespace: namespace, Name: name}, hide)
}

// Deleted returns when the last object of a namespace was deleted. It is zero while objects remain, or if there never
// were any.
func (s *Server) Deleted(namespace string) time.Time { return s.store.emptied(namespace) }

// now returns the current fault and a channel that is closed when it changes.
func (s *Server) now() (Fault, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault, s.turn
}

type requestCount struct{}

// countRequests attaches a request counter to each connection, for GoAwayStorm.
func countRequests(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, requestCount{}, new(atomic.Int64))
}
