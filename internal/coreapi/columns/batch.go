package columns

import (
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func JobColumns() Printer {
	status := batchv1.JobStatus{}.SwaggerDoc()
	return show(func(j *batchv1.Job, now time.Time) []any {
		names, images := containersOf(&j.Spec.Template.Spec)
		return []any{
			j.Name, jobState(j), completions(j), jobDuration(j, now), ageOf(j, now), names, images,
			metav1.FormatLabelSelector(j.Spec.Selector),
		}
	}, name(), text("Status", "Status of the job."), text("Completions", status["succeeded"]),
		text("Duration", "Time required to complete the job."), age(), wide(containerNames()), wide(containerImages()),
		wide(text("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"])))
}

// jobState is the first that is true; a job that is being deleted may have ended before.
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

// completions says for a work queue, which has no number of completions, how many pods work on it.
func completions(j *batchv1.Job) string {
	parallelism := replicas(j.Spec.Parallelism)
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

func CronJobColumns() Printer {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return show(func(c *batchv1.CronJob, now time.Time) []any {
		last, zone, suspended := none, none, unset
		if c.Status.LastScheduleTime != nil {
			last = since(c.Status.LastScheduleTime.Time, now)
		}
		if c.Spec.TimeZone != nil {
			zone = *c.Spec.TimeZone
		}
		if c.Spec.Suspend != nil {
			suspended = trueOrFalse(*c.Spec.Suspend)
		}
		names, images := containersOf(&c.Spec.JobTemplate.Spec.Template.Spec)
		return []any{
			c.Name, c.Spec.Schedule, zone, suspended, int64(len(c.Status.Active)), last, ageOf(c, now), names, images,
			metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
		}
	}, name(), text("Schedule", spec["schedule"]), text("Timezone", spec["timeZone"]),
		metav1.TableColumnDefinition{Name: "Suspend", Type: "boolean", Description: spec["suspend"]},
		number("Active", status["active"]), text("Last Schedule", status["lastScheduleTime"]), age(),
		wide(containerNames()), wide(containerImages()), wide(text("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"])))
}

// trueOrFalse is spelt as people read it in kubectl's tables.
func trueOrFalse(value bool) string {
	text := strconv.FormatBool(value)
	return string(text[0]-'a'+'A') + text[1:]
}

func PodDisruptionBudgetColumns() Printer {
	return show(func(b *policyv1.PodDisruptionBudget, now time.Time) []any {
		return []any{
			b.Name, orNotGiven(b.Spec.MinAvailable), orNotGiven(b.Spec.MaxUnavailable), int64(b.Status.DisruptionsAllowed), ageOf(b, now),
		}
	}, name(), text("Min Available", "The minimum number of pods that must be available."),
		text("Max Unavailable", "The maximum number of pods that may be unavailable."),
		number("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."), age())
}

func orNotGiven(amount *intstr.IntOrString) string {
	if amount == nil {
		return "N/A"
	}
	return amount.String()
}
