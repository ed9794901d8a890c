package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/pki"
	"portico.dev/internal/simulation/network"
)

const frontPort = 6443

// startTimeout bounds the start of a front door while etcd is available, in virtual time.
const startTimeout = time.Minute

// front is a replica of the front door.
type front struct {
	name string
	host *network.Host
	dir  string
	etcd *etcd
	log  *zap.Logger
	// launches is the number of processes that the replica has had.
	launches atomic.Int64

	server *aggregator.Aggregator // nil while it does not run
	end    context.CancelFunc
	ended  chan error
}

// start starts the replica, and returns when it is ready.
func (f *front) start(ctx context.Context) error {
	if err := f.launch(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-f.server.Ready():
		return nil
	case err := <-f.ended:
		f.server = nil
		return fmt.Errorf("%s ended during its start: %w", f.name, err)
	case <-timer.C:
		return errors.Join(fmt.Errorf("%s is not ready after %s", f.name, startTimeout), f.stop())
	}
}

// launch starts the replica and does not wait for it.
func (f *front) launch(ctx context.Context) error {
	listener, err := f.host.Listen(frontPort)
	if err != nil {
		return err
	}
	c := aggregator.Default()
	c.DataDir, c.BindAddress, c.AccessLog, c.MemoryLimit = f.dir, f.host.String(), false, "0"
	c.EtcdServers = []string{f.etcd.url()}
	c.EtcdCAFile, c.EtcdCertFile, c.EtcdKeyFile = f.etcd.keys.EtcdFiles()
	c.Dial = func(ctx context.Context, address string) (net.Conn, error) { return f.host.Dial(ctx, address) }
	// With a lifetime, k8s.io/apiserver holds a mutex while it requests a lease. Virtual time stands still while a goroutine waits for
	// a mutex.
	c.Services.EventTTL = 0
	c.Embedded = aggregator.Embedded{Listener: listener, NoServiceManager: true}
	server, err := aggregator.New(c, f.log)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(pki.PollOnly(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	f.launches.Add(1)
	f.server, f.end, f.ended = server, end, ended
	return nil
}

// exited returns the error with which the replica has ended without being asked, or nil.
func (f *front) exited() error {
	if f.server == nil {
		return nil
	}
	select {
	case err := <-f.ended:
		f.server = nil
		return fmt.Errorf("%s has ended: %w", f.name, err)
	default:
		return nil
	}
}

// stop stops the replica as SIGTERM does.
func (f *front) stop() error {
	if f.server == nil {
		return nil
	}
	f.end()
	err := <-f.ended
	f.server = nil
	return err
}

// crash ends the replica without any message to other hosts, and returns when its goroutines have ended. Nothing that they do
// leaves the host.
func (f *front) crash() {
	f.host.Kill()
	_ = f.stop() // it has lost its connections
	f.host.Boot()
}

func (f *front) title() string { return f.name }
func (f *front) running() bool { return f.server != nil }

func (f *front) keys() string { return filepath.Join(f.dir, "pki") }
