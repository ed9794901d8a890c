// Package encryption keeps what is stored unreadable to whoever has nothing but the disk.
//
// Objects are encrypted on their way to etcd and decrypted on their way back, by what an EncryptionConfiguration says
// about their resource. The formats are kube-apiserver's, which read each other's data: the library's own transformers do
// the work. What they promise differs. AES-GCM and KMS bind a ciphertext to the key under which it is stored, so that
// one that is moved to another key fails to decrypt. AES-CBC does not notice changes at all, and secretbox does not notice
// that a whole value was moved.
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
	// askAgain is the pause between two checks of providers that were not healthy at the start.
	askAgain = time.Second
	// newWithin is how long the providers of a changed file may take to become healthy. After that the old ones stay.
	newWithin = 10 * time.Second
)

// Config configures encryption at rest.
type Config struct {
	// File is an EncryptionConfiguration of apiserver.config.k8s.io/v1. It holds keys. Empty: nothing is encrypted.
	File string
	// Reload reloads the file when it changes. Default: it is read once.
	Reload bool
	// Replica is the name of this process in the library's metrics.
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
	// grace is how long requests that started with this version may need its connections.
	grace time.Duration
	close context.CancelFunc
}

// New touches neither disk nor network.
func New(cfg Config) *Encryption {
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	return &Encryption{cfg: cfg, log: cfg.Logger, ready: make(chan struct{})}
}

// Enabled reports whether there is a file.
func (e *Encryption) Enabled() bool { return e != nil && e.cfg.File != "" }

// Ready is closed when the file is loaded and every key service that it names has responded. Before that, stored objects cannot
// be read.
func (e *Encryption) Ready() <-chan struct{} { return e.ready }

// Run reads the file, waits for key services, and reloads the file if Config.Reload is set, until ctx ends. An invalid file is
// an error at the start; later the last valid one stays in use.
func (e *Encryption) Run(ctx context.Context) error {
	if !e.Enabled() {
		close(e.ready)
		<-ctx.Done()
		return nil
	}
	var retiring sync.WaitGroup
	defer retiring.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends every generation, the library's goroutines with it
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

// await waits until g is healthy. It returns false if ctx ended first.
func (e *Encryption) await(ctx context.Context, g *generation) bool {
	var last string
	for {
		err := g.check(ctx)
		if err == nil {
			return true
		}
		if err.Error() != last { // once per reason, not once per second
			last = err.Error()
			e.log.Warn("a key service does not answer yet; nothing that it encrypted can be read until it does", zap.Error(err))
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

// reload returns the generation that was replaced, nil when the file has not changed.
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

// Check asks the key services in use. It caches their responses for some seconds, as upstream does.
func (e *Encryption) Check(ctx context.Context) error {
	g := e.current.Load()
	if g == nil {
		return errors.New("no key service has answered yet")
	}
	return g.check(ctx)
}

func (g *generation) check(ctx context.Context) error {
	// The library asks for a request, of which it uses the context.
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

// Stale returns why the current content of the file is not in use, nil if it is.
func (e *Encryption) Stale() error {
	if p := e.problem.Load(); p != nil {
		return *p
	}
	return nil
}
