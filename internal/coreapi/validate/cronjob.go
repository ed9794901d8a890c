package validate

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxCronJobName leaves room in the name of a job, of at most 63 characters, for the time that is appended to it.
const maxCronJobName = utilvalidation.DNS1035LabelMaxLength - 11

func ValidateCronJob(c *batchv1.CronJob) field.ErrorList {
	errs := objectMeta(&c.ObjectMeta, namespaced, validation.NameIsDNSSubdomain)
	errs = append(errs, cronJobSpec(&c.Spec, nil)...)
	if len(c.Name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters"))
	}
	return errs
}

func ValidateCronJobUpdate(c, old *batchv1.CronJob) field.ErrorList {
	return cronJobSpec(&c.Spec, &old.Spec)
}

func cronJobSpec(s, old *batchv1.CronJobSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := schedule(s, old, path.Child("schedule"))
	errs = append(errs, naturals(path, fieldsOf{
		"startingDeadlineSeconds": given(s.StartingDeadlineSeconds), "successfulJobsHistoryLimit": given(s.SuccessfulJobsHistoryLimit),
		"failedJobsHistoryLimit": given(s.FailedJobsHistoryLimit),
	})...)
	if old == nil || sameText(old.TimeZone) != sameText(s.TimeZone) {
		errs = append(errs, timeZone(s.TimeZone, path.Child("timeZone"))...)
	}
	errs = append(errs, required(s.ConcurrencyPolicy, path.Child("concurrencyPolicy"), batchv1.AllowConcurrent,
		batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	job, at := &s.JobTemplate.Spec, path.Child("jobTemplate", "spec")
	errs = append(errs, jobContent(job, at)...)
	if job.Selector != nil {
		errs = append(errs, field.Invalid(at.Child("selector"), job.Selector, "`selector` will be auto-generated"))
	}
	if frozen(job.ManualSelector) {
		errs = append(errs, field.NotSupported(at.Child("manualSelector"), *job.ManualSelector, []string{"nil", "false"}))
	}
	return errs
}

// schedule allows the time zone of old schedules, which was never documented, to stay where it is.
func schedule(s, old *batchv1.CronJobSpec, path *field.Path) field.ErrorList {
	if s.Schedule == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if err := parseSchedule(s.Schedule); err != nil {
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

// zonePart is what one part of the name of a time zone is made of. It keeps a name from being a path.
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

// parseSchedule reads a schedule of cron as controllers do: five fields, or a word such as @daily, or @every and a
// duration, with an optional time zone before it.
func parseSchedule(text string) error {
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
