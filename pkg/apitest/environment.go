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

// Environment is a test server with the API of envtest.Environment: set the fields, call Start, and call Stop at the end. If
// a testing.TB is available, use the function Start instead. The zero value is usable. An Environment can be started only
// once.
type Environment struct {
	// CRDs are installed by Start, together with the ones in CRDDirectoryPaths. These are YAML and JSON files, or directories
	// of such files. Objects of other kinds in the files are ignored.
	CRDs              []*apiextensionsv1.CustomResourceDefinition
	CRDDirectoryPaths []string
	// ErrorIfCRDPathMissing makes Start fail if a path does not exist. Default: missing paths are ignored.
	ErrorIfCRDPathMissing bool
	// WebhookInstallOptions are the webhook configurations that Start installs.
	WebhookInstallOptions WebhookInstallOptions

	// Flags are additional settings, as flags of the command "aggregator serve". They have the names of kube-apiserver's
	// flags, such as "--runtime-config=...". As in envtest, no controllers run with "--controllers=".
	Flags []string
	// Storage is shared with other environments. Default: separate storage in memory.
	Storage *SharedStorage
	// StartTimeout limits Start, StopTimeout limits Stop. Default: one minute each.
	StartTimeout, StopTimeout time.Duration
	// Logger receives the server's log. Default: no logging.
	Logger *zap.Logger

	// Config is a client configuration with all permissions (group system:masters). KubeConfig is the same configuration as
	// the content of a kubeconfig file. Start sets both.
	Config     *rest.Config
	KubeConfig []byte

	front  *frontdoor.FrontDoor
	cancel context.CancelFunc
	done   chan error // closed when Run has returned
	stop   sync.Once
	err    error // error of Run
}

const defaultTimeout = time.Minute

func timeoutOr(d time.Duration) time.Duration {
	if d <= 0 {
		return defaultTimeout
	}
	return d
}

// Start starts the server and installs the CRDs and webhooks. If it returns an error, the server has been stopped.
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
		// A test runs many clients at once, and all of them are trusted.
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
	e.Config.QPS, e.Config.Burst = 1000, 2000 // as in envtest
	e.KubeConfig, err = front.Kubeconfig(administrator, []string{user.SystemPrivilegedGroup})
	return err
}

// install installs CRDs and webhooks.
func (e *Environment) install(ctx context.Context) error {
	if err := e.WebhookInstallOptions.prepare(); err != nil {
		return err
	}
	if err := e.installCRDs(ctx); err != nil {
		return err
	}
	return e.WebhookInstallOptions.install(ctx, e.Config)
}

// Stop stops the server and waits up to StopTimeout until all its parts have ended. It may be called repeatedly, and without
// Start.
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

// User is a user with a client certificate, as envtest.User.
type User struct {
	Name   string
	Groups []string
}

// AuthenticatedUser is a user with client credentials, as envtest.AuthenticatedUser.
type AuthenticatedUser struct {
	config     *rest.Config
	kubeconfig []byte
}

// Config returns a client configuration for the user.
func (u *AuthenticatedUser) Config() *rest.Config { return rest.CopyConfig(u.config) }

// KubeConfig returns the content of a kubeconfig file for the user. The error is always nil.
func (u *AuthenticatedUser) KubeConfig() ([]byte, error) { return u.kubeconfig, nil }

// AddUser issues a client certificate for a user. The other client settings, such as rate limits, are copied from base, or
// from Environment.Config if base is nil.
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
