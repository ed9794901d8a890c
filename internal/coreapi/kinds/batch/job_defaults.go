package batch

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"

	"portico.dev/internal/coreapi/defaults"
)

func defaultJob(j *batchv1.Job) {
	spec := &j.Spec
	// A job without either field runs a single pod. With parallelism alone it is a work queue.
	if spec.Completions == nil && spec.Parallelism == nil {
		defaults.Point(&spec.Completions, 1)
	}
	defaults.Point(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		defaults.Point(&spec.BackoffLimit, math.MaxInt32)
	}
	defaults.Point(&spec.BackoffLimit, defaults.JobRetries)
	defaults.Point(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	defaults.Point(&spec.Suspend, false)
	defaults.Point(&spec.ManualSelector, false)
	if spec.PodFailurePolicy != nil {
		defaults.Point(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	defaults.Point(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	// The map is shared, as in kube-apiserver, so labels that the strategy adds to the template are added to the job too.
	if labels := spec.Template.Labels; labels != nil && len(j.Labels) == 0 {
		j.Labels = labels
	}
	jobParts(spec)
}
