package debts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"portico.dev/internal/respond"
	"portico.dev/internal/run"
)

const (
	workers      = 4
	firstRetry   = 500 * time.Millisecond
	lastRetry    = 5 * time.Second
	attemptLimit = 2 * time.Minute
	// followerDelay is how long a follower waits for the leader to do a cleanup. A duplicate cleanup is harmless.
	followerDelay = 5 * time.Second
	// resyncInterval is the interval between checks of all debts. Changes trigger additional checks.
	resyncInterval = 30 * time.Second
)

// Config configures a Cleaner. Every field is required.
type Config struct {
	Store *Store
	// State returns the state of an APIService and its backend.
	State func(apiService string) APIServiceState
	// Transport connects to the backend directly, although its route is unavailable while debts are open. It returns an error
	// if this replica cannot reach the backend.
	Transport func(apiService string) (http.RoundTripper, error)
	// KnownResources returns the last known namespaced, deletable resources of a group-version.
	KnownResources func(gv schema.GroupVersion) []string
	// Changed returns a channel that is closed when the result of State may have changed.
	Changed func() <-chan struct{}
	// Leads reports whether this replica leads.
	Leads  func() bool
	Logger *zap.Logger
}

// APIServiceState is the state of an APIService.
type APIServiceState struct {
	// Registered reports whether the APIService exists.
	Registered bool
	// Ready reports whether the group-version would be available without its debts.
	Ready bool
	// Reason is why the backend is unavailable.
	Reason string
}

// Cleaner deletes the objects covered by cleanup debts.
type Cleaner struct {
	cfg Config
	log *zap.Logger
}

// NewCleaner returns a Cleaner that is idle until Run.
func NewCleaner(cfg Config) *Cleaner { return &Cleaner{cfg: cfg, log: cfg.Logger.Named("debts")} }

// Run cleans up until ctx ends.
func (c *Cleaner) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "cleanup_debts", Clock: run.QueueClock})
	var joined sync.WaitGroup
	defer joined.Wait()
	defer queue.ShutDown()
	for range workers {
		joined.Go(func() {
			for c.processNext(ctx, queue) {
			}
		})
	}
	tick := time.NewTicker(resyncInterval)
	defer tick.Stop()
	seen := map[string]string{}
	for {
		debtsChanged, stateChanged := c.cfg.Store.Changed(), c.cfg.Changed()
		seen = c.enqueue(queue, seen)
		select {
		case <-ctx.Done():
			return nil
		case <-debtsChanged:
		case <-stateChanged:
		case <-tick.C:
			seen = map[string]string{} // also retries debts that are in backoff
		}
	}
}

// enqueue queues every APIService that has become ready or has changed debts. A failed cleanup does not requeue its APIService
// here: it is retried with a backoff.
func (c *Cleaner) enqueue(queue workqueue.TypedRateLimitingInterface[string], seen map[string]string) map[string]string {
	ready := map[string]string{}
	for _, d := range c.cfg.Store.All() {
		if d.unreadable == "" && c.cfg.State(d.APIService).Ready {
			ready[d.APIService] += d.ID + " "
		}
	}
	for name, ids := range ready {
		switch {
		case seen[name] == ids:
		case c.cfg.Leads():
			queue.Add(name)
		default:
			queue.AddAfter(name, followerDelay)
		}
	}
	return ready
}

func (c *Cleaner) processNext(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) bool {
	name, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(name)
	if ctx.Err() != nil || !c.cfg.State(name).Ready {
		queue.Forget(name)
		return true
	}
	err := c.clean(ctx, name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.cfg.Store.setFailure(name, shorten(err))
		c.log.Warn("failed to pay cleanup debts; retrying", zap.String("apiservice", name), zap.Error(err))
		queue.AddRateLimited(name)
	default:
		c.cfg.Store.setFailure(name, "")
		queue.Forget(name)
	}
	return true
}

// maxFailureText bounds the text from a backend's response that a condition contains.
const maxFailureText = 300

func shorten(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > maxFailureText {
		text = strings.ToValidUTF8(text[:maxFailureText], "") + "..."
	}
	return text
}

// clean cleans up the debts at one backend, oldest first. A failed debt does not prevent the cleanup of the remaining ones.
func (c *Cleaner) clean(ctx context.Context, apiService string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	backend, err := c.cfg.Transport(apiService)
	if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(&rest.Config{Host: inProcessHost, Transport: backend, QPS: -1})
	if err != nil {
		return fmt.Errorf("client of the backend: %w", err)
	}
	resources := map[string]*backendResources{}
	var failures []error
	for _, d := range c.cfg.Store.OpenDebts(apiService) {
		if d.unreadable != "" {
			continue
		}
		if resources[d.GroupVersion] == nil {
			found, err := c.findResources(ctx, backend, d.GroupVersion)
			if err != nil {
				return err
			}
			resources[d.GroupVersion] = found
		}
		if err := c.cleanDebt(ctx, client, d, resources[d.GroupVersion]); err != nil {
			failures = append(failures, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}

// cleanDebt cleans up one debt and removes it.
func (c *Cleaner) cleanDebt(ctx context.Context, client metadata.Interface, d Debt, at *backendResources) error {
	adjusted := d
	adjusted.Since = d.Since.Add(-at.clockLag)
	for _, r := range at.resources {
		if err := deleteObjects(ctx, client, adjusted, r); err != nil {
			return err
		}
	}
	if err := c.cfg.Store.Forget(ctx, d.ID); err != nil {
		return err
	}
	c.log.Info("cleanup debt paid", zap.String("namespace", d.Namespace), zap.String("uid", string(d.NamespaceUID)),
		zap.String("groupVersion", d.GroupVersion), zap.String("apiservice", d.APIService), zap.String("id", d.ID))
	return nil
}

// backendResources contains the resources of a backend that may hold objects of a namespace.
type backendResources struct {
	resources []Resource
	// clockLag is how far the backend's clock is behind the local clock. Debts have local timestamps, objects have the
	// backend's.
	clockLag time.Duration
}

// findResources returns the resources that the backend serves now or served before. A backend that returns with only some of
// its resources may still store objects of the missing ones.
func (c *Cleaner) findResources(ctx context.Context, backend http.RoundTripper, text string) (*backendResources, error) {
	gv, err := schema.ParseGroupVersion(text)
	if err != nil {
		return nil, fmt.Errorf("group-version of a cleanup debt: %w", err)
	}
	served, lag, err := fetchResources(ctx, backend, gv)
	if err != nil {
		return nil, err
	}
	names := append(slices.Clone(served), c.cfg.KnownResources(gv)...)
	slices.Sort(names)
	at := &backendResources{clockLag: lag}
	for _, name := range slices.Compact(names) {
		at.resources = append(at.resources, Resource{gv.WithResource(name), slices.Contains(served, name)})
	}
	return at, nil
}

// Entries returns the open debts with their states, oldest first.
func (c *Cleaner) Entries() []Entry {
	out := []Entry{}
	for _, d := range c.cfg.Store.All() {
		state := c.cfg.State(d.APIService)
		e := Entry{Debt: d, State: Waiting, Message: state.Reason}
		switch {
		case d.unreadable != "":
			e.State, e.Message = Unreadable, d.unreadable
		case !state.Registered:
			e.State, e.Message = Orphaned, "the APIService does not exist; register it anew, or forget the debt"
		case state.Ready:
			e.State, e.Message = Paying, c.cfg.Store.failureOf(d.APIService)
		}
		out = append(out, e)
	}
	return out
}

// ServeList serves the open debts.
func (c *Cleaner) ServeList(w http.ResponseWriter, _ *http.Request) {
	respond.JSON(w, http.StatusOK, List{Debts: c.Entries()})
}

var debtResource = schema.GroupResource{Resource: "debts"}

// ServeForget drops one debt. Its objects remain at the backend.
func (c *Cleaner) ServeForget(w http.ResponseWriter, r *http.Request, id string) {
	d, ok := c.cfg.Store.Lookup(id)
	if !ok {
		respond.Error(w, r, apierrors.NewNotFound(debtResource, id))
		return
	}
	if err := c.cfg.Store.Forget(r.Context(), id); err != nil {
		respond.Error(w, r, apierrors.NewInternalError(err))
		return
	}
	c.log.Warn("deleted an unpaid cleanup debt", zap.String("namespace", d.Namespace),
		zap.String("groupVersion", d.GroupVersion), zap.String("apiservice", d.APIService), zap.String("id", id))
	respond.JSON(w, http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusOK,
		Message: "the debt of namespace " + d.Namespace + " at APIService " + d.APIService + " is forgotten: what is left there stays",
	})
}
