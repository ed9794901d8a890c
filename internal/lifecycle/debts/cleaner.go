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
)

const (
	payers       = 4
	firstRetry   = 500 * time.Millisecond
	lastRetry    = time.Minute
	attemptLimit = 2 * time.Minute
	// deference is how long replicas that do not lead leave a payment to the one that does. Paying twice does no harm;
	// it is only twice the work.
	deference = 5 * time.Second
	// glance is how often the payer looks whom it can pay, beside whenever something changes.
	glance = 30 * time.Second
)

// Config is what a Payer needs. Every field is required.
type Config struct {
	Ledger *Ledger
	// Standing says how an APIService and its backend are doing.
	Standing func(apiService string) Standing
	// Reach leads to the backend itself, past the route, which is closed while there are debts. It fails when this replica
	// has no way there.
	Reach func(apiService string) (http.RoundTripper, error)
	// Known are the namespaced resources that a group-version was last known to have and that can be deleted.
	Known func(gv schema.GroupVersion) []string
	// Changed returns a channel that is closed when Standing may say something else.
	Changed func() <-chan struct{}
	// Leads says whether this replica goes first.
	Leads  func() bool
	Logger *zap.Logger
}

// Standing is how an APIService is doing.
type Standing struct {
	// Registered is false when there is no such APIService.
	Registered bool
	// Due says that nothing keeps the group-version from being available but its debts.
	Due bool
	// Reason is why not, when the backend is not there.
	Reason string
}

// Payer deletes what debts are about.
type Payer struct {
	cfg Config
	log *zap.Logger
}

// NewPayer makes a payer that does nothing until Run.
func NewPayer(cfg Config) *Payer { return &Payer{cfg: cfg, log: cfg.Logger.Named("debts")} }

// Run pays what is due until ctx ends.
func (p *Payer) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "cleanup_debts"})
	var joined sync.WaitGroup
	defer joined.Wait()
	defer queue.ShutDown()
	for range payers {
		joined.Go(func() {
			for p.next(ctx, queue) {
			}
		})
	}
	tick := time.NewTicker(glance)
	defer tick.Stop()
	seen := map[string]string{}
	for {
		owing, standing := p.cfg.Ledger.Changed(), p.cfg.Changed()
		seen = p.enqueue(queue, seen)
		select {
		case <-ctx.Done():
			return nil
		case <-owing:
		case <-standing:
		case <-tick.C:
			seen = map[string]string{} // whoever waits for a retry has waited long enough
		}
	}
}

// enqueue asks for a payment wherever one is due that was not before, or of other debts than before. A payment that
// failed is not asked for again by the news of its failure: it has a retry.
func (p *Payer) enqueue(queue workqueue.TypedRateLimitingInterface[string], seen map[string]string) map[string]string {
	due := map[string]string{}
	for _, d := range p.cfg.Ledger.All() {
		if p.cfg.Standing(d.APIService).Due {
			due[d.APIService] += d.ID + " "
		}
	}
	for name, ids := range due {
		switch {
		case seen[name] == ids:
		case p.cfg.Leads():
			queue.Add(name)
		default:
			queue.AddAfter(name, deference)
		}
	}
	return due
}

func (p *Payer) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) bool {
	name, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(name)
	if ctx.Err() != nil || !p.cfg.Standing(name).Due {
		queue.Forget(name)
		return true
	}
	err := p.pay(ctx, name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.cfg.Ledger.note(name, brief(err))
		p.log.Warn("cleanup debts are not paid yet", zap.String("apiservice", name), zap.Error(err))
		queue.AddRateLimited(name)
	default:
		p.cfg.Ledger.note(name, "")
		queue.Forget(name)
	}
	return true
}

// maxTrouble bounds what a backend's words can put into a condition.
const maxTrouble = 300

func brief(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > maxTrouble {
		text = strings.ToValidUTF8(text[:maxTrouble], "") + "..."
	}
	return text
}

// pay pays the debts at one backend, the oldest first. One that cannot be paid does not keep the others from it.
func (p *Payer) pay(ctx context.Context, apiService string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	way, err := p.cfg.Reach(apiService)
	if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(&rest.Config{Host: inProcessHost, Transport: way, QPS: -1})
	if err != nil {
		return fmt.Errorf("client of the backend: %w", err)
	}
	survey := map[string]*premises{}
	var failures []error
	for _, d := range p.cfg.Ledger.Of(apiService) {
		if survey[d.GroupVersion] == nil {
			found, err := p.inspect(ctx, way, d.GroupVersion)
			if err != nil {
				return err
			}
			survey[d.GroupVersion] = found
		}
		if err := p.settle(ctx, client, d, survey[d.GroupVersion]); err != nil {
			failures = append(failures, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}

// settle pays one debt and strikes it out.
func (p *Payer) settle(ctx context.Context, client metadata.Interface, d Debt, at *premises) error {
	bill := d
	bill.Since = d.Since.Add(-at.behind)
	for _, r := range at.resources {
		if err := clear(ctx, client, bill, r); err != nil {
			return err
		}
	}
	if err := p.cfg.Ledger.Forget(ctx, d.ID); err != nil {
		return err
	}
	p.log.Info("cleanup debt paid", zap.String("namespace", d.Namespace), zap.String("uid", string(d.NamespaceUID)),
		zap.String("groupVersion", d.GroupVersion), zap.String("apiservice", d.APIService), zap.String("id", d.ID))
	return nil
}

// premises is where objects of a namespace may be at a backend.
type premises struct {
	resources []Resource
	// behind is how far the backend's clock is behind ours: debts are dated by ours, and objects by its.
	behind time.Duration
}

// inspect finds what the backend says that it serves, and adds what it was known to serve before. A backend that came back
// with half of its list has not lost the other half's objects.
func (p *Payer) inspect(ctx context.Context, way http.RoundTripper, text string) (*premises, error) {
	gv, err := schema.ParseGroupVersion(text)
	if err != nil {
		return nil, fmt.Errorf("group-version of a cleanup debt: %w", err)
	}
	served, behind, err := fetchResources(ctx, way, gv)
	if err != nil {
		return nil, err
	}
	names := append(slices.Clone(served), p.cfg.Known(gv)...)
	slices.Sort(names)
	at := &premises{behind: behind}
	for _, name := range slices.Compact(names) {
		at.resources = append(at.resources, Resource{gv.WithResource(name), slices.Contains(served, name)})
	}
	return at, nil
}

// Entries are the open debts with their states, oldest first.
func (p *Payer) Entries() []Entry {
	out := []Entry{}
	for _, d := range p.cfg.Ledger.All() {
		standing := p.cfg.Standing(d.APIService)
		e := Entry{Debt: d, State: Waiting, Message: standing.Reason}
		switch {
		case !standing.Registered:
			e.State, e.Message = Orphaned, "the APIService does not exist; register it anew, or forget the debt"
		case standing.Due:
			e.State, e.Message = Paying, p.cfg.Ledger.troubleOf(d.APIService)
		}
		out = append(out, e)
	}
	return out
}

// ServeList answers with the open debts.
func (p *Payer) ServeList(w http.ResponseWriter, _ *http.Request) {
	respond.JSON(w, http.StatusOK, List{Debts: p.Entries()})
}

var debtResource = schema.GroupResource{Resource: "debts"}

// ServeForget drops one debt. Whoever may do that answers for what is left at the backend.
func (p *Payer) ServeForget(w http.ResponseWriter, r *http.Request, id string) {
	d, ok := p.cfg.Ledger.Lookup(id)
	if !ok {
		respond.Error(w, r, apierrors.NewNotFound(debtResource, id))
		return
	}
	if err := p.cfg.Ledger.Forget(r.Context(), id); err != nil {
		respond.Error(w, r, apierrors.NewInternalError(err))
		return
	}
	p.log.Warn("cleanup debt forgotten without payment", zap.String("namespace", d.Namespace),
		zap.String("groupVersion", d.GroupVersion), zap.String("apiservice", d.APIService), zap.String("id", id))
	respond.JSON(w, http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusOK,
		Message: "the debt of namespace " + d.Namespace + " at APIService " + d.APIService + " is forgotten: what is left there stays",
	})
}
