package authz

import (
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/authorization/union"
)

// authorizerSet holds the authorizers of one configuration, in order. It is immutable.
type authorizerSet struct {
	authorizer.Authorizer
	rules    authorizer.RuleResolver
	names    []string
	webhooks []*webhook
	// nodes is set if the set contains the Node authorizer.
	nodes bool
}

func newAuthorizerSet(config *apiserver.AuthorizationConfiguration, c Config) (*authorizerSet, error) {
	compiler, err := check(config)
	if err != nil {
		return nil, err
	}
	p := &authorizerSet{}
	var members []union.NamedAuthorizer
	var resolvers []authorizer.RuleResolver
	for i, first := range c.First {
		name := fmt.Sprintf("embedder-%d", i)
		members = append(members, union.NamedAuthorizer{AuthorizerName: name, Authorizer: counted(c.Metrics, "Embedder", name, first.Authorize)})
		if rules, ok := first.(authorizer.RuleResolver); ok {
			resolvers = append(resolvers, rules)
		}
		p.names = append(p.names, name)
	}
	for _, a := range config.Authorizers {
		member, resolver, err := p.member(a, c, compiler)
		if err != nil {
			return nil, fmt.Errorf("authorizer %s: %w", a.Name, err)
		}
		members = append(members, union.NamedAuthorizer{
			AuthorizerName: a.Name, Authorizer: counted(c.Metrics, string(a.Type), a.Name, member.Authorize),
		})
		resolvers = append(resolvers, resolver)
		p.names = append(p.names, a.Name)
	}
	p.rules = union.NewRuleResolvers(resolvers...)
	if len(members) == 1 {
		p.Authorizer = members[0].Authorizer // avoids the union's allocations
		return p, nil
	}
	p.Authorizer, err = union.New(members...)
	return p, err
}

func (p *authorizerSet) member(a apiserver.AuthorizerConfiguration, c Config, compiler cel.Compiler) (authorizer.Authorizer, authorizer.RuleResolver, error) {
	switch a.Type {
	case ModeAlwaysAllow:
		always := authorizerfactory.NewAlwaysAllowAuthorizer()
		return always, always, nil
	case ModeAlwaysDeny:
		never := authorizerfactory.NewAlwaysDenyAuthorizer()
		return never, never, nil
	case ModeWebhook:
		w, err := newWebhook(a.Name, a.Webhook, compiler, c)
		if err != nil {
			return nil, nil, err
		}
		p.webhooks = append(p.webhooks, w)
		return w, w.library, nil
	case ModeNode:
		if c.Node == nil {
			return nil, nil, errors.New("the Node authorizer cannot be added while the server runs; restart it")
		}
		p.nodes = true
		return c.Node, c.Node, nil
	default:
		return c.RBAC, c.RBAC, nil
	}
}

// close closes idle connections. Connections with calls in flight are closed when the calls finish.
func (p *authorizerSet) close() {
	for _, w := range p.webhooks {
		w.transport.close()
	}
}
