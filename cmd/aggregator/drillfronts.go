package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
	"portico.dev/internal/tools/drill"
)

// ownFront is a temporary front door in this process.
type ownFront struct {
	config aggregator.Config
	log    *zap.Logger
	stop   context.CancelFunc
	done   chan error
}

// openWithin bounds the start of a temporary front door.
const openWithin = time.Minute

// ownFronts starts temporary front doors for drills.
type ownFronts struct{ config aggregator.Config }

// AddFlags implements cli.Fronts.
func (o *ownFronts) AddFlags(fs *pflag.FlagSet) { o.config.AddEngineFlags(fs) }

// Start implements cli.Fronts.
func (o *ownFronts) Start(ctx context.Context, n int, log *zap.Logger) ([]drill.Target, func() error, error) {
	dir, err := os.MkdirTemp("", "portico-drill-")
	if err != nil {
		return nil, nil, fmt.Errorf("directory of a front door to drill: %w", err)
	}
	fronts := make([]*ownFront, n)
	targets := make([]drill.Target, n)
	closeAll := func() error {
		var errs []error
		for _, f := range fronts {
			errs = append(errs, f.close())
		}
		return errors.Join(append(errs, os.RemoveAll(dir))...)
	}
	var starting errgroup.Group
	for i := range fronts {
		f := &ownFront{config: o.config, log: log.Named("front")}
		f.config.DataDir, f.config.SecurePort, f.config.AccessLog = filepath.Join(dir, strconv.Itoa(i)), 0, false
		f.config.ShutdownGrace = 2 * time.Second
		f.config.RuntimeConfig = map[string]string{v1alpha1.GroupVersion.String(): "true"} // for drills of Clusters
		f.config.EtcdUnixSocket = filepath.Join(dir, strconv.Itoa(i)+".etcd")              // for additional front doors
		fronts[i] = f
		starting.Go(func() (err error) {
			targets[i], err = f.target(ctx)
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	return targets, closeAll, nil
}

func (f *ownFront) target(ctx context.Context) (drill.Target, error) {
	if err := f.start(ctx); err != nil {
		return drill.Target{}, err
	}
	config, err := f.admin()
	if err != nil {
		return drill.Target{}, err
	}
	return drill.Target{
		Name: "a front door of our own", Config: config, Restart: f.restart, Kubeconfig: f.config.AdminKubeconfig(),
		Grow: f.grow, StartCluster: f.startCluster,
	}, nil
}

// admin returns the client configuration of the administrator.
func (f *ownFront) admin() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", f.config.AdminKubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	return config, nil
}

// grow starts further front doors over the etcd of this one.
func (f *ownFront) grow(ctx context.Context, n int) (replicas []*rest.Config, stop func() error, err error) {
	var more []*ownFront
	stop = func() error {
		var errs []error
		for _, m := range more {
			errs = append(errs, m.close(), os.RemoveAll(m.config.DataDir))
		}
		return errors.Join(errs...)
	}
	for i := range n {
		m := &ownFront{config: f.config, log: f.log}
		m.config.DataDir, m.config.SecurePort = fmt.Sprintf("%s-%d", f.config.DataDir, i+1), 0
		m.config.EtcdUnixSocket, m.config.EtcdServers = "", []string{"unix://" + f.config.EtcdUnixSocket}
		more = append(more, m)
		if err := pki.CopyShared(filepath.Join(m.config.DataDir, "pki"), filepath.Join(f.config.DataDir, "pki")); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("keys of a further front door: %w", err), stop())
		}
		t, err := m.target(ctx)
		if err != nil {
			return nil, nil, errors.Join(err, stop())
		}
		replicas = append(replicas, t.Config)
	}
	return replicas, stop, nil
}

// start returns when the front door is ready. The front door does not stop with ctx, because drills clean up through
// it.
func (f *ownFront) start(ctx context.Context) error {
	front, err := aggregator.New(f.config, f.log)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	f.stop, f.done = stop, done
	go func() { done <- front.Run(running) }()
	ctx, cancel := context.WithTimeoutCause(ctx, openWithin, fmt.Errorf("the front door to drill was not ready within %s", openWithin))
	defer cancel()
	select {
	case <-front.Ready():
		return f.keepPort(front.URL())
	case err := <-done:
		done <- err
		return errors.Join(errors.New("the front door to drill did not start"), err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// keepPort reuses the port for the next start, so that clients find the front door again.
func (f *ownFront) keepPort(address string) error {
	at, err := url.Parse(address)
	if err != nil {
		return err
	}
	f.config.SecurePort, err = strconv.Atoi(at.Port())
	return err
}

func (f *ownFront) close() error {
	if f.stop == nil {
		return nil
	}
	f.stop()
	return <-f.done
}

func (f *ownFront) restart(ctx context.Context) error {
	if err := f.close(); err != nil {
		return err
	}
	return f.start(ctx)
}
