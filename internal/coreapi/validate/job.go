package validate

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What one Indexed job may be: the lists of its indexes are kept in its status.
const (
	maxIndexed        = 100_000
	manyCompletions   = 100_000
	maxOfMany         = 10_000
	maxManagerName    = 63
	indexedMode       = "Indexed"
	requiresIndexed   = "requires indexed completion mode"
	whenManyAndByEach = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"
)

func ValidateJob(j *batchv1.Job) field.ErrorList {
	errs := objectMeta(&j.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	errs = append(errs, generatedSelector(j)...)
	errs = append(errs, jobSpec(&j.Spec, field.NewPath("spec"))...)
	return append(errs, namesItsPods(j)...)
}

func ValidateJobUpdate(j, old *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	errs := jobSpec(&j.Spec, spec)
	errs = append(errs, changedCompletions(&j.Spec, &old.Spec, spec.Child("completions"))...)
	errs = append(errs, immutable(j.Spec.Selector, old.Spec.Selector, spec.Child("selector"))...)
	errs = append(errs, changedJobTemplate(&j.Spec.Template, old, spec.Child("template"))...)
	errs = append(errs, immutable(j.Spec.CompletionMode, old.Spec.CompletionMode, spec.Child("completionMode"))...)
	errs = append(errs, immutable(j.Spec.PodFailurePolicy, old.Spec.PodFailurePolicy, spec.Child("podFailurePolicy"))...)
	errs = append(errs, immutable(j.Spec.BackoffLimitPerIndex, old.Spec.BackoffLimitPerIndex, spec.Child("backoffLimitPerIndex"))...)
	errs = append(errs, immutable(j.Spec.ManagedBy, old.Spec.ManagedBy, spec.Child("managedBy"))...)
	errs = append(errs, immutable(j.Spec.SuccessPolicy, old.Spec.SuccessPolicy, spec.Child("successPolicy"))...)
	return append(errs, namesItsPods(j)...)
}

// generatedSelector finds labels that the author set to other values than the strategy would have: the job's pods would
// be another job's too.
func generatedSelector(j *batchv1.Job) field.ErrorList {
	if frozen(j.Spec.ManualSelector) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	if j.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), ""))
	}
	at := field.NewPath("spec", "template", "metadata", "labels")
	wanted := labels.Set{}
	for _, label := range []struct{ key, value string }{
		{"controller-uid", string(j.UID)}, {"job-name", j.Name},
		{batchv1.ControllerUidLabel, string(j.UID)}, {batchv1.JobNameLabel, j.Name},
	} {
		wanted[label.key] = label.value
		switch value, there := j.Spec.Template.Labels[label.key]; {
		case !there:
			errs = append(errs, field.Required(at.Key(label.key), fmt.Sprintf("must be '%s'", label.value)))
		case value != label.value:
			errs = append(errs, field.Invalid(at.Key(label.key), j.Spec.Template.Labels, fmt.Sprintf("must be '%s'", label.value)))
		}
	}
	if parsed, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !parsed.Matches(wanted) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// namesItsPods refuses an Indexed job whose pods would get host names that are none.
func namesItsPods(j *batchv1.Job) field.ErrorList {
	if !indexed(&j.Spec) || given(j.Spec.Completions) <= 0 {
		return nil
	}
	last := fmt.Sprintf("%s-%d", j.Name, *j.Spec.Completions-1)
	if len(utilvalidation.IsDNS1123Label(last)) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), j.Name,
		"will not able to create pod with invalid DNS label: "+last)}
}

func indexed(s *batchv1.JobSpec) bool {
	return s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
}

func jobSpec(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := jobContent(s, path)
	at := path.Child("selector")
	if s.Selector == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, selector(s.Selector, at)...)
	}
	if parsed, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil {
		errs = append(errs, selected(&s.Template, parsed, path.Child("template"))...)
	}
	return errs
}

// jobContent is what a job and a template of jobs have in common.
func jobContent(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := naturals(path, fieldsOf{
		"parallelism": given(s.Parallelism), "completions": given(s.Completions),
		"activeDeadlineSeconds": given(s.ActiveDeadlineSeconds), "backoffLimit": given(s.BackoffLimit),
		"ttlSecondsAfterFinished": given(s.TTLSecondsAfterFinished), "backoffLimitPerIndex": given(s.BackoffLimitPerIndex),
		"maxFailedIndexes": given(s.MaxFailedIndexes),
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
	errs = append(errs, template(&s.Template, path.Child("template"))...)
	return append(errs, ending(s, path.Child("template", "spec", "restartPolicy"))...)
}

// ending refuses pods that would start again for ever.
func ending(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch policy := s.Template.Spec.RestartPolicy; {
	case policy == "", policy == corev1.RestartPolicyAlways:
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))}
	case policy != corev1.RestartPolicyOnFailure && policy != corev1.RestartPolicyNever:
		return oneOf(policy, path, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	case s.PodFailurePolicy != nil && policy != corev1.RestartPolicyNever:
		return field.ErrorList{field.Invalid(path, policy, `only "Never" is supported when podFailurePolicy is specified`)}
	}
	return nil
}

func completionMode(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.CompletionMode != nil {
		errs = oneOf(*s.CompletionMode, path.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
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
	if n := given(s.Parallelism); n > maxIndexed {
		refuse("parallelism", int32(n), fmt.Sprintf("must be less than or equal to %d when completion mode is %s", maxIndexed, indexedMode))
	}
	if failed := s.MaxFailedIndexes; failed != nil && s.Completions != nil && *failed > *s.Completions {
		refuse("maxFailedIndexes", *failed, "must be less than or equal to completions")
	}
	if failed := s.MaxFailedIndexes; failed != nil && *failed > maxIndexed {
		refuse("maxFailedIndexes", *failed, fmt.Sprintf("must be less than or equal to %d", maxIndexed))
	}
	if given(s.Completions) <= manyCompletions || s.BackoffLimitPerIndex == nil {
		return errs
	}
	if s.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(path.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
	}
	if n := given(s.Parallelism); n > maxOfMany {
		refuse("parallelism", int32(n), whenManyAndByEach)
	}
	if n := given(s.MaxFailedIndexes); n > maxOfMany {
		refuse("maxFailedIndexes", int32(n), whenManyAndByEach)
	}
	return errs
}

// changedCompletions lets an Indexed job grow and shrink, with as many pods at once as there are indexes.
func changedCompletions(s, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if !indexed(s) {
		return immutable(s.Completions, old.Completions, path)
	}
	if s.Completions == nil || apiequality.Semantic.DeepEqual(s.Completions, old.Completions) || *s.Completions == int32(given(s.Parallelism)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *s.Completions,
		"can only be modified in tandem with "+path.Root().Child("parallelism").String())}
}

// changedJobTemplate lets a queueing controller say where the pods of a suspended job shall run, and with how much, as
// long as none does.
func changedJobTemplate(t *corev1.PodTemplateSpec, old *batchv1.Job, path *field.Path) field.ErrorList {
	suspended := frozen(old.Spec.Suspend)
	idle := old.Status.Active == 0 && (old.Status.StartTime == nil || jobIs(old, batchv1.JobSuspended))
	if !suspended || !idle {
		return immutable(t, &old.Spec.Template, path)
	}
	allowed := old.Spec.Template.DeepCopy()
	allowed.Spec.NodeSelector, allowed.Spec.Tolerations = t.Spec.NodeSelector, t.Spec.Tolerations
	allowed.Spec.SchedulingGates = t.Spec.SchedulingGates
	allowed.Annotations, allowed.Labels = t.Annotations, t.Labels
	allowed.Spec.Affinity = withNodeAffinityOf(allowed.Spec.Affinity, t.Spec.Affinity)
	takeResources(allowed.Spec.Containers, t.Spec.Containers)
	takeResources(allowed.Spec.InitContainers, t.Spec.InitContainers)
	return immutable(t.Spec, allowed.Spec, path.Child("spec"))
}

func withNodeAffinityOf(old, next *corev1.Affinity) *corev1.Affinity {
	switch {
	case old == nil && next == nil:
		return nil
	case old == nil:
		return &corev1.Affinity{NodeAffinity: next.NodeAffinity}
	case next != nil:
		old.NodeAffinity = next.NodeAffinity
		return old
	}
	old.NodeAffinity = nil
	if *old == (corev1.Affinity{}) {
		return nil
	}
	return old
}

func takeResources(to, from []corev1.Container) {
	if len(to) != len(from) {
		return
	}
	for i := range to {
		if to[i].Name == from[i].Name {
			to[i].Resources = from[i].Resources
		}
	}
}
