package batch

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"

	"portico.dev/internal/coreapi/defaults"
)

func defaultJob(j *batchv1.Job) {
	spec := &j.Spec
	// Only a job that says neither is one of a single pod: with parallelism alone it is a work queue.
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
	// The same map, as in kube-apiserver: what the strategy adds to the template's labels are then the job's too.
	if labels := spec.Template.Labels; labels != nil && len(j.Labels) == 0 {
		j.Labels = labels
	}
	jobParts(spec)
}
