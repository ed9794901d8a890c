package coreapi

import batchv1 "k8s.io/api/batch/v1"

func batchResources() []resource {
	return []resource{
		{
			name: "jobs", singular: "job", categories: []string{"all"},
			object: &batchv1.Job{}, list: &batchv1.JobList{}, blindUpdate: true, generations: true,
			spec:   specOf(func(o *batchv1.Job) *batchv1.JobSpec { return &o.Spec }),
			status: statusOf(func(o *batchv1.Job) *batchv1.JobStatus { return &o.Status }), statusMeta: true,
			prepareCreate: selectOwnPods, deletion: keepDependents, warnsAgain: newGeneration,
		},
		{
			name: "cronjobs", singular: "cronjob", shortNames: []string{"cj"}, categories: []string{"all"},
			object: &batchv1.CronJob{}, list: &batchv1.CronJobList{}, blindUpdate: true, generations: true,
			spec:   specOf(func(o *batchv1.CronJob) *batchv1.CronJobSpec { return &o.Spec }),
			status: statusOf(func(o *batchv1.CronJob) *batchv1.CronJobStatus { return &o.Status }), statusMeta: true,
			warnsAgain: newGeneration,
		},
	}
}
