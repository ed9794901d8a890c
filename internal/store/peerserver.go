package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/pki"
)

const (
	// peerConnections bounds the connections of members and clients together. Connections without a verified certificate are
	// closed first.
	peerConnections = 512
	// peerReadTimeout equals the timeout of etcd's peer listener, because a snapshot of several gigabytes arrives in one
	// request.
	peerReadTimeout = 5 * time.Minute
)

// peerHandshakeTimeout bounds the TLS handshake and the request header. Tests raise it.
var peerHandshakeTimeout = 10 * time.Second

// peerServer serves other members, which use HTTP/1.1, and clients of etcd, which use gRPC, on one port. Both must have a
// certificate from the members' CA.
type peerServer struct {
	peers   *http.Server
	clients *grpc.Server
	handed  *handedConns
	work    sync.WaitGroup
	failed  chan error // receives the first error that ended serving unexpectedly
	// stopCertificate stops the reloading of the certificate.
	stopCertificate context.CancelFunc
}

// servePeers starts the listener for the other members.
func servePeers(server *etcdserver.EtcdServer, c *Cluster, log *zap.Logger) (*peerServer, error) {
	certificate, err := pki.LoadKeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate of this member of etcd: %w", err)
	}
	authority, err := pki.LoadBundle(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("authority of the members of etcd: %w", err)
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the other members of etcd: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &peerServer{failed: make(chan error, 2), handed: newHandedConns(listener.Addr()), stopCertificate: cancel}
	s.work.Go(func() {
		if err := certificate.Run(ctx, log); err != nil && ctx.Err() == nil {
			log.Warn("etcd peer certificate is no longer reloaded", zap.Error(err))
		}
	})
	s.peers = &http.Server{
		Handler: etcdhttp.NewPeerHandler(server.Logger(), server), TLSConfig: pki.MutualServerConfig(certificate, authority.Pool()),
		ReadTimeout: peerReadTimeout, ReadHeaderTimeout: peerHandshakeTimeout, ErrorLog: stdlog.New(io.Discard, "", 0),
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateActive { // it has sent part of a request, after the handshake
				httpmsg.TrustConn(conn)
			}
		},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
			httpmsg.TrustConn(conn)
			s.handed.hand(conn)
		}},
	}
	s.clients = v3rpc.Server(server, nil, nil,
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: socketPingInterval}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Hour, Timeout: 20 * time.Second}))
	s.work.Go(func() { s.end(s.peers.ServeTLS(httpmsg.NewBoundedListener(listener, peerConnections), "", "")) })
	s.work.Go(func() { s.end(s.clients.Serve(s.handed)) })
	return s, nil
}

func (s *peerServer) end(err error) {
	if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		s.failed <- err
	}
}

// close closes all connections. Members and clients then reconnect to other members.
func (s *peerServer) close() {
	s.stopCertificate()
	s.clients.Stop()
	_ = s.handed.Close() // returns an error only if it was closed before
	_ = s.peers.Close()  // the remaining connections are already closed
	s.work.Wait()
}

// handedConns is a listener for connections accepted by another server. They count as connections of that server until they
// end.
type handedConns struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandedConns(addr net.Addr) *handedConns {
	return &handedConns{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// hand passes a connection to Accept, and returns when the connection is closed.
func (h *handedConns) hand(conn net.Conn) {
	_ = conn.SetDeadline(time.Time{}) // the deadline of the other server applied to its request only
	c := &handedConn{Conn: conn, done: make(chan struct{})}
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = conn.Close()
		return
	}
	select {
	case <-c.done:
	case <-h.closed:
		_ = c.Close()
	}
}

func (h *handedConns) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handedConns) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handedConns) Addr() net.Addr { return h.addr }

type handedConn struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (c *handedConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}
