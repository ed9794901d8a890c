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

	"portico.dev/internal/httpmsg"
	"portico.dev/internal/pki"
)

const (
	// peerConnections bounds the connections of other members and of clients together. Connections whose certificate has not been
	// verified yet are closed first.
	peerConnections = 512
	// peerReadTimeout is that of etcd's own server for other members: a snapshot of gigabytes comes in one request.
	peerReadTimeout = 5 * time.Minute
)

// peerHandshakeTimeout bounds what comes before a request. Tests raise it.
var peerHandshakeTimeout = 10 * time.Second

// peerServer serves other members, which speak HTTP/1.1, and clients of etcd, which speak gRPC, on one port. Both must have a certificate of
// the members' authority.
type peerServer struct {
	peers   *http.Server
	clients *grpc.Server
	handed  *handedConns
	work    sync.WaitGroup
	failed  chan error // has the first error that serving ended with, if it was not told to end
	// stopCertificate ends the reloading of the certificate.
	stopCertificate context.CancelFunc
}

// servePeers listens for the other members of a member.
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
			log.Warn("the certificate of this member of etcd is no longer reloaded", zap.Error(err))
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

// close ends all connections. Members call again elsewhere, and so do clients.
func (s *peerServer) close() {
	s.stopCertificate()
	s.clients.Stop()
	_ = s.handed.Close() // it has no other error than that it was closed before
	_ = s.peers.Close()  // what it could not close is gone
	s.work.Wait()
}

// handedConns is a listener of connections that another server has accepted. They count as connections of that server until they end.
type handedConns struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandedConns(addr net.Addr) *handedConns {
	return &handedConns{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// hand gives a connection to who accepts, and returns when it is closed.
func (h *handedConns) hand(conn net.Conn) {
	_ = conn.SetDeadline(time.Time{}) // what the other server bounded was its own request
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
