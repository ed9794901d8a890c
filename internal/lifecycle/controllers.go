package lifecycle

import (
	"context"
	"net/netip"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/lifecycle/debts"
	"portico.dev/internal/run"
)

// Config is what the controllers need. Every field without a default is required.
type Config struct {
	// Client writes what the controllers write. Its rate limits are the caller's: namespace deletion alone may need a
	// hundred requests for one namespace.
	Client kubernetes.Interface
	// Metadata deletes and counts objects of kinds this program does not know.
	Metadata metadata.Interface
	// Namespaces is shared with the rest of the server, which runs it.
	Namespaces coreinformers.NamespaceInformer
	// Served says what is served, alive or dead, in order of preference within a group.
	Served func() []GroupVersion
	// Defined are the custom resources that are defined in etcd at this moment. Served may be behind them. Nil: there are none.
	Defined func(context.Context) ([]schema.GroupVersionResource, error)
	// Changed each return a channel that is closed when Served may say something else. Take it before asking Served.
	Changed []func() <-chan struct{}
	// Probe says that a namespace waits for an APIService's backend, so that its return is noticed soon. It must not block.
	Probe func(apiService string)
	// Debts is where is written down what namespaces leave behind.
	Debts *debts.Ledger
	// CycleGrace is how long a namespace waits for a backend whose Service was in it. Default DefaultCycleGrace.
	CycleGrace time.Duration
	// RootCA is the PEM bundle that workloads verify this server with. It may change.
	RootCA func() []byte
	// Trust is what extension servers are told to trust.
	Trust Trust
	// Leads says whether this replica writes for all, and has a channel that is closed when that changes; take the channel
	// first. Nil: there is no other replica.
	Leads func() (bool, <-chan struct{})
	// Founding writes what the start waits for, and asks no webhook about it: one could be behind an extension server,
	// which nobody reaches before this server is ready. Default Client.
	Founding kubernetes.Interface
	// ClusterRoles is shared like Namespaces. Nil: nothing is aggregated.
	ClusterRoles rbacinformers.ClusterRoleInformer
	// FrontDoor is the Service kubernetes. Without an address there is none.
	FrontDoor FrontDoor
	// ServiceRanges are where cluster IPs come from, for ServiceCIDRs. Nil: they are not looked after.
	ServiceRanges []netip.Prefix
	ServiceCIDRs  networkinginformers.ServiceCIDRInformer
	// RepairAllocations mends what Services have claimed. Nil: nobody does.
	RepairAllocations func(context.Context) error
	// AllocationsAbandoned says whether that is worth doing at once, because a replica ended while it wrote. It is asked often.
	AllocationsAbandoned func(context.Context) (bool, error)
	// Quotas is what their status is made of. Without a Measure there is none.
	Quotas Quotas
	// Discovery knows every kind and its schema, for the status of ValidatingAdmissionPolicies. Nil: nobody writes it.
	Discovery discovery.DiscoveryInterface
	// Choice is which controllers run. Default EveryController. The garbage collector is chosen by whoever makes it.
	Choice Choice
	Logger *zap.Logger
}

// Controllers are all the controllers of this package.
type Controllers struct {
	system *systemNamespaces
	trust  *trustPublisher
	tokens *tokenUse
	// The rest are nil where there is nothing for them to do, or somebody else does it.
	rootCA          *rootCAPublisher
	serviceAccounts *defaultServiceAccounts
	namespaces      *namespaceFinalizer
	roles           *clusterRoleAggregator
	frontDoor       *frontDoor
	cidrs           *serviceCIDRs
	repair          *allocationRepair
	quotas          *quotaStatus
	policies        *policyStatus
	ready           chan struct{}
	log             *zap.Logger
}

// New prepares the controllers. It asks for the shared informer, so that starting its factory afterwards starts it.
func New(cfg Config) *Controllers {
	cfg.Namespaces.Informer()
	log := cfg.Logger.Named("lifecycle")
	if cfg.Founding == nil {
		cfg.Founding = cfg.Client
	}
	c := &Controllers{
		system: newSystemNamespaces(cfg.Client, cfg.Namespaces, log),
		trust:  newTrustPublisher(cfg.Client, cfg.Trust, log),
		tokens: newTokenUse(cfg.Client, log),
		ready:  make(chan struct{}),
		log:    log,
	}
	c.system.election = cfg.Leads
	c.chosen(cfg)
	if cfg.FrontDoor.Address.IsValid() {
		c.frontDoor = newFrontDoor(cfg, log)
	}
	if len(cfg.ServiceRanges) > 0 {
		cfg.ServiceCIDRs.Informer()
		c.cidrs = &serviceCIDRs{client: cfg.Founding, cidrs: cfg.ServiceCIDRs, ranges: cfg.ServiceRanges, election: cfg.Leads, log: log}
	}
	if cfg.RepairAllocations != nil {
		c.repair = &allocationRepair{cfg.RepairAllocations, cfg.AllocationsAbandoned, cfg.Leads, log}
	}
	return c
}

// chosen prepares those that can be left to a kube-controller-manager.
func (c *Controllers) chosen(cfg Config) {
	log, runs := c.log, cfg.Choice.Runs
	if runs(RootCAPublisher) {
		c.rootCA = newRootCAPublisher(cfg.Client, cfg.Namespaces, cfg.RootCA, log)
		c.rootCA.election = cfg.Leads
	}
	if runs(ServiceAccountController) {
		c.serviceAccounts = newDefaultServiceAccounts(cfg.Client, cfg.Founding, cfg.Namespaces, log)
		c.serviceAccounts.election = cfg.Leads
	}
	if runs(NamespaceController) {
		c.namespaces = newNamespaceFinalizer(cfg, log)
	}
	if cfg.ClusterRoles != nil && runs(ClusterRoleAggregation) {
		cfg.ClusterRoles.Informer()
		c.roles = &clusterRoleAggregator{client: cfg.Client, roles: cfg.ClusterRoles, election: cfg.Leads, log: log}
	}
	if cfg.Quotas.Measure != nil && runs(ResourceQuotaController) {
		c.quotas = newQuotaStatus(cfg, log)
	}
	if cfg.Discovery != nil && runs(PolicyStatusController) {
		c.policies = newPolicyStatus(cfg, log)
	}
}

// Ready is closed once the system namespaces, their service accounts and the Service kubernetes exist and extension servers
// can read whom to trust: what somebody who was told that this server is ready will look for first.
func (c *Controllers) Ready() <-chan struct{} { return c.ready }

// TokenUsed has it written down that the token of a Secret was used today. It waits for nothing.
func (c *Controllers) TokenUsed(s *corev1.Secret) { c.tokens.note(s) }

// Run blocks until ctx ends and every controller has returned.
func (c *Controllers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if c.repair != nil {
		g.Go(func() error { return c.repair.run(ctx) }) // prepare may wait for the address that a start before this one died with
	}
	if c.prepare(ctx) {
		close(c.ready)
		for _, run := range c.all() {
			g.Go(func() error { return run(ctx) })
		}
	}
	return g.Wait()
}

// all are the controllers that run once prepare has succeeded. All of them but two write for all replicas, in the one that
// leads: what a replica trusts is its own to publish, and the tokens that it sees are its own to note.
func (c *Controllers) all() []func(context.Context) error {
	all := []func(context.Context) error{c.system.run, c.trust.run, c.tokens.run}
	if c.rootCA != nil {
		all = append(all, c.rootCA.run)
	}
	if c.serviceAccounts != nil {
		all = append(all, c.serviceAccounts.run)
	}
	if c.namespaces != nil {
		all = append(all, c.namespaces.run)
	}
	if c.roles != nil {
		all = append(all, c.roles.run)
	}
	if c.frontDoor != nil {
		all = append(all, c.frontDoor.run)
	}
	if c.cidrs != nil {
		all = append(all, c.cidrs.run)
	}
	if c.quotas != nil {
		all = append(all, c.quotas.run)
	}
	if c.policies != nil {
		all = append(all, c.policies.run)
	}
	return all
}

// prepare makes what Ready promises. Storage may still be electing its leader, so it tries until it succeeds or ctx ends.
func (c *Controllers) prepare(ctx context.Context) bool {
	steps := []func(context.Context) error{c.system.ensure, c.trust.publish}
	if c.serviceAccounts != nil {
		steps = append(steps, c.serviceAccounts.ensure)
	}
	if c.cidrs != nil {
		steps = append(steps, c.cidrs.ensure)
	}
	if c.frontDoor != nil {
		steps = append(steps, c.frontDoor.ensure)
	}
	for _, step := range steps {
		for {
			err := step(ctx)
			if ctx.Err() != nil {
				return false
			}
			if err == nil {
				break
			}
			c.log.Warn("not ready yet, trying again", zap.Error(err))
			if !run.Pause(ctx, time.Second) {
				return false
			}
		}
	}
	return true
}
