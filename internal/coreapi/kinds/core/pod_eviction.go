package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/util/retry"

	"portico.dev/internal/coreapi/registry"
)

// maxDisrupted limits the evictions for one budget that its controller has not processed yet.
const maxDisrupted = 2000

// evictionRetry is for conflicts with other writers of the same pods and budgets.
var evictionRetry = wait.Backoff{Steps: 20, Duration: 500 * time.Millisecond, Factor: 1, Jitter: 0.1}

var evictionKind = policyv1.SchemeGroupVersion.WithKind("Eviction")

// evictions serves pods/eviction, which deletes a pod if its budget allows a disruption. The budget's controller computes the
// budget's numbers. evictions trusts and decrements them.
type evictions struct {
	pods         *registry.REST
	podStatus    *registry.Subresource
	budgets      *registry.REST
	budgetStatus *registry.Subresource
}

var (
	_ rest.NamedCreater             = (*evictions)(nil)
	_ rest.GroupVersionKindProvider = (*evictions)(nil)
)

func (e *evictions) New() runtime.Object { return &policyv1.Eviction{} }

func (e *evictions) Destroy() {}

func (e *evictions) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return evictionKind
}

func (e *evictions) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	eviction := obj.(*policyv1.Eviction)
	if eviction.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	how, err := evictionOptions(eviction, options)
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, eviction.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	pod, done, err := e.deleteUnguarded(ctx, name, how)
	if err != nil || done {
		return evicted(err)
	}
	budget, err := e.budgetOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	if budget == nil {
		return evicted(e.remove(ctx, name, how))
	}
	if !podReady(pod) && unhealthyMayGo(budget) {
		// The resource version is pinned, because a pod that has become ready since counts for the budget.
		err := e.remove(ctx, name, at(how, pod.ResourceVersion))
		if apierrors.IsConflict(err) && !pinned(how) {
			return nil, stillProcessed(budget.Name)
		}
		return evicted(err)
	}
	if err := e.spend(ctx, pod, budget, len(how.DryRun) > 0); err != nil {
		return nil, err
	}
	return evicted(e.remove(ctx, name, how))
}

func evicted(err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// evictionOptions returns the options of the deletion. The URL or the body may request a dry run.
func evictionOptions(e *policyv1.Eviction, options *metav1.CreateOptions) (*metav1.DeleteOptions, error) {
	how := e.DeleteOptions
	if how == nil {
		return &metav1.DeleteOptions{DryRun: options.DryRun}, nil
	}
	if how.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *how.IgnoreStoreReadErrorWithClusterBreakingPotential {
		return nil, apierrors.NewInvalid(evictionKind.GroupKind(), e.Name, field.ErrorList{field.Invalid(
			field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true,
			"can not be set for pod eviction, try after removing the option")})
	}
	switch {
	case len(how.DryRun) == 0:
		how.DryRun = options.DryRun
	case len(options.DryRun) > 0 && !slices.Equal(how.DryRun, options.DryRun):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", options.DryRun, how.DryRun))
	}
	return how, nil
}

func pinned(how *metav1.DeleteOptions) bool {
	return how.Preconditions != nil && how.Preconditions.ResourceVersion != nil
}

// at restricts a deletion to one version of the pod.
func at(how *metav1.DeleteOptions, version string) *metav1.DeleteOptions {
	how = how.DeepCopy()
	if how.Preconditions == nil {
		how.Preconditions = &metav1.Preconditions{}
	}
	how.Preconditions.ResourceVersion = &version
	return how
}

// deleteUnguarded deletes a pod that is pending, finished or being deleted, which no budget counts. It returns other pods.
func (e *evictions) deleteUnguarded(ctx context.Context, name string, how *metav1.DeleteOptions) (pod *corev1.Pod, done bool, err error) {
	again := func(err error) bool { return apierrors.IsConflict(err) && !pinned(how) && ctx.Err() == nil }
	err = retry.OnError(evictionRetry, again, func() error {
		obj, err := e.pods.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod = obj.(*corev1.Pod)
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
		if !over && pod.Status.Phase != corev1.PodPending {
			return nil
		}
		options := how
		if !over && !pinned(how) {
			options = at(how, pod.ResourceVersion) // the pod may become ready concurrently
		}
		done = true
		return e.remove(ctx, name, options)
	})
	return pod, done, err
}

// remove adds the reason to the pod's status, so that controllers do not count the deletion as a failure, and deletes the pod.
func (e *evictions) remove(ctx context.Context, name string, how *metav1.DeleteOptions) error {
	if len(how.DryRun) == 0 {
		obj, _, err := e.podStatus.Update(ctx, name, markedForEviction(how), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		if pinned(how) {
			how = at(how, obj.(*corev1.Pod).ResourceVersion)
		}
	}
	_, _, err := e.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, how)
	return err
}

func markedForEviction(how *metav1.DeleteOptions) rest.UpdatedObjectInfo {
	return rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		pod := old.(*corev1.Pod).DeepCopy()
		if p := how.Preconditions; p != nil {
			conflict := func(what string, asked, found any) error {
				return apierrors.NewConflict(corev1.Resource("Pod"), pod.Name,
					fmt.Errorf("the %s in the precondition (%v) does not match the %s in record (%v)", what, asked, what, found))
			}
			if p.UID != nil && *p.UID != "" && *p.UID != pod.UID {
				return nil, conflict("UID", *p.UID, pod.UID)
			}
			if p.ResourceVersion != nil && *p.ResourceVersion != "" && *p.ResourceVersion != pod.ResourceVersion {
				return nil, conflict("ResourceVersion", *p.ResourceVersion, pod.ResourceVersion)
			}
		}
		SetPodCondition(&pod.Status, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		})
		return pod, nil
	})
}

// budgetOf returns the budget that a pod counts for. More than one is an error, because the responsible one is unknown.
func (e *evictions) budgetOf(ctx context.Context, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	list, err := e.budgets.List(apirequest.WithNamespace(ctx, pod.Namespace), &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	var found *policyv1.PodDisruptionBudget
	budgets := list.(*policyv1.PodDisruptionBudgetList).Items
	for i := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if found != nil {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: 500,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
			}}
		}
		found = &budgets[i]
	}
	return found, nil
}

func unhealthyMayGo(b *policyv1.PodDisruptionBudget) bool {
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy
}

// spend takes one disruption from a budget and records the pod in it for the budget's controller.
func (e *evictions) spend(ctx context.Context, pod *corev1.Pod, budget *policyv1.PodDisruptionBudget, dryRun bool) error {
	if dryRun {
		return mayDisrupt(budget)
	}
	err := retry.OnError(evictionRetry, func(err error) bool { return apierrors.IsConflict(err) && ctx.Err() == nil }, func() error {
		info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			next := old.(*policyv1.PodDisruptionBudget).DeepCopy()
			if err := mayDisrupt(next); err != nil {
				return nil, err
			}
			next.Status.DisruptionsAllowed--
			if next.Status.DisruptionsAllowed == 0 {
				meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
					Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
					Reason: policyv1.InsufficientPodsReason, ObservedGeneration: next.Status.ObservedGeneration,
				})
			}
			if next.Status.DisruptedPods == nil {
				next.Status.DisruptedPods = map[string]metav1.Time{}
			}
			next.Status.DisruptedPods[pod.Name] = metav1.Now()
			return next, nil
		})
		_, _, err := e.budgetStatus.Update(ctx, budget.Name, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsConflict(err) {
		return apierrors.NewTimeoutError(fmt.Sprintf("couldn't update PodDisruptionBudget %q due to conflicts", budget.Name), 10)
	}
	return err
}

func stillProcessed(budget string) error {
	return refuseEviction(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

func refuseEviction(retryAfter int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

func mayDisrupt(b *policyv1.PodDisruptionBudget) error {
	resource := policyv1.Resource("poddisruptionbudget")
	switch s := &b.Status; {
	case s.ObservedGeneration < b.Generation:
		return stillProcessed(b.Name)
	case s.DisruptionsAllowed < 0:
		return forbiddenByBudget(apierrors.NewForbidden(resource, b.Name, errors.New("pdb disruptions allowed is negative")),
			fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: pdb disruptions allowed is negative", b.Name))
	case len(s.DisruptedPods) > maxDisrupted:
		return forbiddenByBudget(apierrors.NewForbidden(resource, b.Name, errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller")),
			fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller", b.Name))
	case s.DisruptionsAllowed > 0:
		return nil
	}
	return refuseEviction(0, whyNone(b))
}

func forbiddenByBudget(err *apierrors.StatusError, why string) error {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

func whyNone(b *policyv1.PodDisruptionBudget) string {
	condition := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	reported := condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != ""
	switch {
	case reported && condition.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, condition.Message)
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case reported:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, condition.Reason, condition.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
