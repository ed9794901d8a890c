package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// RBAC authorizes requests by roles and bindings. It is safe for concurrent use.
type RBAC struct {
	// AuthorizerFunc provides Authorize and the methods for conditional authorization. RBAC has no conditions.
	authorizer.AuthorizerFunc
	log     *zap.Logger
	current atomic.Pointer[index]
	ready   chan struct{}
}

var (
	_ authorizer.Authorizer   = (*RBAC)(nil)
	_ authorizer.RuleResolver = (*RBAC)(nil)
)

// ErrNotReady is returned before the rules are loaded. It is not a decision.
var ErrNotReady = errors.New("the roles and bindings are not loaded yet")

// New returns an RBAC without rules. Run loads them. The group system:masters is allowed everything from the start.
func New(log *zap.Logger) *RBAC {
	r := &RBAC{log: log, ready: make(chan struct{})}
	r.AuthorizerFunc = r.decide
	return r
}

// Ready returns a channel that is closed when the rules are loaded.
func (r *RBAC) Ready() <-chan struct{} { return r.ready }

func (r *RBAC) decide(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	u := a.GetUser()
	if u == nil {
		return authorizer.DecisionNoOpinion, "", errors.New("a request without a user cannot be authorized")
	}
	if IsSystemMaster(u) {
		return authorizer.DecisionAllow, "", nil
	}
	x := r.current.Load()
	if x == nil {
		return authorizer.DecisionNoOpinion, "", ErrNotReady
	}
	q := newQuestion(a, x.roles.targets)
	if g := x.allowing(u, a.GetNamespace(), &q); g != nil {
		return authorizer.DecisionAllow, g.reason(), nil
	}
	if missing := x.missing(u, a.GetNamespace()); len(missing) > 0 {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(missing)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// PolicyRulesFor returns the rules of u in namespace, including cluster-wide ones, for escalation checks. The error
// lists bound roles that do not exist; the rules are valid nevertheless.
func (r *RBAC) PolicyRulesFor(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	x := r.current.Load()
	if x == nil {
		return nil, ErrNotReady
	}
	var rules []rbacv1.PolicyRule
	seen := make(map[*role]bool)
	for sc := range x.scopes(u, namespace) {
		for _, g := range sc.grants {
			if !seen[g.role] {
				seen[g.role] = true
				rules = append(rules, g.role.rules...)
			}
		}
	}
	return rules, utilerrors.NewAggregate(x.missing(u, namespace))
}

// RoleRules returns the rules of a role as granted by a binding in namespace (empty for a ClusterRoleBinding). The
// rules of aggregated roles are collected. It returns an error if the role does not exist.
func (r *RBAC) RoleRules(_ context.Context, namespace string, to rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	x := r.current.Load()
	if x == nil {
		return nil, ErrNotReady
	}
	found, err := x.roles.find(namespace, to)
	if err != nil {
		return nil, err
	}
	return found.rules, nil
}

// RulesFor implements [authorizer.RuleResolver], for SelfSubjectRulesReview.
func (r *RBAC) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules, err := r.PolicyRulesFor(u, namespace)
	var resources []authorizer.ResourceRuleInfo
	var urls []authorizer.NonResourceRuleInfo
	for _, rule := range rules {
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			urls = append(urls, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
	}
	return resources, urls, false, err
}

// Load replaces the rules. It is called by Run, and by tests and tools that have a policy.
func (r *RBAC) Load(p Policy) {
	start := time.Now()
	first := r.current.Swap(newIndex(p)) == nil
	r.log.Debug("compiled roles and bindings",
		zap.Int("roles", len(p.ClusterRoles)+len(p.Roles)),
		zap.Int("bindings", len(p.Bindings)+len(p.ClusterRoleBindings)+len(p.RoleBindings)),
		zap.Duration("took", time.Since(start)))
	if first {
		close(r.ready)
	}
}

// IsSystemMaster reports whether u is in the group system:masters, which is allowed everything. The group is checked
// before any rule, so that administrators have access if roles are broken, and this server can fill the index. No
// binding can revoke it, and only a certificate, a token file or a front proxy can grant it.
func IsSystemMaster(u user.Info) bool {
	return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
