package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Chain contains the enabled plugins, in order.
type Chain struct {
	admission.Interface

	deps     Deps
	policies *policyInformers
	waiters  []readinessWaiter
	stop     chan struct{}
	end      sync.Once // closes stop
	ready    chan struct{}
}

// readinessWaiter is implemented by k8s.io/apiserver's plugins. WaitForReady waits up to ten seconds until they have loaded the
// objects to enforce.
type readinessWaiter interface {
	WaitForReady() bool
}

var (
	_ admission.MutationInterface   = (*Chain)(nil)
	_ admission.ValidationInterface = (*Chain)(nil)
)

// New creates the plugins enabled by c. It sets Deps.Stopped. k8s.io/apiserver's policy plugins start to wait for their
// informers at once, so a caller that does not call Run must call Abandon.
func New(c Config, d Deps) (*Chain, error) {
	configured, err := c.read()
	if err != nil {
		return nil, fmt.Errorf("admission configuration: %w", err)
	}
	chain := &Chain{stop: make(chan struct{}), ready: make(chan struct{})}
	d.Stopped = chain.stop
	chain.deps = d
	chain.policies = &policyInformers{SharedInformerFactory: d.LibraryInformers, stop: chain.stop}
	registry := admission.NewPlugins()
	skip := map[string]bool{}
	for _, p := range c.Plugins {
		skip[p.Name] = p.SkipBootstrap
		registry.Register(p.Name, func(config io.Reader) (admission.Interface, error) { return p.New(d, config) })
	}
	decorate := admission.DecoratorFunc(func(plugin admission.Interface, name string) admission.Interface {
		if w, ok := plugin.(readinessWaiter); ok {
			chain.waiters = append(chain.waiters, w)
		}
		measured := metrics.WithControllerMetrics(plugin, name)
		if skip[name] {
			return skipBootstrap{measured}
		}
		return measured
	})
	plugins, err := registry.NewFromPlugins(c.Names(), configured, chain.initializers(), decorate)
	if err != nil {
		chain.Abandon()
		return nil, err
	}
	chain.Interface = metrics.WithStepMetrics(plugins)
	return chain, nil
}

// initializers provides k8s.io/apiserver's plugins with their dependencies.
func (c *Chain) initializers() admission.PluginInitializers {
	d := c.deps
	return admission.PluginInitializers{
		initializer.New(d.LibraryClient, d.Dynamic, c.policies, d.Authorizer, utilfeature.DefaultFeatureGate,
			compatibility.DefaultBuildEffectiveVersion(), d.Stopped, d.RESTMapper),
		webhookAccess{d.Webhooks, d.LibraryInformers},
		excludeReviews{},
	}
}

// excludeReviews excludes reviews, which are never stored, from policies and webhooks. Otherwise authors of policies could
// decide on token reviews, and authorization would wait for webhooks.
type excludeReviews struct{}

func (excludeReviews) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		p.SetExcludedAdmissionResources([]schema.GroupResource{
			authenticationv1.Resource("selfsubjectreviews"), authenticationv1.Resource("tokenreviews"),
			authorizationv1.Resource("localsubjectaccessreviews"), authorizationv1.Resource("selfsubjectaccessreviews"),
			authorizationv1.Resource("selfsubjectrulesreviews"), authorizationv1.Resource("subjectaccessreviews"),
		})
	}
}

// Admit calls the mutating plugins.
func (c *Chain) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return c.Interface.(admission.MutationInterface).Admit(ctx, a, o)
}

// Validate calls the validating plugins.
func (c *Chain) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return c.Interface.(admission.ValidationInterface).Validate(ctx, a, o)
}

// Ready returns a channel that is closed when every plugin has loaded the objects to enforce.
func (c *Chain) Ready() <-chan struct{} { return c.ready }

// Abandon stops what New started, if Run is not called or has returned.
func (c *Chain) Abandon() { c.end.Do(func() { close(c.stop) }) }

// Run starts the informers, and returns after ctx and the informers have ended. The goroutines of k8s.io/apiserver's policy
// plugins end a moment later; k8s.io/apiserver provides no way to wait for them.
func (c *Chain) Run(ctx context.Context) error {
	c.deps.LibraryInformers.Start(ctx.Done())
	defer c.deps.LibraryInformers.Shutdown()
	defer c.Abandon() // runs first: a policy with a parameter of a built-in kind has started an informer that ends with it
	c.deps.LibraryInformers.WaitForCacheSync(ctx.Done())
	if ctx.Err() != nil {
		return nil
	}
	if err := c.waitForPlugins(ctx); err != nil {
		return err
	}
	close(c.ready)
	c.deps.Logger.Debug("admission plugins are ready")
	<-ctx.Done()
	return nil
}

// waitForPlugins calls WaitForReady of all plugins concurrently, after their informers: a plugin that is not ready polls every
// 100 ms.
func (c *Chain) waitForPlugins(ctx context.Context) error {
	c.policies.await(ctx)
	answers := make([]bool, len(c.waiters))
	var asked sync.WaitGroup
	for i, w := range c.waiters {
		asked.Go(func() { answers[i] = w.WaitForReady() })
	}
	asked.Wait()
	for i, ok := range answers {
		if !ok && ctx.Err() == nil {
			c.deps.Logger.Error("admission plugin is not ready", zap.String("plugin", fmt.Sprintf("%T", c.waiters[i])))
			return errors.New("an admission plugin did not read what it has to enforce within ten seconds")
		}
	}
	return nil
}

type bootstrapKey struct{}

// WithBootstrap marks a request that creates an object of every cluster: a system namespace, role or priority class.
func WithBootstrap(ctx context.Context) context.Context {
	return context.WithValue(ctx, bootstrapKey{}, true)
}

func isBootstrap(ctx context.Context) bool { return ctx.Value(bootstrapKey{}) != nil }

// skipBootstrap calls a plugin for all requests except those marked by WithBootstrap.
type skipBootstrap struct {
	admission.Interface
}

var (
	_ admission.MutationInterface   = skipBootstrap{}
	_ admission.ValidationInterface = skipBootstrap{}
)

func (p skipBootstrap) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	mutating, ok := p.Interface.(admission.MutationInterface)
	if !ok || isBootstrap(ctx) {
		return nil
	}
	return mutating.Admit(ctx, a, o)
}

func (p skipBootstrap) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	validating, ok := p.Interface.(admission.ValidationInterface)
	if !ok || isBootstrap(ctx) {
		return nil
	}
	return validating.Validate(ctx, a, o)
}
