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
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Chain is the plugins that are on, in their order.
type Chain struct {
	admission.Interface

	deps    Deps
	reading *readings
	waiters []waiter
	stop    chan struct{}
	end     sync.Once // closes stop
	ready   chan struct{}
}

// waiter is what the library's plugins are: they say within ten seconds whether they know what to enforce.
type waiter interface {
	WaitForReady() bool
}

var (
	_ admission.MutationInterface   = (*Chain)(nil)
	_ admission.ValidationInterface = (*Chain)(nil)
)

// New makes the plugins that c turns on. Deps.Stopped is the Chain's to give. The library's policies begin to wait for
// their informers at once: whoever does not call Run must call Abandon.
func New(c Config, d Deps) (*Chain, error) {
	configured, err := c.read()
	if err != nil {
		return nil, fmt.Errorf("admission configuration: %w", err)
	}
	chain := &Chain{stop: make(chan struct{}), ready: make(chan struct{})}
	d.Stopped = chain.stop
	chain.deps = d
	chain.reading = &readings{SharedInformerFactory: d.LibraryInformers, stop: chain.stop}
	registry := admission.NewPlugins()
	foreign := map[string]bool{}
	for _, p := range c.Plugins {
		foreign[p.Name] = p.Foreign
		registry.Register(p.Name, func(config io.Reader) (admission.Interface, error) { return p.New(d, config) })
	}
	decorate := admission.DecoratorFunc(func(plugin admission.Interface, name string) admission.Interface {
		if w, ok := plugin.(waiter); ok {
			chain.waiters = append(chain.waiters, w)
		}
		measured := metrics.WithControllerMetrics(plugin, name)
		if foreign[name] {
			return afterFounding{measured}
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

// initializers give plugins what they ask for in the library's way.
func (c *Chain) initializers() admission.PluginInitializers {
	d := c.deps
	return admission.PluginInitializers{
		initializer.New(d.LibraryClient, d.Dynamic, c.reading, d.Authorizer, utilfeature.DefaultFeatureGate,
			compatibility.DefaultBuildEffectiveVersion(), d.Stopped, d.RESTMapper),
		webhookinitializer.NewPluginInitializer(d.Webhooks.Wrapper(), d.Webhooks.Resolver()),
		unasked{},
	}
}

// unasked keeps policies and webhooks away from what is answered and never stored: who may read a token review could
// otherwise be decided by whoever writes policies, and authorization would wait for webhooks.
type unasked struct{}

func (unasked) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		p.SetExcludedAdmissionResources([]schema.GroupResource{
			authenticationv1.Resource("selfsubjectreviews"), authenticationv1.Resource("tokenreviews"),
			authorizationv1.Resource("localsubjectaccessreviews"), authorizationv1.Resource("selfsubjectaccessreviews"),
			authorizationv1.Resource("selfsubjectrulesreviews"), authorizationv1.Resource("subjectaccessreviews"),
		})
	}
}

// Admit lets the plugins that change things change a.
func (c *Chain) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return c.Interface.(admission.MutationInterface).Admit(ctx, a, o)
}

// Validate lets the plugins that refuse things refuse a.
func (c *Chain) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return c.Interface.(admission.ValidationInterface).Validate(ctx, a, o)
}

// Ready is closed when every plugin knows what to enforce.
func (c *Chain) Ready() <-chan struct{} { return c.ready }

// Abandon ends what New began, for a chain that is not run or not any more.
func (c *Chain) Abandon() { c.end.Do(func() { close(c.stop) }) }

// Run starts the informers, and returns after ctx has ended and they have. What the policies of the library started ends
// by itself a moment later: nobody can wait for it.
func (c *Chain) Run(ctx context.Context) error {
	c.deps.LibraryInformers.Start(ctx.Done())
	defer c.deps.LibraryInformers.Shutdown()
	defer c.Abandon() // first: a policy with a parameter of a built-in kind has started an informer that ends with it
	c.deps.LibraryInformers.WaitForCacheSync(ctx.Done())
	if ctx.Err() != nil {
		return nil
	}
	if err := c.awaitPlugins(ctx); err != nil {
		return err
	}
	close(c.ready)
	c.deps.Logger.Debug("admission knows what to enforce")
	<-ctx.Done()
	return nil
}

// awaitPlugins asks all at once, when the answer should be yes: each that has to say no looks again a tenth of a second later.
func (c *Chain) awaitPlugins(ctx context.Context) error {
	c.reading.await(ctx)
	answers := make([]bool, len(c.waiters))
	var asked sync.WaitGroup
	for i, w := range c.waiters {
		asked.Go(func() { answers[i] = w.WaitForReady() })
	}
	asked.Wait()
	for i, ok := range answers {
		if !ok && ctx.Err() == nil {
			c.deps.Logger.Error("an admission plugin does not become ready", zap.String("plugin", fmt.Sprintf("%T", c.waiters[i])))
			return errors.New("an admission plugin did not read what it has to enforce within ten seconds")
		}
	}
	return nil
}

type foundingKey struct{}

// Founding marks a request by which the house brings what every cluster starts with.
func Founding(ctx context.Context) context.Context {
	return context.WithValue(ctx, foundingKey{}, true)
}

func isFounding(ctx context.Context) bool { return ctx.Value(foundingKey{}) != nil }

// afterFounding asks a plugin about everything but the founding.
type afterFounding struct {
	admission.Interface
}

var (
	_ admission.MutationInterface   = afterFounding{}
	_ admission.ValidationInterface = afterFounding{}
)

func (p afterFounding) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	mutating, ok := p.Interface.(admission.MutationInterface)
	if !ok || isFounding(ctx) {
		return nil
	}
	return mutating.Admit(ctx, a, o)
}

func (p afterFounding) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	validating, ok := p.Interface.(admission.ValidationInterface)
	if !ok || isFounding(ctx) {
		return nil
	}
	return validating.Validate(ctx, a, o)
}
