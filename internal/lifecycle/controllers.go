package lifecycle

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/namespaces"
	"portico.dev/internal/lifecycle/quotas"
	"portico.dev/internal/lifecycle/reconcile"
	"portico.dev/internal/lifecycle/trust"
	"portico.dev/internal/logging"
	"portico.dev/internal/run"
)

// Config configures the controllers. Every field without a default is required.
type Config struct {
	// Client writes the objects of the controllers. The caller sets its rate limits.
	Client clients.Interface
	// BootstrapClient writes the objects that the start waits for. It calls no webhooks, because a webhook may be behind an
	// extension server that is unreachable until this server is ready. Default Client.
	BootstrapClient clients.Interface
	// Namespaces is shared with the rest of the server, which runs it.
	Namespaces coreinformers.NamespaceInformer
	// ServiceAccounts is shared like Namespaces.
	ServiceAccounts coreinformers.ServiceAccountInformer
	// Election reports whether this replica leads. Default nil: this is the only replica.
	Election reconcile.Election
	// Choice selects the controllers that run. Default EveryController. It does not start the garbage collector, which is not
	// part of this package.
	Choice Choice

	// Finalization configures the finalization of namespaces, and Quotas the status of quotas. Without a Measure, the status of
	// quotas is not written. Their clients, elections, loggers and the informer of namespaces come from the fields above.
	Finalization namespaces.Config
	Quotas       quotas.Config
	// RootCA returns the PEM bundle that workloads use to verify this server. It may change. If it is empty, nothing is
	// published.
	RootCA func() []byte
	// Trust configures the trust data published for extension servers.
	Trust trust.Config
	// FrontDoor configures the Service kubernetes. Without an address the Service is not created.
	FrontDoor FrontDoor
	// ClusterRoles is shared like Namespaces. If nil, roles are not aggregated.
	ClusterRoles rbacinformers.ClusterRoleInformer
	// ServiceRanges are the ranges of cluster IPs, for ServiceCIDRs. If nil, ServiceCIDRs are not reconciled.
	ServiceRanges []netip.Prefix
	ServiceCIDRs  networkinginformers.ServiceCIDRInformer
	// RepairAllocations repairs the address and port claims of Services. If nil, they are not repaired.
	RepairAllocations func(context.Context) error
	// AllocationsAbandoned reports whether an immediate repair is needed because a replica ended during a write. It is called
	// often.
	AllocationsAbandoned func(context.Context) (bool, error)
	// Discovery provides every kind and its schema, for the status of ValidatingAdmissionPolicies. If nil, the status is not
	// written.
	Discovery discovery.DiscoveryInterface
	// Certificates and Secrets serve the controllers of node credentials. Secrets is shared like Namespaces.
	Certificates Certificates
	Secrets      coreinformers.SecretInformer
	Logger       *zap.Logger
}

// Controllers runs all controllers except the garbage collector.
type Controllers struct {
	// ensure contains the steps that Ready waits for, all the controllers that start after them, and early the controllers that
	// start before them.
	ensure     []func(context.Context) error
	all, early []controller
	tokens     *tokenUse
	ready      chan struct{}
	log        *zap.Logger
}

type controller struct {
	name string
	run  func(context.Context) error
}

// New prepares the controllers. It requests the shared informers, so that their factories start them.
//
// All controllers but two write on the leading replica only. The exceptions are the trust publisher, because each replica
// publishes its own trust bundle, and the recorder of token uses.
func New(cfg Config) *Controllers {
	cfg.Namespaces.Informer()
	log, runs := cfg.Logger.Named("lifecycle"), cfg.Choice.Runs
	if cfg.BootstrapClient == nil {
		cfg.BootstrapClient = cfg.Client
	}
	c := &Controllers{tokens: newTokenUse(cfg.Client, log), ready: make(chan struct{}), log: log}
	add := func(name string, run func(context.Context) error, ensure ...func(context.Context) error) {
		c.all, c.ensure = append(c.all, controller{name, run}), append(c.ensure, ensure...)
	}
	system := &systemNamespaces{client: cfg.Client, namespaces: cfg.Namespaces, election: cfg.Election, log: log}
	add("system-namespaces", system.run, system.ensure)
	publisher := trust.NewPublisher(cfg.Client, cfg.Trust, log)
	add("extension-apiserver-authentication", publisher.Run, publisher.Publish)
	add("token-use", c.tokens.run)
	if runs(RootCAPublisher) {
		add(RootCAPublisher, trust.NewRootCAPublisher(cfg.Client, cfg.Namespaces, cfg.RootCA, cfg.Election, log).Run)
	}
	if runs(ServiceAccountController) {
		cfg.ServiceAccounts.Informer()
		accounts := newDefaultServiceAccounts(cfg, log)
		add(ServiceAccountController, accounts.run, accounts.ensure)
	}
	if runs(NamespaceController) {
		f := cfg.Finalization
		f.Client, f.Namespaces, f.Election, f.Logger = cfg.Client, cfg.Namespaces, cfg.Election, log
		add(NamespaceController, namespaces.New(f).Run)
	}
	if cfg.ClusterRoles != nil && runs(ClusterRoleAggregation) {
		cfg.ClusterRoles.Informer()
		add(ClusterRoleAggregation, (&clusterRoleAggregator{client: cfg.Client, roles: cfg.ClusterRoles, election: cfg.Election, log: log}).run)
	}
	if cfg.Quotas.Measure != nil && runs(ResourceQuotaController) {
		q := cfg.Quotas
		q.Client, q.Election, q.Logger = cfg.Client, cfg.Election, log
		add(ResourceQuotaController, quotas.New(q).Run)
	}
	if cfg.Discovery != nil && runs(PolicyStatusController) {
		add(PolicyStatusController, newPolicyStatus(cfg, log).run)
	}
	c.addCertificates(cfg)
	c.addBootstrapTokens(cfg)
	if len(cfg.ServiceRanges) > 0 {
		cfg.ServiceCIDRs.Informer()
		cidrs := &serviceCIDRs{client: cfg.BootstrapClient, cidrs: cfg.ServiceCIDRs, ranges: cfg.ServiceRanges, election: cfg.Election, log: log}
		add("service-cidrs", cidrs.run, cidrs.ensure)
	}
	if cfg.FrontDoor.Address.IsValid() {
		service := newFrontDoor(cfg, log)
		add("kubernetes-service", service.run, service.ensure)
	}
	if cfg.RepairAllocations != nil {
		// An ensure step may wait for an address that a replica claimed before it died.
		repair := &allocationRepair{cfg.RepairAllocations, cfg.AllocationsAbandoned, cfg.Election, log}
		c.early = append(c.early, controller{"allocation-repair", repair.run})
	}
	return c
}

// Ready is closed when the system namespaces, their service accounts and the Service kubernetes exist and the trust data for
// extension servers is published.
func (c *Controllers) Ready() <-chan struct{} { return c.ready }

// TokenUsed records that the token of a Secret was used today. It does not block.
func (c *Controllers) TokenUsed(s *corev1.Secret) { c.tokens.note(s) }

// Run runs the controllers. It blocks until ctx ends and every controller has returned.
func (c *Controllers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	start := func(all []controller) {
		for _, one := range all {
			c.log.Debug("starting controller", zap.String("controller", one.name))
			g.Go(func() error { return one.run(ctx) })
		}
	}
	start(c.early)
	if c.ensureAll(ctx) {
		close(c.ready)
		start(c.all)
	}
	return g.Wait()
}

// ensureAll runs the ensure steps. It retries until they succeed or ctx ends, because storage may still be electing its leader.
func (c *Controllers) ensureAll(ctx context.Context) bool {
	for _, step := range c.ensure {
		for failures := 0; ; failures++ {
			err := step(ctx)
			if ctx.Err() != nil {
				return false
			}
			if err == nil {
				break
			}
			c.log.Log(logging.RetryLevel(failures), "failed to prepare the controllers; retrying", zap.Error(err))
			if !run.Pause(ctx, time.Second) {
				return false
			}
		}
	}
	return true
}

// Names of the controllers that also exist in kube-controller-manager. The other controllers here belong to kube-apiserver.
const (
	NamespaceController      = "namespace-controller"
	GarbageCollector         = "garbage-collector-controller"
	ServiceAccountController = "serviceaccount-controller"
	RootCAPublisher          = "root-ca-certificate-publisher-controller"
	ClusterRoleAggregation   = "clusterrole-aggregation-controller"
	ResourceQuotaController  = "resourcequota-controller"
	PolicyStatusController   = "validatingadmissionpolicy-status-controller"
	// The following are in nodecredentials.go.
	CSRApproving    = "certificatesigningrequest-approving-controller"
	CSRSigning      = "certificatesigningrequest-signing-controller"
	CSRCleaner      = "certificatesigningrequest-cleaner-controller"
	BootstrapSigner = "bootstrap-signer-controller"
	TokenCleaner    = "token-cleaner-controller"
)

var choosable = []string{
	NamespaceController, GarbageCollector, ServiceAccountController, RootCAPublisher, ClusterRoleAggregation,
	ResourceQuotaController, PolicyStatusController, CSRApproving, CSRSigning, CSRCleaner, BootstrapSigner, TokenCleaner,
}

// Choice selects the controllers that run here instead of in kube-controller-manager. It has the syntax of the flag
// --controllers: "*" selects all, "name" selects one, "-name" excludes one. The first match decides. A controller that is not
// named runs if the list contains "*". Nil selects all controllers, an empty Choice none.
type Choice []string

// EveryController returns the default Choice, which selects all controllers.
func EveryController() Choice { return Choice{"*"} }

// Runs reports whether the named controller runs.
func (c Choice) Runs(name string) bool {
	if c == nil {
		return true
	}
	for _, word := range c {
		switch word {
		case name:
			return true
		case "-" + name:
			return false
		}
	}
	return slices.Contains(c, "*")
}

// Names reports whether a controller is selected by its name. Some controllers run only in this case.
func (c Choice) Names(name string) bool {
	i := slices.IndexFunc(c, func(word string) bool { return strings.TrimPrefix(word, "-") == name })
	return i >= 0 && c[i] == name
}

// Check returns an error that lists the unknown controllers.
func (c Choice) Check() error {
	for _, word := range c {
		if word != "*" && !slices.Contains(choosable, strings.TrimPrefix(word, "-")) {
			return fmt.Errorf("%q is not one of the controllers that can be left out; they are %s, and * is all of them",
				word, strings.Join(choosable, ", "))
		}
	}
	return nil
}
