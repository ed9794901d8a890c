package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

func validateJob(j *batchv1.Job) field.ErrorList {
	errs := validate.ObjectMeta(&j.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	errs = append(errs, generatedSelector(j)...)
	errs = append(errs, jobSpec(&j.Spec, field.NewPath("spec"))...)
	return append(errs, namesItsPods(j)...)
}

func validateJobUpdate(j, old *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	errs := jobSpec(&j.Spec, spec)
	errs = append(errs, changedCompletions(&j.Spec, &old.Spec, spec.Child("completions"))...)
	errs = append(errs, validate.Immutable(j.Spec.Selector, old.Spec.Selector, spec.Child("selector"))...)
	errs = append(errs, changedJobTemplate(&j.Spec.Template, old, spec.Child("template"))...)
	errs = append(errs, validate.Immutable(j.Spec.CompletionMode, old.Spec.CompletionMode, spec.Child("completionMode"))...)
	errs = append(errs, validate.Immutable(j.Spec.PodFailurePolicy, old.Spec.PodFailurePolicy, spec.Child("podFailurePolicy"))...)
	errs = append(errs, validate.Immutable(j.Spec.BackoffLimitPerIndex, old.Spec.BackoffLimitPerIndex, spec.Child("backoffLimitPerIndex"))...)
	errs = append(errs, validate.Immutable(j.Spec.ManagedBy, old.Spec.ManagedBy, spec.Child("managedBy"))...)
	errs = append(errs, validate.Immutable(j.Spec.SuccessPolicy, old.Spec.SuccessPolicy, spec.Child("successPolicy"))...)
	return append(errs, namesItsPods(j)...)
}

// generatedSelector refuses labels that differ from the ones that the strategy generates: with them the job's pods could belong
// to another job too.
func generatedSelector(j *batchv1.Job) field.ErrorList {
	if validate.IsTrue(j.Spec.ManualSelector) || j.Spec.Selector == nil {
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

// namesItsPods refuses an Indexed job if its pods would get invalid host names.
func namesItsPods(j *batchv1.Job) field.ErrorList {
	if !indexed(&j.Spec) || validate.OrZero(j.Spec.Completions) <= 0 {
		return nil
	}
	last := fmt.Sprintf("%s-%d", j.Name, *j.Spec.Completions-1)
	if len(utilvalidation.IsDNS1123Label(last)) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), j.Name,
		"will not able to create pod with invalid DNS label: "+last)}
}

func jobSpec(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := jobContent(s, path)
	at := path.Child("selector")
	if s.Selector == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validate.Selector(s.Selector, at)...)
	}
	if parsed, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil {
		errs = append(errs, validate.LabelsMatch(&s.Template, parsed, path.Child("template"))...)
	}
	return errs
}

// changedCompletions lets an Indexed job change completions if the new value equals parallelism.
func changedCompletions(s, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if !indexed(s) {
		return validate.Immutable(s.Completions, old.Completions, path)
	}
	if s.Completions == nil || apiequality.Semantic.DeepEqual(s.Completions, old.Completions) || *s.Completions == int32(validate.OrZero(s.Parallelism)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *s.Completions,
		"can only be modified in tandem with "+path.Root().Child("parallelism").String())}
}

// changedJobTemplate lets a queueing controller change the node selection and the resources of the pods of a suspended job that
// has no active pods.
func changedJobTemplate(t *corev1.PodTemplateSpec, old *batchv1.Job, path *field.Path) field.ErrorList {
	suspended := validate.IsTrue(old.Spec.Suspend)
	idle := old.Status.Active == 0 && (old.Status.StartTime == nil || jobIs(old, batchv1.JobSuspended))
	if !suspended || !idle {
		return validate.Immutable(t, &old.Spec.Template, path)
	}
	allowed := old.Spec.Template.DeepCopy()
	allowed.Spec.NodeSelector, allowed.Spec.Tolerations = t.Spec.NodeSelector, t.Spec.Tolerations
	allowed.Spec.SchedulingGates = t.Spec.SchedulingGates
	allowed.Annotations, allowed.Labels = t.Annotations, t.Labels
	allowed.Spec.Affinity = withNodeAffinityOf(allowed.Spec.Affinity, t.Spec.Affinity)
	takeResources(allowed.Spec.Containers, t.Spec.Containers)
	takeResources(allowed.Spec.InitContainers, t.Spec.InitContainers)
	return validate.Immutable(t.Spec, allowed.Spec, path.Child("spec"))
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

// overlap returns the first index that is in both lists. Both lists are sorted.
func overlap(a, b []indexRange) (index int32, found bool) {
	for len(a) > 0 && len(b) > 0 {
		if a[0].first <= b[0].last && b[0].first <= a[0].last {
			return max(a[0].first, b[0].first), true
		}
		if a[0].first <= b[0].first {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return 0, false
}

func jobIs(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	return jobCondition(j, kind) == corev1.ConditionTrue
}

func jobCondition(j *batchv1.Job, kind batchv1.JobConditionType) corev1.ConditionStatus {
	for _, c := range j.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func jobFinished(j *batchv1.Job) bool {
	return jobIs(j, batchv1.JobComplete) || jobIs(j, batchv1.JobFailed)
}

// validateJobStatus checks the status that external controllers (spec.managedBy) write against the guarantees to users of jobs:
// a finished state is final, and has a time and a reason. Violations in parts that a write does not change are tolerated, so
// that an older status can be repaired step by step.
func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("status")
	errs := validate.NonNegative(path, validate.NamedNumbers{
		"active": int64(j.Status.Active), "succeeded": int64(j.Status.Succeeded), "failed": int64(j.Status.Failed),
		"ready": validate.OrZero(j.Status.Ready), "terminating": validate.OrZero(j.Status.Terminating),
	})
	errs = append(errs, uncounted(j.Status.UncountedTerminatedPods, path.Child("uncountedTerminatedPods"))...)
	errs = append(errs, jobConditions(j, old, path.Child("conditions"))...)
	errs = append(errs, jobTimes(j, old, path)...)
	errs = append(errs, jobCounts(j, old, path)...)
	return append(errs, jobIndexes(j, old, path)...)
}

func uncounted(pods *batchv1.UncountedTerminatedPods, path *field.Path) field.ErrorList {
	if pods == nil {
		return nil
	}
	var errs field.ErrorList
	seen := sets.New[types.UID]()
	for _, list := range []struct {
		name string
		uids []types.UID
	}{{"succeeded", pods.Succeeded}, {"failed", pods.Failed}} {
		for i, uid := range list.uids {
			at := path.Child(list.name).Index(i)
			switch {
			case uid == "":
				errs = append(errs, field.Invalid(at, uid, "must not be empty"))
			case seen.Has(uid):
				errs = append(errs, field.Duplicate(at, uid))
			}
			seen.Insert(uid)
		}
	}
	return errs
}

func jobConditions(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(bad bool, why string) {
		if bad {
			errs = append(errs, field.Invalid(path, field.OmitValueType{}, why))
		}
	}
	changed := func(kind batchv1.JobConditionType) bool { return jobIs(j, kind) != jobIs(old, kind) }
	complete, failed := jobIs(j, batchv1.JobComplete), jobIs(j, batchv1.JobFailed)
	failing, succeeding := jobIs(j, batchv1.JobFailureTarget), jobIs(j, batchv1.JobSuccessCriteriaMet)
	completeChanged, failedChanged := changed(batchv1.JobComplete), changed(batchv1.JobFailed)

	refuse((completeChanged || failedChanged) && complete && failed, "cannot set Complete=True and Failed=true conditions")
	refuse((completeChanged || changed(batchv1.JobFailureTarget)) && complete && failing,
		"cannot set Complete=True and FailureTarget=true conditions")
	refuse((failedChanged || sameText(j.Status.FailedIndexes) != sameText(old.Status.FailedIndexes)) && failed && !failing,
		"cannot set Failed=True condition without the FailureTarget=true condition")
	refuse((completeChanged || changed(batchv1.JobSuccessCriteriaMet)) && complete && !succeeding,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	refuse(succeeding && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	refuse(succeeding && failing, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	refuse(j.Spec.SuccessPolicy != nil && !succeeding && complete,
		"cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	for _, final := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		refuse(jobIs(old, final) && !jobIs(j, final), fmt.Sprintf("cannot disable the terminal %s=True condition", final))
	}
	refuse(jobIs(old, batchv1.JobSuccessCriteriaMet) && !succeeding, "cannot disable the SuccessCriteriaMet=True condition")
	refuse(jobIs(old, batchv1.JobComplete) && !jobIs(old, batchv1.JobSuccessCriteriaMet) && succeeding,
		"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	return errs
}

func jobTimes(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	start, end := j.Status.StartTime, j.Status.CompletionTime
	started := !start.Equal(old.Status.StartTime)
	ended := !end.Equal(old.Status.CompletionTime)
	complete, finished := jobIs(j, batchv1.JobComplete), jobFinished(j)
	completeChanged, finishedChanged := complete != jobIs(old, batchv1.JobComplete), finished != jobFinished(old)
	if completeChanged || ended {
		switch {
		case end != nil && !complete:
			errs = append(errs, field.Invalid(path.Child("completionTime"), end, "cannot set completionTime when there is no Complete=True condition"))
		case end == nil && complete:
			errs = append(errs, field.Required(path.Child("completionTime"), "completionTime is required for Complete jobs"))
		}
	}
	if (started || ended) && start != nil && end != nil && end.Before(start) {
		errs = append(errs, field.Invalid(path.Child("completionTime"), end, "must be equal to or after `startTime`"))
	}
	if end != nil && old.Status.CompletionTime != nil && ended {
		errs = append(errs, field.Invalid(path.Child("completionTime"), end, "field is immutable"))
	}
	emptyAndSuspended := validate.IsTrue(j.Spec.Suspend) && j.Spec.Completions != nil && *j.Spec.Completions == 0
	if (finishedChanged || started) && !emptyAndSuspended && start == nil && finished {
		errs = append(errs, field.Required(path.Child("startTime"), "startTime is required for finished job"))
	}
	// kubernetes/kubernetes#134521: the controller marks a job as resumed after the user has resumed it.
	resuming := jobIs(old, batchv1.JobSuspended) && jobCondition(j, batchv1.JobSuspended) == corev1.ConditionFalse
	if started && !resuming && old.Status.StartTime != nil && !validate.IsTrue(j.Spec.Suspend) {
		errs = append(errs, field.Invalid(path.Child("startTime"), start, "field is immutable for unsuspended job once set"))
	}
	return errs
}

func jobCounts(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	s, before := &j.Status, &old.Status
	finished := jobFinished(j)
	finishedChanged := finished != jobFinished(old)
	if (finishedChanged || s.Active != before.Active) && s.Active > 0 && finished {
		errs = append(errs, field.Invalid(path.Child("active"), s.Active, "active>0 is invalid for finished job"))
	}
	if (finishedChanged || validate.OrZero(s.Terminating) != validate.OrZero(before.Terminating)) && validate.OrZero(s.Terminating) > 0 && finished {
		errs = append(errs, field.Invalid(path.Child("terminating"), *s.Terminating, "terminating>0 is invalid for finished job"))
	}
	if (validate.OrZero(s.Ready) != validate.OrZero(before.Ready) || s.Active != before.Active) && validate.OrZero(s.Ready) > int64(s.Active) {
		errs = append(errs, field.Invalid(path.Child("ready"), int32(validate.OrZero(s.Ready)), "cannot set more ready pods than active"))
	}
	pods := s.UncountedTerminatedPods
	if (finishedChanged || !apiequality.Semantic.DeepEqual(pods, before.UncountedTerminatedPods)) && finished && pods != nil &&
		len(pods.Failed)+len(pods.Succeeded) > 0 {
		errs = append(errs, field.Invalid(path.Child("uncountedTerminatedPods"), pods, "must be empty for finished job"))
	}
	if s.Failed < before.Failed {
		errs = append(errs, field.Invalid(path.Child("failed"), s.Failed, "cannot decrease the failed counter"))
	}
	// An Indexed job with equal completions and parallelism can be scaled down.
	elastic := indexed(&j.Spec) && apiequality.Semantic.DeepEqual(j.Spec.Completions, j.Spec.Parallelism)
	if !elastic && s.Succeeded < before.Succeeded {
		errs = append(errs, field.Invalid(path.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter"))
	}
	return errs
}

func jobIndexes(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	completed, failed := j.Status.CompletedIndexes, j.Status.FailedIndexes
	completedChanged := completed != old.Status.CompletedIndexes
	failedChanged := sameText(failed) != sameText(old.Status.FailedIndexes)
	limit := int32(validate.OrZero(j.Spec.Completions))
	if completedChanged && j.Spec.Completions != nil {
		if _, err := parseIndexes(completed, limit); err != nil {
			errs = append(errs, field.Invalid(path.Child("completedIndexes"), completed, "error parsing completedIndexes: "+err.Error()))
		}
	}
	if completedChanged && completed != "" && !indexed(&j.Spec) {
		errs = append(errs, field.Invalid(path.Child("completedIndexes"), completed,
			"cannot set non-empty completedIndexes when non-indexed completion mode"))
	}
	if failed == nil {
		return errs
	}
	at := path.Child("failedIndexes")
	if failedChanged && j.Spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(at, *failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
	}
	if j.Spec.Completions == nil {
		return errs
	}
	bad, err := parseIndexes(*failed, limit)
	if failedChanged && j.Spec.BackoffLimitPerIndex != nil && err != nil {
		errs = append(errs, field.Invalid(at, *failed, "error parsing failedIndexes: "+err.Error()))
	}
	if good, err := parseIndexes(completed, limit); err == nil && (completedChanged || failedChanged) {
		if index, both := overlap(good, bad); both {
			errs = append(errs, field.Invalid(at, *failed, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", index)))
		}
	}
	return errs
}

func warningsOfJob(o *batchv1.Job) []string {
	return append(validate.NameWarning(o.Name, validate.InPods), jobWarnings(&o.Spec, field.NewPath("spec"))...)
}
