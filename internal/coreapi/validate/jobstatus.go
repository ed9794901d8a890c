package validate

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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

// ValidateJobStatus holds controllers from elsewhere (spec.managedBy) to what users of jobs count on: an end is final, and says
// when and why. What a write does not change is not held against it, so that an older status can be mended step by step.
func ValidateJobStatus(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("status")
	errs := naturals(path, fieldsOf{
		"active": int64(j.Status.Active), "succeeded": int64(j.Status.Succeeded), "failed": int64(j.Status.Failed),
		"ready": given(j.Status.Ready), "terminating": given(j.Status.Terminating),
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

// sameText makes an absent text different from an empty one.
func sameText(text *string) any {
	if text == nil {
		return nil
	}
	return *text
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
	emptyAndSuspended := frozen(j.Spec.Suspend) && j.Spec.Completions != nil && *j.Spec.Completions == 0
	if (finishedChanged || started) && !emptyAndSuspended && start == nil && finished {
		errs = append(errs, field.Required(path.Child("startTime"), "startTime is required for finished job"))
	}
	// kubernetes/kubernetes#134521: the controller says that a job runs again after the user has said so.
	resuming := jobIs(old, batchv1.JobSuspended) && jobCondition(j, batchv1.JobSuspended) == corev1.ConditionFalse
	if started && !resuming && old.Status.StartTime != nil && !frozen(j.Spec.Suspend) {
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
	if (finishedChanged || given(s.Terminating) != given(before.Terminating)) && given(s.Terminating) > 0 && finished {
		errs = append(errs, field.Invalid(path.Child("terminating"), *s.Terminating, "terminating>0 is invalid for finished job"))
	}
	if (given(s.Ready) != given(before.Ready) || s.Active != before.Active) && given(s.Ready) > int64(s.Active) {
		errs = append(errs, field.Invalid(path.Child("ready"), int32(given(s.Ready)), "cannot set more ready pods than active"))
	}
	pods := s.UncountedTerminatedPods
	if (finishedChanged || !apiequality.Semantic.DeepEqual(pods, before.UncountedTerminatedPods)) && finished && pods != nil &&
		len(pods.Failed)+len(pods.Succeeded) > 0 {
		errs = append(errs, field.Invalid(path.Child("uncountedTerminatedPods"), pods, "must be empty for finished job"))
	}
	if s.Failed < before.Failed {
		errs = append(errs, field.Invalid(path.Child("failed"), s.Failed, "cannot decrease the failed counter"))
	}
	// An Indexed job with a pod for every index can be made smaller.
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
	limit := int32(given(j.Spec.Completions))
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
