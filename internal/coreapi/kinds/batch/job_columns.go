package batch

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"portico.dev/internal/coreapi/columns"
)

func jobColumns() columns.Printer {
	status := batchv1.JobStatus{}.SwaggerDoc()
	return columns.Show(func(j *batchv1.Job, now time.Time) []any {
		names, images := columns.ContainersOf(&j.Spec.Template.Spec)
		return []any{
			j.Name, jobState(j), completions(j), jobDuration(j, now), columns.AgeOf(j, now), names, images,
			metav1.FormatLabelSelector(j.Spec.Selector),
		}
	}, columns.Name(), columns.Text("Status", "Status of the job."), columns.Text("Completions", status["succeeded"]),
		columns.Text("Duration", "Time required to complete the job."), columns.Age(), columns.Wide(columns.ContainerNames()), columns.Wide(columns.ContainerImages()),
		columns.Wide(columns.Text("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"])))
}

// jobState returns the first state that applies. A job that is being deleted may have finished before.
func jobState(j *batchv1.Job) string {
	is := func(wanted batchv1.JobConditionType) bool {
		for _, c := range j.Status.Conditions {
			if c.Type == wanted {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	switch {
	case is(batchv1.JobComplete):
		return "Complete"
	case is(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case is(batchv1.JobSuspended):
		return "Suspended"
	case is(batchv1.JobFailureTarget):
		return "FailureTarget"
	case is(batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

// completions returns succeeded/total. A work queue has no number of completions; its parallelism is shown instead.
func completions(j *batchv1.Job) string {
	parallelism := columns.Replicas(j.Spec.Parallelism)
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job, now time.Time) string {
	if j.Status.StartTime == nil {
		return ""
	}
	if j.Status.CompletionTime != nil {
		now = j.Status.CompletionTime.Time
	}
	return duration.HumanDuration(now.Sub(j.Status.StartTime.Time))
}
