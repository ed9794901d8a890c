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
	// socketTimeout is how long calls in progress may take after a stop.
	socketTimeout = 2 * time.Second
	// socketConnections bounds the clients of the unix socket; further ones wait.
	socketConnections = 256
	// socketPingInterval is the least interval of a client's pings, as at any etcd; clients that ping more are disconnected.
	socketPingInterval = 5 * time.Second
)

// socketServer serves gRPC to etcdctl on a unix socket.
type socketServer struct {
	server *grpc.Server  // nil: there is no socket
	failed chan error    // has the one error that serving ended with, if it was not told to end
	served chan struct{} // closed when it has ended
}

// serveSocket serves etcd's API on a unix socket at path; with an empty path it does nothing.
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

// close waits for calls in progress, within a limit: a watch does not end.
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

// abandon closes the connections to a member that has failed. It does not wait for calls in progress, which may wait for that
// member forever.
func (d *socketServer) abandon() {
	if d.server == nil {
		return
	}
	d.server.Stop()
	<-d.served
}

// listenOwnerOnly makes a socket that only its owner can ever open: whoever can open it can read every Secret. It removes the
// socket of an earlier process.
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
		// On Linux the file takes the mode of the socket.
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
