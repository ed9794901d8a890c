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

	"portico.dev/internal/pki"
)

// Config is what a Server is made of. All fields but Stores are required.
type Config struct {
	// Group is the API group; its only version is v1.
	Group string
	// ServerName is what its certificate is for: <service>.<namespace>.svc.
	ServerName string
	// Address is where it listens; port 0 picks a free one, which it then keeps.
	Address string
	// Stores: the resource is widgets, which can be created and deleted and are kept in memory. Otherwise it is readings,
	// which can be got and listed and are made up, as those of a metrics server.
	Stores bool
	// Command starts a process that calls ServeProcess, with its arguments. Empty: the server runs in this process. Such a
	// server has no fault but Stopped, no Replica, and Stored, Deleted and Served are unknown, which is 0.
	Command []string
}

// Server is an extension server with a fault, or none.
type Server struct {
	cfg      Config
	identity *identity
	store    *store
	ready    chan struct{}
	gate     *faultListener // set before ready is closed

	mu      sync.Mutex // guards fault and turn
	fault   Fault
	process *os.Process       // nil: this one
	turn    chan struct{}     // closed, and replaced, when the fault changes
	clients map[string]string // by user agent, the fingerprint of the certificate that its requests came with
	serving atomic.Int64
	served  atomic.Int64
}

// New makes a server that is well and does not listen yet.
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

// Replica makes another server with the same objects, authority and name, for a second endpoint of a Service.
func (s *Server) Replica() (*Server, error) {
	identity, err := s.identity.another()
	if err != nil {
		return nil, err
	}
	return newServer(s.cfg, identity, s.store), nil
}

// CABundle is what its certificate chains to while it is well.
func (s *Server) CABundle() []byte { return s.identity.bundle() }

// RotateAuthority makes a new authority, which CABundle has besides the old one. ShowRotated shows a certificate of it from
// now on, on new connections, and CABundle has the new authority only.
func (s *Server) RotateAuthority() error { return s.identity.rotate() }

// ShowRotated is the second half of RotateAuthority.
func (s *Server) ShowRotated() error { return s.identity.finishRotation() }

// Ready is closed when it listens.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Port is where it listens, once Ready.
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
	gate, err := newFaultListener(s.cfg.Address)
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
		ErrorLog:          log.New(io.Discard, "", 0), // failed handshakes are what it is here for
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

// awaitHandlers returns when no handler runs any more: http.Server.Close does not wait for them. Their contexts have
// ended with their connections.
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

// SetFault puts a fault in the place of the one before. Well mends. It is called once Ready.
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
		s.gate.cut() // or connections that were made with the other certificate go on
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

// Partition stops every byte from and to one client until SetFault, as if its network were cut off. The client is known by
// the fingerprint of its certificate (ClientOf).
func (s *Server) Partition(client string) { s.gate.setPartitioned(client) }

// ClientOf is the fingerprint of the client certificate with which requests of a user agent last came. Empty: none came.
func (s *Server) ClientOf(userAgent string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients[userAgent]
}

// maxClients bounds the user agents that are remembered.
const maxClients = 16

// noteClient remembers which client certificate requests of a user agent come with.
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

// tlsConfig tells each connection whose it is when the client has shown its certificate.
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

// Served is how many requests it has begun to serve.
func (s *Server) Served() int64 { return s.served.Load() }

// Stored is how many objects it holds in a namespace, whatever it tells clients.
func (s *Server) Stored(namespace string) int { return s.store.count(namespace) }

// Deleted is when the last object of a namespace was deleted; zero while it holds some, or never held any.
func (s *Server) Deleted(namespace string) time.Time { return s.store.emptied(namespace) }

// now is the fault of the moment, and a channel that is closed when it is another.
func (s *Server) now() (Fault, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault, s.turn
}

type requestCount struct{}

// countRequests gives each connection a counter, for GoAwayStorm.
func countRequests(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, requestCount{}, new(atomic.Int64))
}
