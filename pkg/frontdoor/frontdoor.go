// Package frontdoor provides Portico's front API server as a library.
//
//	front, err := frontdoor.New(frontdoor.Config{DataDir: "data"})
//	...
//	go front.Run(ctx)
//	<-front.Ready()
//	config, err := front.RESTConfig("alice", []string{"developers"})
//
// A front door serves the local groups (core, apps, RBAC, custom resources and others), watches APIService objects, and
// proxies every other group-version to the extension server that its APIService names. Config selects the local groups that
// clients see, the storage, additional authenticators, authorizers and admission plugins, and additional handlers. All other
// settings of the aggregator program are available through Config.Flags.
//
// A process can run several front doors. They share no global state except for the global state of the Kubernetes libraries:
// their metrics, and the limit for JSON patches.
//
// Portico follows semantic versioning for the packages below pkg, and only for them. For types of packages below internal
// that have an alias here, this includes the exported fields and methods that their documentation names.
package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"portico.dev/internal/aggregator"
	"portico.dev/internal/store"
)

// FrontDoor is a front API server. Its methods may be called concurrently.
type FrontDoor struct {
	config  Config
	front   *aggregator.Aggregator
	dir     string // temporary data directory, which Run removes; empty if DataDir is set
	started atomic.Bool
}

// New validates the configuration and returns a FrontDoor. It opens nothing, except that it creates a temporary directory,
// which Run removes, if the storage is in memory and DataDir is empty.
func New(c Config) (*FrontDoor, error) {
	f := &FrontDoor{config: c}
	settings, err := c.settings()
	if err != nil {
		return nil, err
	}
	if settings.DataDir == "" {
		if f.dir, err = os.MkdirTemp("", "portico-"); err != nil {
			return nil, fmt.Errorf("data directory of a front door in memory: %w", err)
		}
		settings.DataDir = f.dir
	}
	if f.front, err = aggregator.New(settings, c.logger()); err != nil {
		f.removeDirectory()
		return nil, err
	}
	return f, nil
}

func (f *FrontDoor) removeDirectory() {
	if f.dir != "" {
		_ = os.RemoveAll(f.dir) // the remainder is in a directory for temporary files
	}
}

// errTwice is returned by a second call of Run.
var errTwice = errors.New("a front door runs once; make another one with New")

// Run starts the front door and serves until ctx ends. It then drains and returns after all parts have ended. It can be
// called only once.
func (f *FrontDoor) Run(ctx context.Context) error {
	if f.started.Swap(true) {
		return errTwice
	}
	defer f.removeDirectory()
	return f.front.Run(ctx)
}

// Ready returns a channel that is closed when the front door serves requests. It is never closed if Run fails before that.
func (f *FrontDoor) Ready() <-chan struct{} { return f.front.Ready() }

// URL returns the address for clients on this machine. It is valid after Ready, for front doors with a listener.
func (f *FrontDoor) URL() string { return f.front.URL() }

// Handler returns the handler of the listener, for a program with its own HTTP server. Authentication with client
// certificates uses the TLS state of the request (http.Request.TLS), so that server must request client certificates without
// verifying them (tls.RequestClientCert). Before Ready and after Run has returned, the handler responds with 503.
func (f *FrontDoor) Handler() http.Handler { return f.front.Handler() }

// certificateTTL is the lifetime of the certificates that RESTConfig and Kubeconfig issue.
const certificateTTL = 24 * time.Hour

// RESTConfig returns a client configuration for a user, with a client certificate that is valid for one day. The user has the
// permissions that RBAC grants; members of the group system:masters have all permissions. It requires a listener and must be
// called after Ready.
func (f *FrontDoor) RESTConfig(user string, groups []string) (*rest.Config, error) {
	return f.front.ClientConfig(user, groups, certificateTTL)
}

// Kubeconfig returns the configuration of RESTConfig as the content of a kubeconfig file.
func (f *FrontDoor) Kubeconfig(user string, groups []string) ([]byte, error) {
	return f.front.Kubeconfig(user, groups, certificateTTL)
}

// InProcessConfig returns a client configuration for a user that needs no socket. Requests are authorized, audited and
// limited like all other requests. Connections cannot be upgraded (exec, port-forward). It must be called after Ready.
func (f *FrontDoor) InProcessConfig(user string, groups []string) (*rest.Config, error) {
	return f.front.InProcessConfig(user, groups)
}

// LocalConfig returns a client configuration for the local groups that needs no socket. It includes groups that
// Config.ServedGroups hides. Its clients have all permissions, so do not expose them outside of the program. They cannot
// reach extension servers. LocalConfig must be called after Ready.
func (f *FrontDoor) LocalConfig() (*rest.Config, error) { return f.front.LocalConfig() }

// Snapshot contains the state of all objects at one point in time.
type Snapshot struct{ contents store.Contents }

// Objects returns the number of keys in the snapshot: the objects, and a few internal keys of the front door.
func (s *Snapshot) Objects() int { return len(s.contents) }

// Snapshot returns the state of all objects. It does not include the expiry of Events. It must be called after Ready.
func (f *FrontDoor) Snapshot(ctx context.Context) (*Snapshot, error) {
	contents, err := f.front.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &Snapshot{contents}, nil
}

// Restore resets all objects to a snapshot in one transaction. Objects that are not in the snapshot are removed, without
// finalizers or webhooks; deleted objects are restored with their UIDs. Watches see these changes, with new resourceVersions.
// Objects of extension servers do not change. Restore requires Storage.InMemory and must be called after Ready.
func (f *FrontDoor) Restore(ctx context.Context, s *Snapshot) error {
	return f.front.Restore(ctx, s.contents)
}

// Advance advances the front door's clock by d: service account tokens expire, and expired Events are deleted. It does not
// affect anything else. A negative d is an error. Advance requires Storage.InMemory and must be called after Ready.
func (f *FrontDoor) Advance(ctx context.Context, d time.Duration) error {
	return f.front.Advance(ctx, d)
}

// applyFlags parses flags into settings.
func applyFlags(settings *aggregator.Config, flags []string) error {
	fs := pflag.NewFlagSet("frontdoor", pflag.ContinueOnError)
	fs.Usage = func() {}
	settings.AddFlags(fs)
	if err := fs.Parse(flags); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("flags: %q is not a flag", fs.Arg(0))
	}
	return nil
}

func (c *Config) logger() *zap.Logger {
	if c.Logger == nil {
		return zap.NewNop()
	}
	return c.Logger
}
