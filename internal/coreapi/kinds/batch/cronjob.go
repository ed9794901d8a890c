package batch

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

//lint:file-ignore SA1019 these rules warn about deprecated fields

func cronJobResource() registry.Resource {
	return registry.Resource{
		Name: "cronjobs", Singular: "cronjob", ShortNames: []string{"cj"}, Categories: []string{"all"},
		Object: &batchv1.CronJob{}, List: &batchv1.CronJobList{}, AllowUnconditionalUpdate: true, Generations: true,
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {schedule: '@daily', jobTemplate: {spec: {template: {metadata: {labels: {app: a}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}",
		},
		Rules:    validate.OnUpdate(validateCronJob, validateCronJobUpdate).CheckFinalizers(),
		Defaults: defaults.Of(defaultCronJob),
		Warnings: validate.Warn(warningsOfCronJob),
		Columns:  cronJobColumns,
		Spec:     registry.SpecOf(func(o *batchv1.CronJob) *batchv1.CronJobSpec { return &o.Spec }),
		Status:   registry.StatusOf(func(o *batchv1.CronJob) *batchv1.CronJobStatus { return &o.Status }), StatusChangesMetadata: true,
		WarnOnUpdate:  registry.NewGeneration,
		PrepareCreate: func(obj runtime.Object) { dropScheduling(&obj.(*batchv1.CronJob).Spec.JobTemplate.Spec, nil) },
		PrepareUpdate: func(obj, old runtime.Object) {
			dropScheduling(&obj.(*batchv1.CronJob).Spec.JobTemplate.Spec, &old.(*batchv1.CronJob).Spec.JobTemplate.Spec)
		},
		PodSpec: registry.PodSpecOf(func(o *batchv1.CronJob) *corev1.PodSpec { return &o.Spec.JobTemplate.Spec.Template.Spec },
			"spec", "jobTemplate", "spec", "template", "spec"),
	}
}

func cronJobColumns() columns.Printer {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return columns.Show(func(c *batchv1.CronJob, now time.Time) []any {
		last, zone, suspended := columns.None, columns.None, columns.Unset
		if c.Status.LastScheduleTime != nil {
			last = columns.Since(c.Status.LastScheduleTime.Time, now)
		}
		if c.Spec.TimeZone != nil {
			zone = *c.Spec.TimeZone
		}
		if c.Spec.Suspend != nil {
			suspended = trueOrFalse(*c.Spec.Suspend)
		}
		names, images := columns.ContainersOf(&c.Spec.JobTemplate.Spec.Template.Spec)
		return []any{
			c.Name, c.Spec.Schedule, zone, suspended, int64(len(c.Status.Active)), last, columns.AgeOf(c, now), names, images,
			metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
		}
	}, columns.Name(), columns.Text("Schedule", spec["schedule"]), columns.Text("Timezone", spec["timeZone"]),
		metav1.TableColumnDefinition{Name: "Suspend", Type: "boolean", Description: spec["suspend"]},
		columns.Number("Active", status["active"]), columns.Text("Last Schedule", status["lastScheduleTime"]), columns.Age(),
		columns.Wide(columns.ContainerNames()), columns.Wide(columns.ContainerImages()), columns.Wide(columns.Text("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"])))
}

// trueOrFalse returns True or False, as in kubectl's tables.
func trueOrFalse(value bool) string {
	text := strconv.FormatBool(value)
	return string(text[0]-'a'+'A') + text[1:]
}

func defaultCronJob(c *batchv1.CronJob) {
	defaults.Set(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	defaults.Point(&c.Spec.Suspend, false)
	defaults.Point(&c.Spec.SuccessfulJobsHistoryLimit, defaults.SuccessfulJobs)
	defaults.Point(&c.Spec.FailedJobsHistoryLimit, defaults.FailedJobs)
	jobParts(&c.Spec.JobTemplate.Spec)
}

// cronField is one field of a schedule: its bounds, and the names of its numbers if they have any.
type cronField struct {
	least, most int
	names       []string // names of the numbers from least upwards
}

func cronFields() []cronField {
	return []cronField{
		{0, 59, nil}, {0, 23, nil}, {1, 31, nil},
		{1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
		{0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
	}
}

// parse parses one item of the list in a field: *, n or n-m, each with an optional /step. The error messages are robfig/cron's,
// which kube-apiserver and the controllers use.
func (f cronField) parse(item string) error {
	parts := strings.Split(item, "/")
	ends := strings.Split(parts[0], "-")
	first, last := f.least, f.most
	star := ends[0] == "*" || ends[0] == "?"
	if !star {
		var err error
		if first, err = f.number(ends[0]); err != nil {
			return err
		}
		last = first
		switch len(ends) {
		case 1:
		case 2:
			if last, err = f.number(ends[1]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("too many hyphens: %s", item)
		}
	}
	step := 1
	switch len(parts) {
	case 1:
	case 2:
		var err error
		if step, err = cronNumber(parts[1]); err != nil {
			return err
		}
		if !star && len(ends) == 1 {
			last = f.most
		}
	default:
		return fmt.Errorf("too many slashes: %s", item)
	}
	switch {
	case first < f.least:
		return fmt.Errorf("beginning of range (%d) below minimum (%d): %s", first, f.least, item)
	case last > f.most:
		return fmt.Errorf("end of range (%d) above maximum (%d): %s", last, f.most, item)
	case first > last:
		return fmt.Errorf("beginning of range (%d) beyond end of range (%d): %s", first, last, item)
	case step == 0:
		return fmt.Errorf("step of range should be a positive number: %s", item)
	}
	return nil
}

func (f cronField) number(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.least + i, nil
		}
	}
	return cronNumber(text)
}

func cronNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("failed to parse int from %s: %w", text, err)
	}
	if n < 0 {
		return 0, fmt.Errorf("negative number (%d) not allowed: %s", n, text)
	}
	return n, nil
}

// maxCronJobName leaves room for the timestamp that is appended to form the name of a job, which has at most 63 characters.
const maxCronJobName = utilvalidation.DNS1035LabelMaxLength - 11

func validateCronJob(c *batchv1.CronJob) field.ErrorList {
	errs := validate.ObjectMeta(&c.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	errs = append(errs, cronJobSpec(&c.Spec, nil)...)
	if len(c.Name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters"))
	}
	return errs
}

func validateCronJobUpdate(c, old *batchv1.CronJob) field.ErrorList {
	return cronJobSpec(&c.Spec, &old.Spec)
}

func cronJobSpec(s, old *batchv1.CronJobSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := schedule(s, old, path.Child("schedule"))
	errs = append(errs, validate.NonNegative(path, validate.NamedNumbers{
		"startingDeadlineSeconds": validate.OrZero(s.StartingDeadlineSeconds), "successfulJobsHistoryLimit": validate.OrZero(s.SuccessfulJobsHistoryLimit),
		"failedJobsHistoryLimit": validate.OrZero(s.FailedJobsHistoryLimit),
	})...)
	if old == nil || sameText(old.TimeZone) != sameText(s.TimeZone) {
		errs = append(errs, timeZone(s.TimeZone, path.Child("timeZone"))...)
	}
	errs = append(errs, validate.Required(s.ConcurrencyPolicy, path.Child("concurrencyPolicy"), batchv1.AllowConcurrent,
		batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	job, at := &s.JobTemplate.Spec, path.Child("jobTemplate", "spec")
	errs = append(errs, jobContent(job, at)...)
	if job.Selector != nil {
		errs = append(errs, field.Invalid(at.Child("selector"), job.Selector, "`selector` will be auto-generated"))
	}
	if validate.IsTrue(job.ManualSelector) {
		errs = append(errs, field.NotSupported(at.Child("manualSelector"), *job.ManualSelector, []string{"nil", "false"}))
	}
	return errs
}

// schedule tolerates the undocumented time zone in the schedule of an object that already has one.
func schedule(s, old *batchv1.CronJobSpec, path *field.Path) field.ErrorList {
	if s.Schedule == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if err := ParseSchedule(s.Schedule); err != nil {
		errs = append(errs, field.Invalid(path, s.Schedule, err.Error()))
	}
	if !strings.Contains(s.Schedule, "TZ") {
		return errs
	}
	switch had := old != nil && strings.Contains(old.Schedule, "TZ"); {
	case !had:
		errs = append(errs, field.Invalid(path, s.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	case s.TimeZone != nil:
		errs = append(errs, field.Invalid(path, s.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	}
	return errs
}

// zonePart matches one segment of a time zone name. It excludes names that are file paths.
var zonePart = regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)

func timeZone(name *string, path *field.Path) field.ErrorList {
	switch {
	case name == nil:
		return nil
	case *name == "":
		return field.ErrorList{field.Invalid(path, *name, "timeZone must be nil or non-empty string")}
	}
	for _, part := range strings.Split(*name, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zonePart.MatchString(part) {
			return field.ErrorList{field.Invalid(path, *name, "unknown time zone "+*name)}
		}
	}
	var errs field.ErrorList
	if strings.EqualFold(*name, "Local") {
		errs = append(errs, field.Invalid(path, *name, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(*name); err != nil {
		errs = append(errs, field.Invalid(path, *name, err.Error()))
	}
	return errs
}

// ParseSchedule parses a cron schedule as the controllers do: five fields, or a descriptor such as @daily, or @every and a
// duration, with an optional time zone before it.
func ParseSchedule(text string) error {
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		zone, rest, found := strings.Cut(text, " ")
		if !found {
			return errors.New("a time zone without a schedule")
		}
		_, name, _ := strings.Cut(zone, "=")
		if _, err := time.LoadLocation(name); err != nil {
			return fmt.Errorf("provided bad location %s: %w", name, err)
		}
		text = strings.TrimSpace(rest)
	}
	if strings.HasPrefix(text, "@") {
		return parseDescriptor(text)
	}
	fields := strings.Fields(text)
	if len(fields) != len(cronFields()) {
		return fmt.Errorf("expected exactly %d fields, found %d: %v", len(cronFields()), len(fields), fields)
	}
	for i, f := range cronFields() {
		for _, part := range strings.FieldsFunc(fields[i], func(r rune) bool { return r == ',' }) {
			if err := f.parse(part); err != nil {
				return err
			}
		}
	}
	return nil
}

func parseDescriptor(text string) error {
	switch text {
	case "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly":
		return nil
	}
	every, found := strings.CutPrefix(text, "@every ")
	if !found {
		return fmt.Errorf("unrecognized descriptor: %s", text)
	}
	if _, err := time.ParseDuration(every); err != nil {
		return fmt.Errorf("failed to parse duration %s: %w", text, err)
	}
	return nil
}

func warningsOfCronJob(o *batchv1.CronJob) []string {
	return append(validate.NameWarning(o.Name, validate.InPods), jobWarnings(&o.Spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec"))...)
}
