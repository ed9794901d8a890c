package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	// socketTimeout is how long running calls may take after a stop.
	socketTimeout = 2 * time.Second
	// socketConnections bounds the clients of the unix socket. Further clients wait.
	socketConnections = 256
	// socketPingInterval is the minimum interval of a client's pings, as in etcd. Clients that ping more often are
	// disconnected.
	socketPingInterval = 5 * time.Second
)

// socketServer serves gRPC to etcdctl on a unix socket.
type socketServer struct {
	server *grpc.Server  // nil without a socket
	failed chan error    // receives the error that ended serving unexpectedly
	served chan struct{} // closed when serving has ended
}

// serveSocket serves etcd's API on a unix socket at path. It does nothing if path is empty.
func serveSocket(server *etcdserver.EtcdServer, path string) (*socketServer, error) {
	d := &socketServer{failed: make(chan error, 1), served: make(chan struct{})}
	if path == "" {
		close(d.served)
		return d, nil
	}
	listener, err := listenOwnerOnly(path)
	if err != nil {
		return nil, fmt.Errorf("etcd unix socket: %w", err)
	}
	d.server = v3rpc.Server(server, nil, nil,
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: socketPingInterval}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Hour, Timeout: 20 * time.Second}))
	go func() {
		defer close(d.served)
		if err := d.server.Serve(netutil.LimitListener(listener, socketConnections)); err != nil {
			d.failed <- err
		}
	}()
	return d, nil
}

// close waits a limited time for running calls, because watches do not end.
func (d *socketServer) close() {
	if d.server == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.server.GracefulStop()
	}()
	timer := time.NewTimer(socketTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		d.server.Stop()
	}
	<-ended
	<-d.served
}

// abandon closes the connections to a failed member. It does not wait for running calls, which may wait for that member
// forever.
func (d *socketServer) abandon() {
	if d.server == nil {
		return
	}
	d.server.Stop()
	<-d.served
}

// listenOwnerOnly creates a socket that only its owner can open, because a client of the socket can read every Secret. It
// removes the socket of an earlier process.
func listenOwnerOnly(path string) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is there and is no socket; choose another path", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		// On Linux the file inherits the mode of the socket.
		controlErr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(controlErr, err)
	}}
	listener, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
