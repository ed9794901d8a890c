package apitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"portico.dev/pkg/frontdoor"
)

// Environment is a server for tests in the shape of envtest.Environment: fields are set, Start starts it, Stop stops it. Tests that
// have a testing.TB at hand do better with Start of this package. The zero value is usable. An Environment is started once.
type Environment struct {
	// CRDs are installed by Start, and those that the files in CRDDirectoryPaths define: YAML and JSON files, and directories of
	// them. Objects of other kinds in the files are ignored.
	CRDs              []*apiextensionsv1.CustomResourceDefinition
	CRDDirectoryPaths []string
	// ErrorIfCRDPathMissing makes Start fail for a path that does not exist. Default: it is ignored.
	ErrorIfCRDPathMissing bool
	// WebhookInstallOptions are webhook configurations that Start installs.
	WebhookInstallOptions WebhookInstallOptions

	// Flags are further settings, as flags of the command "aggregator serve", which are kube-apiserver's: "--runtime-config=...".
	// "--controllers=" runs no controller, as envtest does.
	Flags []string
	// Storage is shared with other environments. Default: each has its own.
	Storage *SharedStorage
	// StartTimeout bounds Start, StopTimeout bounds Stop. Default a minute each.
	StartTimeout, StopTimeout time.Duration
	// Logger gets the server's log. Default: nothing is logged.
	Logger *zap.Logger

	// Config is for clients that may do everything (group system:masters). KubeConfig is the same as the content of a file. Start sets
	// both.
	Config     *rest.Config
	KubeConfig []byte

	front  *frontdoor.FrontDoor
	cancel context.CancelFunc
	done   chan error // closed after Run has returned
	stop   sync.Once
	err    error // of Run
}

const defaultTimeout = time.Minute

func timeoutOr(d time.Duration) time.Duration {
	if d <= 0 {
		return defaultTimeout
	}
	return d
}

// Start starts the server and installs what the fields say. After an error nothing runs.
func (e *Environment) Start() (*rest.Config, error) {
	if e.front != nil {
		return nil, errors.New("the environment was started before; make a new one")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeoutOr(e.StartTimeout))
	defer cancel()
	err := e.start(ctx)
	if err == nil {
		err = e.install(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e.Config, nil
}

func (e *Environment) start(ctx context.Context) error {
	c := frontdoor.Config{
		Storage: frontdoor.Storage{InMemory: true}, Logger: e.Logger, NamespaceDeletionDelay: 10 * time.Millisecond,
		// Tests are many clients at once, and none of them is a stranger.
		Flags: append([]string{"--enable-priority-and-fairness=false", "--max-requests-inflight=-1", "--max-mutating-requests-inflight=-1",
			"--profiling=false", "--shutdown-grace-period=100ms", "--memory-limit=0"}, e.Flags...),
	}
	if e.Storage != nil {
		servers, prefix, err := e.Storage.take()
		if err != nil {
			return err
		}
		dir, err := e.Storage.directory()
		if err != nil {
			return err
		}
		c.DataDir, c.Storage = dir, frontdoor.Storage{EtcdServers: servers, Prefix: prefix}
	}
	front, err := frontdoor.New(c)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.Background())
	e.front, e.cancel, e.done = front, cancel, make(chan error)
	libraryLog.follow(e)
	go func() {
		defer close(e.done)
		e.err = front.Run(running)
	}()
	select {
	case <-front.Ready():
	case <-e.done:
		return fmt.Errorf("the API server ended before it was ready: %w", e.err)
	case <-ctx.Done():
		return fmt.Errorf("the API server is not ready after %s", timeoutOr(e.StartTimeout))
	}
	const administrator = "admin"
	if e.Config, err = front.RESTConfig(administrator, []string{user.SystemPrivilegedGroup}); err != nil {
		return err
	}
	e.Config.QPS, e.Config.Burst = 1000, 2000 // envtest's
	e.KubeConfig, err = front.Kubeconfig(administrator, []string{user.SystemPrivilegedGroup})
	return err
}

// install installs definitions and webhooks.
func (e *Environment) install(ctx context.Context) error {
	if err := e.WebhookInstallOptions.prepare(); err != nil {
		return err
	}
	if err := e.installCRDs(ctx); err != nil {
		return err
	}
	return e.WebhookInstallOptions.install(ctx, e.Config)
}

// Stop stops the server, and returns after everything that it started has ended. It can be called twice, and without Start.
func (e *Environment) Stop() error {
	e.stop.Do(func() {
		if e.WebhookInstallOptions.madeDir {
			_ = os.RemoveAll(e.WebhookInstallOptions.LocalServingCertDir)
		}
		if e.cancel == nil {
			return
		}
		defer libraryLog.unfollow(e)
		e.cancel()
		timer := time.NewTimer(timeoutOr(e.StopTimeout))
		defer timer.Stop()
		select {
		case <-e.done:
		case <-timer.C:
			e.err = fmt.Errorf("the API server has not stopped after %s", timeoutOr(e.StopTimeout))
		}
	})
	return e.err
}

// User is somebody with a certificate. It is envtest.User.
type User struct {
	Name   string
	Groups []string
}

// AuthenticatedUser is a user with what is needed to connect. It is envtest's.
type AuthenticatedUser struct {
	config     *rest.Config
	kubeconfig []byte
}

// Config is for clients of the user.
func (u *AuthenticatedUser) Config() *rest.Config { return rest.CopyConfig(u.config) }

// KubeConfig is the same as the content of a file.
func (u *AuthenticatedUser) KubeConfig() ([]byte, error) { return u.kubeconfig, nil }

// AddUser issues a certificate for a user. Rate limits and the like are taken from base, which may be nil.
func (e *Environment) AddUser(u User, base *rest.Config) (*AuthenticatedUser, error) {
	if e.front == nil {
		return nil, errors.New("the environment must be started before users are added")
	}
	made, err := e.front.RESTConfig(u.Name, u.Groups)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := e.front.Kubeconfig(u.Name, u.Groups)
	if err != nil {
		return nil, err
	}
	config := &rest.Config{QPS: e.Config.QPS, Burst: e.Config.Burst}
	if base != nil {
		config = rest.AnonymousClientConfig(base)
	}
	config.Host, config.TLSClientConfig = made.Host, made.TLSClientConfig
	return &AuthenticatedUser{config, kubeconfig}, nil
}
