// Package frontdoor is Portico's front API server as a library.
//
//	front, err := frontdoor.New(frontdoor.Config{DataDir: "data"})
//	...
//	go front.Run(ctx)
//	<-front.Ready()
//	config, err := front.RESTConfig("alice", []string{"developers"})
//
// A front door serves the local groups (core, apps, RBAC, custom resources and others), watches APIService objects, and
// proxies every other group-version to the extension server that an APIService names. Which local groups clients see, where objects
// are stored, who is authenticated and authorized, what admission checks, and what else is served, is in Config. Every other
// setting of the program aggregator is available through Config.Flags.
//
// Several front doors can run in one process. Nothing of them is global but what Kubernetes' own libraries keep so: metrics of
// these libraries, and the bound on JSON patches.
//
// Portico promises compatibility of the packages below pkg by semantic versioning, and of no others. Types of packages below
// internal that have an alias here are part of the promise, with the exported fields and methods that their documentation names.
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

// FrontDoor is a front API server. Its methods can be called from any goroutine.
type FrontDoor struct {
	config  Config
	front   *aggregator.Aggregator
	dir     string // a temporary data directory, which is removed at the end; empty: none
	started atomic.Bool
}

// New checks the configuration. It opens nothing but, for storage in memory without a data directory, a temporary directory, which
// Run removes.
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
		_ = os.RemoveAll(f.dir) // what stays is in a directory for temporary files
	}
}

// errTwice is the answer to a second Run.
var errTwice = errors.New("a front door runs once; make another one with New")

// Run starts the front door, serves until ctx ends, drains, and returns after everything that it started has returned. It can be
// called once.
func (f *FrontDoor) Run(ctx context.Context) error {
	if f.started.Swap(true) {
		return errTwice
	}
	defer f.removeDirectory()
	return f.front.Run(ctx)
}

// Ready is closed when requests are served. It stays open if Run fails before.
func (f *FrontDoor) Ready() <-chan struct{} { return f.front.Ready() }

// URL is the address for clients on this machine. It is for after Ready, and for front doors with a listener.
func (f *FrontDoor) URL() string { return f.front.URL() }

// Handler serves requests as the listener does, for a server of the program's own: authentication by client certificate reads
// the TLS state of the request (http.Request.TLS), so the server must ask for client certificates and not verify them
// (tls.RequestClientCert). Before Ready and after the end of Run it answers 503.
func (f *FrontDoor) Handler() http.Handler { return f.front.Handler() }

// certificateTTL is the life of the certificates that RESTConfig and Kubeconfig issue.
const certificateTTL = 24 * time.Hour

// RESTConfig configures clients of a user by a client certificate that the front door issues for a day. The user may do what
// roles allow; groups may contain system:masters, who may do everything. It needs a listener, and Ready.
func (f *FrontDoor) RESTConfig(user string, groups []string) (*rest.Config, error) {
	return f.front.ClientConfig(user, groups, certificateTTL)
}

// Kubeconfig is RESTConfig as the content of a kubeconfig.
func (f *FrontDoor) Kubeconfig(user string, groups []string) ([]byte, error) {
	return f.front.Kubeconfig(user, groups, certificateTTL)
}

// InProcessConfig configures clients of a user without a socket. Their requests are authorized, audited and limited like all
// others. Connections cannot be upgraded (exec, port-forward). It needs Ready.
func (f *FrontDoor) InProcessConfig(user string, groups []string) (*rest.Config, error) {
	return f.front.InProcessConfig(user, groups)
}

// LocalConfig configures clients of the local groups without a socket, those that Config.ServedGroups hides from clients included.
// They may do everything: keep it to the program. Extension servers are not reached. It needs Ready.
func (f *FrontDoor) LocalConfig() (*rest.Config, error) { return f.front.LocalConfig() }

// Snapshot is the state of all objects at one moment.
type Snapshot struct{ contents store.Contents }

// Objects is how many keys the snapshot has: objects, and a few of the front door's own.
func (s *Snapshot) Objects() int { return len(s.contents) }

// Snapshot reads the state of all objects. Events that would expire keep no expiry. It needs Ready.
func (f *FrontDoor) Snapshot(ctx context.Context) (*Snapshot, error) {
	contents, err := f.front.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &Snapshot{contents}, nil
}

// Restore makes the state of all objects that of a snapshot, in one transaction: objects that are not in it disappear, without
// finalizers or webhooks; others come back with their UIDs. Watches see it as changes, with new resourceVersions. Objects of
// extension servers stay as they are. It needs Storage.InMemory, and Ready.
func (f *FrontDoor) Restore(ctx context.Context, s *Snapshot) error {
	return f.front.Restore(ctx, s.contents)
}

// Advance moves time forward where it is the front door's own: service account tokens expire, and Events are deleted, as if d had
// passed. Everything else keeps the time of the machine. It needs Storage.InMemory, and Ready.
func (f *FrontDoor) Advance(ctx context.Context, d time.Duration) error {
	return f.front.Advance(ctx, d)
}

// applyFlags sets what flags say.
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
