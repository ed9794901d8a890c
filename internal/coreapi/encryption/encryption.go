// Package encryption implements encryption at rest, so that stored objects cannot be read from the disk alone.
//
// Objects are encrypted on their way to etcd and decrypted on their way back, as an EncryptionConfiguration specifies for their
// resource. The formats are compatible with kube-apiserver, because k8s.io/apiserver's transformers are used. Their guarantees
// differ. AES-GCM and KMS bind a ciphertext to its etcd key, so a value that was moved to another key fails to decrypt. AES-CBC
// detects no changes, and secretbox does not detect that an entire value was moved.
package encryption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"

	"portico.dev/internal/pki"
)

const (
	// askAgain is the interval between checks of providers that were not healthy at startup.
	askAgain = time.Second
	// newWithin limits the time for the providers of a changed file to become healthy. After that the old ones remain in use.
	newWithin = 10 * time.Second
)

// Config configures encryption at rest.
type Config struct {
	// File is the path of an EncryptionConfiguration of apiserver.config.k8s.io/v1, which contains keys. If it is empty,
	// objects are not encrypted.
	File string
	// Reload reloads the file when it changes. By default it is read once.
	Reload bool
	// Replica is the name of this process in k8s.io/apiserver's metrics.
	Replica string
	// Logger may be nil.
	Logger *zap.Logger
}

// Encryption is the current encryption configuration. It does nothing until Run.
type Encryption struct {
	cfg     Config
	log     *zap.Logger
	ready   chan struct{}
	current atomic.Pointer[generation] // nil before Ready
	problem atomic.Pointer[error]
}

// generation is one version of the file.
type generation struct {
	transformers encryptionconfig.StaticTransformers
	checks       []healthz.HealthChecker
	hash         string
	keys         keys
	// grace is the time for which requests that started with this version may need its connections.
	grace time.Duration
	close context.CancelFunc
}

// New returns an Encryption that has not accessed disk or network yet.
func New(cfg Config) *Encryption {
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	return &Encryption{cfg: cfg, log: cfg.Logger, ready: make(chan struct{})}
}

// Enabled reports whether a file is configured.
func (e *Encryption) Enabled() bool { return e != nil && e.cfg.File != "" }

// Ready returns a channel that is closed when the file is loaded and all its key services have responded. Before that, stored
// objects cannot be read.
func (e *Encryption) Ready() <-chan struct{} { return e.ready }

// Run reads the file, waits for key services, and reloads the file if Config.Reload is set, until ctx ends. An invalid file is
// an error at startup. Later, the last valid file remains in use.
func (e *Encryption) Run(ctx context.Context) error {
	if !e.Enabled() {
		close(e.ready)
		<-ctx.Done()
		return nil
	}
	var retiring sync.WaitGroup
	defer retiring.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends every generation and the goroutines of k8s.io/apiserver
	first, err := e.load(ctx)
	if err != nil {
		return err
	}
	metrics.RecordEncryptionConfigLastConfigInfo(e.cfg.Replica, first.hash)
	if !e.await(ctx, first) {
		return nil
	}
	e.current.Store(first)
	close(e.ready)
	if !e.cfg.Reload {
		<-ctx.Done()
		return nil
	}
	return pki.WatchFiles(ctx, e.log, []string{e.cfg.File}, func() (bool, error) {
		old, err := e.reload(ctx)
		if err != nil {
			e.problem.Store(&err)
			metrics.RecordEncryptionConfigAutomaticReloadFailure(e.cfg.Replica)
			return false, err
		}
		e.problem.Store(nil)
		if old == nil {
			return false, nil
		}
		metrics.RecordEncryptionConfigAutomaticReloadSuccess(e.cfg.Replica, e.current.Load().hash)
		retiring.Go(func() { retire(ctx, old) })
		return true, nil
	})
}

func (e *Encryption) load(ctx context.Context) (*generation, error) {
	ctx, cancel := context.WithCancel(ctx)
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, e.cfg.File, e.cfg.Reload, e.cfg.Replica)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("encryption configuration %s: %w", e.cfg.File, err)
	}
	keys, err := readKeys(e.cfg.File)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("encryption configuration %s: %w", e.cfg.File, err)
	}
	return &generation{loaded.Transformers, loaded.HealthChecks, loaded.EncryptionFileContentHash, keys, loaded.KMSCloseGracePeriod, cancel}, nil
}

// await waits until g is healthy. It returns false if ctx ends first.
func (e *Encryption) await(ctx context.Context, g *generation) bool {
	var last string
	for {
		err := g.check(ctx)
		if err == nil {
			return true
		}
		if err.Error() != last { // log each reason once
			last = err.Error()
			e.log.Warn("KMS plugin is not healthy yet; resources encrypted with it cannot be read", zap.Error(err))
		}
		timer := time.NewTimer(askAgain)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// reload returns the replaced generation, or nil if the file has not changed.
func (e *Encryption) reload(ctx context.Context) (*generation, error) {
	old := e.current.Load()
	hash, err := encryptionconfig.GetEncryptionConfigHash(e.cfg.File)
	if err != nil {
		return nil, err
	}
	if hash == old.hash {
		return nil, nil
	}
	next, err := e.load(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, max(newWithin, next.grace))
	defer cancel()
	if !e.await(bounded, next) {
		defer next.close()
		return nil, errors.Join(errors.New("a key service of the changed file does not answer"), next.check(ctx))
	}
	e.current.Store(next)
	return old, nil
}

// retire closes the connections of a generation when no request can use them any more.
func retire(ctx context.Context, old *generation) {
	defer old.close()
	timer := time.NewTimer(old.grace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Check checks the key services in use. It caches their responses for some seconds, as upstream does.
func (e *Encryption) Check(ctx context.Context) error {
	g := e.current.Load()
	if g == nil {
		return errors.New("no key service has answered yet")
	}
	return g.check(ctx)
}

func (g *generation) check(ctx context.Context) error {
	// The health checks need a request, but use only its context.
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range g.checks {
		if err := c.Check(r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// Stale returns the reason why the current file is not in use, or nil if it is.
func (e *Encryption) Stale() error {
	if p := e.problem.Load(); p != nil {
		return *p
	}
	return nil
}
