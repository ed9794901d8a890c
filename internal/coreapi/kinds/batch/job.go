package batch

import (
	"context"
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

func jobResource() registry.Resource {
	return registry.Resource{
		Name: "jobs", Singular: "job", Categories: []string{"all"},
		Object: &batchv1.Job{}, List: &batchv1.JobList{}, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {manualSelector: true, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
		},
		Rules:    validate.WithStatus(validateJob, validateJobUpdate, validateJobStatus).CheckFinalizers(),
		Defaults: defaults.Of(defaultJob),
		Warnings: validate.Warn(warningsOfJob),
		Columns:  jobColumns,
		Fields:   jobFields(),
		Spec:     registry.SpecOf(func(o *batchv1.Job) *batchv1.JobSpec { return &o.Spec }),
		Status:   registry.StatusOf(func(o *batchv1.Job) *batchv1.JobStatus { return &o.Status }), StatusChangesMetadata: true,
		PrepareCreate: prepareJob, PrepareUpdate: prepareJobUpdate, DeleteStrategy: registry.OrphanDependents, WarnOnUpdate: registry.NewGeneration,
		PodSpec:  registry.PodTemplate(func(o *batchv1.Job) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		Storages: jobStorages,
	}
}

func jobStorages(_ *registry.Environment, main *registry.REST) map[string]rest.Storage {
	return map[string]rest.Storage{"jobs": jobREST{main}}
}

// jobREST warns clients that delete a job without a propagation policy that its pods are kept.
type jobREST struct{ *registry.REST }

func (j jobREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	warnOfOrphans(ctx, options)
	return j.REST.Delete(ctx, name, validate, options)
}

func (j jobREST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, list *internalversion.ListOptions) (runtime.Object, error) {
	warnOfOrphans(ctx, options)
	return j.REST.DeleteCollection(ctx, validate, options, list)
}

func warnOfOrphans(ctx context.Context, options *metav1.DeleteOptions) {
	//lint:ignore SA1019 clients may still say it the old way
	if options != nil && options.PropagationPolicy == nil && options.OrphanDependents == nil {
		warning.AddWarning(ctx, "", "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "+
			"remove them or set propagationPolicy=Orphan to suppress this warning")
	}
}

func prepareJob(obj runtime.Object) {
	dropScheduling(&obj.(*batchv1.Job).Spec, nil)
	selectOwnPods(obj)
}

func prepareJobUpdate(obj, old runtime.Object) {
	dropScheduling(&obj.(*batchv1.Job).Spec, &old.(*batchv1.Job).Spec)
}

// dropScheduling clears a field of the feature WorkloadWithJob, which is alpha and off. A job that another server stored with
// the field keeps it.
func dropScheduling(spec, old *batchv1.JobSpec) {
	if old == nil || old.Scheduling == nil {
		spec.Scheduling = nil
	}
}

// selectOwnPods labels a job's pods with the job's UID and selects them by it, so that no two jobs share pods. It keeps labels
// that the author has set to other values; validation refuses them.
func selectOwnPods(obj runtime.Object) {
	job := obj.(*batchv1.Job)
	if job.Spec.ManualSelector != nil && *job.Spec.ManualSelector {
		return
	}
	if job.Spec.Template.Labels == nil {
		job.Spec.Template.Labels = map[string]string{}
	}
	unlessSaid := func(labels map[string]string, key, value string) {
		if _, said := labels[key]; !said {
			labels[key] = value
		}
	}
	for key, value := range map[string]string{
		"job-name": job.Name, batchv1.JobNameLabel: job.Name,
		"controller-uid": string(job.UID), batchv1.ControllerUidLabel: string(job.UID),
	} {
		unlessSaid(job.Spec.Template.Labels, key, value)
	}
	if job.Spec.Selector == nil {
		job.Spec.Selector = &metav1.LabelSelector{}
	}
	if job.Spec.Selector.MatchLabels == nil {
		job.Spec.Selector.MatchLabels = map[string]string{}
	}
	unlessSaid(job.Spec.Selector.MatchLabels, batchv1.ControllerUidLabel, string(job.UID))
}

func jobFields() *selectable.Fields {
	return selectable.Of(selectable.InNamespace("status.successful"), func(set fields.Set, o *batchv1.Job) {
		set["status.successful"] = strconv.Itoa(int(o.Status.Succeeded))
	})
}

// Limits of an Indexed job. The status contains lists of its indexes.
const (
	maxIndexed        = 100_000
	manyCompletions   = 100_000
	maxOfMany         = 10_000
	maxManagerName    = 63
	indexedMode       = "Indexed"
	requiresIndexed   = "requires indexed completion mode"
	whenManyAndByEach = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"
)

func indexed(s *batchv1.JobSpec) bool {
	return s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
}

// jobContent checks the fields that a job and a job template have in common.
func jobContent(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := validate.NonNegative(path, validate.NamedNumbers{
		"parallelism": validate.OrZero(s.Parallelism), "completions": validate.OrZero(s.Completions),
		"activeDeadlineSeconds": validate.OrZero(s.ActiveDeadlineSeconds), "backoffLimit": validate.OrZero(s.BackoffLimit),
		"ttlSecondsAfterFinished": validate.OrZero(s.TTLSecondsAfterFinished), "backoffLimitPerIndex": validate.OrZero(s.BackoffLimitPerIndex),
		"maxFailedIndexes": validate.OrZero(s.MaxFailedIndexes),
	})
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if s.ManagedBy != nil {
		errs = append(errs, utilvalidation.IsDomainPrefixedPath(path.Child("managedBy"), *s.ManagedBy)...)
		if len(*s.ManagedBy) > maxManagerName {
			errs = append(errs, field.TooLong(path.Child("managedBy"), "", maxManagerName))
		}
	}
	errs = append(errs, completionMode(s, path)...)
	errs = append(errs, failurePolicy(s, path.Child("podFailurePolicy"))...)
	errs = append(errs, successPolicy(s, path.Child("successPolicy"))...)
	errs = append(errs, replacementPolicy(s, path.Child("podReplacementPolicy"))...)
	errs = append(errs, validate.Template(&s.Template, path.Child("template"))...)
	return append(errs, ending(s, path.Child("template", "spec", "restartPolicy"))...)
}

// ending refuses restart policies with which a pod restarts forever.
func ending(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch policy := s.Template.Spec.RestartPolicy; {
	case policy == "", policy == corev1.RestartPolicyAlways:
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))}
	case policy != corev1.RestartPolicyOnFailure && policy != corev1.RestartPolicyNever:
		return validate.OneOf(policy, path, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	case s.PodFailurePolicy != nil && policy != corev1.RestartPolicyNever:
		return field.ErrorList{field.Invalid(path, policy, `only "Never" is supported when podFailurePolicy is specified`)}
	}
	return nil
}

func completionMode(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.CompletionMode != nil {
		errs = validate.OneOf(*s.CompletionMode, path.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
	}
	if indexed(s) {
		return append(errs, indexedLimits(s, path)...)
	}
	if s.CompletionMode != nil && *s.CompletionMode != batchv1.NonIndexedCompletion {
		return errs
	}
	if s.BackoffLimitPerIndex != nil {
		errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *s.BackoffLimitPerIndex, requiresIndexed))
	}
	if s.MaxFailedIndexes != nil {
		errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *s.MaxFailedIndexes, requiresIndexed))
	}
	return errs
}

func indexedLimits(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(name string, value int32, why string) {
		errs = append(errs, field.Invalid(path.Child(name), value, why))
	}
	if s.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), "when completion mode is "+indexedMode))
	}
	if n := validate.OrZero(s.Parallelism); n > maxIndexed {
		refuse("parallelism", int32(n), fmt.Sprintf("must be less than or equal to %d when completion mode is %s", maxIndexed, indexedMode))
	}
	if failed := s.MaxFailedIndexes; failed != nil && s.Completions != nil && *failed > *s.Completions {
		refuse("maxFailedIndexes", *failed, "must be less than or equal to completions")
	}
	if failed := s.MaxFailedIndexes; failed != nil && *failed > maxIndexed {
		refuse("maxFailedIndexes", *failed, fmt.Sprintf("must be less than or equal to %d", maxIndexed))
	}
	if validate.OrZero(s.Completions) <= manyCompletions || s.BackoffLimitPerIndex == nil {
		return errs
	}
	if s.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(path.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
	}
	if n := validate.OrZero(s.Parallelism); n > maxOfMany {
		refuse("parallelism", int32(n), whenManyAndByEach)
	}
	if n := validate.OrZero(s.MaxFailedIndexes); n > maxOfMany {
		refuse("maxFailedIndexes", int32(n), whenManyAndByEach)
	}
	return errs
}

// sameText returns a comparable value for a string that distinguishes nil from empty.
func sameText(text *string) any {
	if text == nil {
		return nil
	}
	return *text
}

//lint:file-ignore SA1019 these rules warn about deprecated fields

func jobWarnings(s *batchv1.JobSpec, path *field.Path) []string {
	var warnings []string
	if indexed(s) && validate.OrZero(s.Completions) > manyCompletions && validate.OrZero(s.Parallelism) > maxOfMany {
		warnings = append(warnings, path.String()+": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "+
			"10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(warnings, validate.PodWarnings(&s.Template.Spec, &s.Template.ObjectMeta, path.Child("template"))...)
}

// jobParts sets the defaults that jobs and job templates share.
func jobParts(spec *batchv1.JobSpec) {
	if spec.PodFailurePolicy != nil {
		for i := range spec.PodFailurePolicy.Rules {
			conditions := spec.PodFailurePolicy.Rules[i].OnPodConditions
			for j := range conditions {
				defaults.Set(&conditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	defaults.PodSpec(&spec.Template.Spec)
}
