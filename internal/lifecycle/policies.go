package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	admissionregistrationapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/clients"
	"portico.dev/internal/lifecycle/reconcile"
	"portico.dev/internal/run"
)

// policyManager is the field manager of the status of policies. It equals kube-controller-manager's.
const policyManager = "validatingadmissionpolicy-status"

// policyStatus writes the type errors of a ValidatingAdmissionPolicy's expressions into its status. They are only warnings,
// because a kind may be defined later, or in another version.
type policyStatus struct {
	client   clients.Interface
	policies cache.SharedIndexInformer
	types    *validating.TypeChecker
	election reconcile.Election
	log      *zap.Logger
}

// newPolicyStatus returns a policyStatus that reads kinds and schemas through the API, and again if a kind is unknown.
func newPolicyStatus(cfg Config, log *zap.Logger) *policyStatus {
	kinds := memory.NewMemCacheClient(cfg.Discovery)
	return &policyStatus{
		client:   cfg.Client,
		policies: reconcile.NewInformer(cfg.Client, cfg.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), &admissionregistrationv1.ValidatingAdmissionPolicy{}, ""),
		types: &validating.TypeChecker{
			SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: cfg.Discovery},
			RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(kinds),
		},
		election: cfg.Election, log: log,
	}
}

func (p *policyStatus) run(ctx context.Context) error {
	if !p.served(ctx) {
		<-ctx.Done()
		return nil
	}
	// A single worker, because k8s.io/apiserver's TypeChecker does not support concurrent use.
	l := &reconcile.Loop{Name: "policy-status", Workers: 1, Election: p.election, Reconcile: p.reconcile, Log: p.log}
	return l.Run(ctx, reconcile.Source{Informer: p.policies, Key: reconcile.NameOf, Owned: true})
}

// served reports whether policies are served. An informer of a kind disabled by --runtime-config would log errors forever.
func (p *policyStatus) served(ctx context.Context) bool {
	for {
		all, err := p.client.Discovery().ServerResourcesForGroupVersion(admissionregistrationv1.SchemeGroupVersion.String())
		if err == nil {
			return slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == "validatingadmissionpolicies" })
		}
		if apierrors.IsNotFound(err) || !run.Pause(ctx, time.Second) {
			return false
		}
	}
}

func (p *policyStatus) reconcile(ctx context.Context, name string) (time.Duration, error) {
	obj, there, err := p.policies.GetIndexer().GetByKey(name)
	if err != nil || !there {
		return 0, err
	}
	policy := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if policy.Status.ObservedGeneration >= policy.Generation {
		return 0, nil
	}
	found := admissionregistrationapply.TypeChecking()
	for _, w := range p.types.Check(policy) {
		found.WithExpressionWarnings(admissionregistrationapply.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
	}
	// With the UID, because apply would otherwise recreate a policy that was just deleted.
	status := admissionregistrationapply.ValidatingAdmissionPolicy(name).WithUID(policy.UID).WithStatus(
		admissionregistrationapply.ValidatingAdmissionPolicyStatus().WithObservedGeneration(policy.Generation).WithTypeChecking(found))
	_, err = p.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx, status, metav1.ApplyOptions{FieldManager: policyManager, Force: true})
	if err = reconcile.Ignoring(err, reconcile.IsOutdated); err != nil {
		return 0, fmt.Errorf("status of validatingadmissionpolicy %s: %w", name, err)
	}
	return 0, nil
}
