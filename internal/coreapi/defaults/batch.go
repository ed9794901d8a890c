package defaults

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

func DefaultJob(j *batchv1.Job) {
	spec := &j.Spec
	// Only a job that says neither is one of a single pod: with parallelism alone it is a work queue.
	if spec.Completions == nil && spec.Parallelism == nil {
		point(&spec.Completions, 1)
	}
	point(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		point(&spec.BackoffLimit, math.MaxInt32)
	}
	point(&spec.BackoffLimit, jobRetries)
	point(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	point(&spec.Suspend, false)
	point(&spec.ManualSelector, false)
	if spec.PodFailurePolicy != nil {
		point(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	point(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	// The same map, as in kube-apiserver: what the strategy adds to the template's labels are then the job's too.
	if labels := spec.Template.Labels; labels != nil && len(j.Labels) == 0 {
		j.Labels = labels
	}
	jobParts(spec)
}

func DefaultCronJob(c *batchv1.CronJob) {
	set(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	point(&c.Spec.Suspend, false)
	point(&c.Spec.SuccessfulJobsHistoryLimit, successfulJobs)
	point(&c.Spec.FailedJobsHistoryLimit, failedJobs)
	jobParts(&c.Spec.JobTemplate.Spec)
}

// jobParts are the defaults of a job that is also in a template.
func jobParts(spec *batchv1.JobSpec) {
	if spec.PodFailurePolicy != nil {
		for i := range spec.PodFailurePolicy.Rules {
			conditions := spec.PodFailurePolicy.Rules[i].OnPodConditions
			for j := range conditions {
				set(&conditions[j].Status, corev1.ConditionTrue)
			}
		}
	}
	podSpec(&spec.Template.Spec)
}
