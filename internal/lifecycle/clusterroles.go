package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
)

// aggregationManager is the field manager of aggregated roles. It equals kube-controller-manager's, so that a migrated cluster
// keeps its managed fields.
const aggregationManager = "clusterrole-aggregation-controller"

// aggregateDelay batches changes of roles, for example during an installation.
const aggregateDelay = 50 * time.Millisecond

// clusterRoleAggregator writes the rules of the selected roles into each ClusterRole with an aggregationRule.
type clusterRoleAggregator struct {
	client   clients.Interface
	roles    rbacinformers.ClusterRoleInformer
	election reconcile.Election
	log      *zap.Logger
}

func (a *clusterRoleAggregator) run(ctx context.Context) error {
	l := &reconcile.Loop{
		Name: "clusterrole-aggregation", Workers: 1, Delay: aggregateDelay, Election: a.election, Log: a.log,
		Reconcile: func(ctx context.Context, _ string) (time.Duration, error) { return 0, a.aggregate(ctx) },
	}
	// Every change reconciles all roles. There are few of them, and a role with new labels may be selected by different roles.
	return l.Run(ctx, reconcile.Source{Informer: a.roles.Informer(), Key: func(any) string { return "clusterroles" }})
}

func (a *clusterRoleAggregator) aggregate(ctx context.Context) error {
	roles, err := a.roles.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	slices.SortFunc(roles, func(x, y *rbacv1.ClusterRole) int { return cmp.Compare(x.Name, y.Name) })
	var errs []error
	for _, role := range roles {
		if role.AggregationRule == nil {
			continue
		}
		rules, err := aggregated(role, roles)
		if err == nil && !apiequality.Semantic.DeepEqual(rules, role.Rules) {
			err = a.write(ctx, role.Name, rules)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("aggregate clusterrole %s: %w", role.Name, err))
		}
	}
	return errors.Join(errs...)
}

// aggregated returns the rules of the roles that role selects, without duplicates.
func aggregated(role *rbacv1.ClusterRole, roles []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range roles {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return apiequality.Semantic.DeepEqual(r, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

func (a *clusterRoleAggregator) write(ctx context.Context, name string, rules []rbacv1.PolicyRule) error {
	// Apply would recreate a role that was deleted after the cache was read.
	if _, err := a.client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	config := rbacapply.ClusterRole(name)
	for _, r := range rules {
		config.WithRules(rbacapply.PolicyRule().WithVerbs(r.Verbs...).WithAPIGroups(r.APIGroups...).WithResources(r.Resources...).
			WithResourceNames(r.ResourceNames...).WithNonResourceURLs(r.NonResourceURLs...))
	}
	_, err := a.client.RbacV1().ClusterRoles().Apply(ctx, config, metav1.ApplyOptions{FieldManager: aggregationManager, Force: true})
	return err
}
