package coreapi

import (
	batchv1 "k8s.io/api/batch/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

func jobResource() resource {
	return resource{
		name: "jobs", singular: "job", categories: []string{"all"},
		object: &batchv1.Job{}, list: &batchv1.JobList{}, blindUpdate: true, generations: true,
		rules:    validate.Full(validate.ValidateJob, validate.ValidateJobUpdate, validate.ValidateJobStatus),
		defaults: defaults.Of(defaults.DefaultJob),
		warnings: validate.Warn(validate.WarningsOfJob),
		columns:  columns.JobColumns,
		fields:   selectable.JobFields(),
		spec:     specOf(func(o *batchv1.Job) *batchv1.JobSpec { return &o.Spec }),
		status:   statusOf(func(o *batchv1.Job) *batchv1.JobStatus { return &o.Status }), statusMeta: true,
		prepareCreate: selectOwnPods, deletion: keepDependents, warnsAgain: newGeneration,
	}
}

func cronJobResource() resource {
	return resource{
		name: "cronjobs", singular: "cronjob", shortNames: []string{"cj"}, categories: []string{"all"},
		object: &batchv1.CronJob{}, list: &batchv1.CronJobList{}, blindUpdate: true, generations: true,
		rules:    validate.Changing(validate.ValidateCronJob, validate.ValidateCronJobUpdate),
		defaults: defaults.Of(defaults.DefaultCronJob),
		warnings: validate.Warn(validate.WarningsOfCronJob),
		columns:  columns.CronJobColumns,
		spec:     specOf(func(o *batchv1.CronJob) *batchv1.CronJobSpec { return &o.Spec }),
		status:   statusOf(func(o *batchv1.CronJob) *batchv1.CronJobStatus { return &o.Status }), statusMeta: true,
		warnsAgain: newGeneration,
	}
}
