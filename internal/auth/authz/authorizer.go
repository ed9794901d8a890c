package authz

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/pki"
)

// Authorizer authorizes requests with the configured authorizers. It is safe for concurrent use.
type Authorizer struct {
	// AuthorizerFunc provides Authorize and the methods for conditional authorization.
	authorizer.AuthorizerFunc
	config  Config
	current *pki.WatchedFile[*authorizerSet]
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// New reads the configuration and the kubeconfigs that it names. No webhook is called.
func New(c Config) (*Authorizer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	a := &Authorizer{config: c}
	a.AuthorizerFunc = a.decide
	var err error
	if a.current, err = pki.OpenWatchedFile(c.File, a.load); err != nil {
		return nil, err
	}
	if !a.current.Current().nodes {
		a.config.Node = nil // not run
	}
	return a, nil
}

// AuthorizesNodes reports whether the configuration contained the Node authorizer at the start. It cannot be added
// later, because its graph is built from object events since the start.
func (a *Authorizer) AuthorizesNodes() bool { return a.config.Node != nil }

func (a *Authorizer) load(file string) (*authorizerSet, error) {
	var config *apiserver.AuthorizationConfiguration
	var err error
	if file == "" {
		config, err = a.config.fromFlags()
	} else {
		config, err = readFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("authorization configuration: %w", err)
	}
	p, err := newAuthorizerSet(config, a.config)
	if err != nil {
		return nil, fmt.Errorf("authorization configuration: %w", err)
	}
	return p, nil
}

var errNoUser = errors.New("a request without a user cannot be authorized")

func (a *Authorizer) decide(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	u := attributes.GetUser()
	if u == nil {
		return authorizer.DecisionNoOpinion, "", errNoUser
	}
	if rbac.IsSystemMaster(u) {
		return authorizer.DecisionAllow, "", nil
	}
	return a.current.Current().Authorize(ctx, attributes)
}

// RulesFor implements [authorizer.RuleResolver]. A webhook cannot list its rules, so with a webhook the result is
// incomplete.
func (a *Authorizer) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return a.current.Current().rules.RulesFor(ctx, u, namespace)
}

// Stale returns why the current content of the configuration file is not in use, or nil. It is a readyz check.
func (a *Authorizer) Stale() error { return a.current.Stale() }

// Run reloads the configuration file when it changes, until ctx ends. It closes the connections to webhooks that are
// no longer used.
func (a *Authorizer) Run(ctx context.Context) error {
	inForce := a.current.Current()
	defer func() { inForce.close() }()
	return a.current.Run(ctx, a.config.Logger, func(err error) {
		countReload(a.config.Metrics, err)
		if next := a.current.Current(); next != inForce {
			inForce.close()
			inForce = next
			a.config.Logger.Info("reloaded authorizers", zap.Strings("order", inForce.names))
		}
	})
}
