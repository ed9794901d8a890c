package kinds_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"portico.dev/internal/coreapi/kinds/batch"
	"portico.dev/internal/coreapi/kinds/kindtest"
)

const endingTemplate = "{metadata: {labels: {app: a}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}"

func TestSchedules(t *testing.T) {
	for schedule, says := range map[string]string{
		"*/5 0-23/2 1,15 jan-MAR Mon": "", "@hourly": "", "@every 90s": "", "? * * * *": "", "5/15 * * * *": "",
		"* * * *": "expected exactly 5 fields, found 4: [* * * *]", "60 * * * *": "end of range (60) above maximum (59): 60",
		"* * 0 * *": "beginning of range (0) below minimum (1): 0", "5-1 * * * *": "beginning of range (5) beyond end of range (1): 5-1",
		"*/0 * * * *": "step of range should be a positive number: */0", "1-2-3 * * * *": "too many hyphens: 1-2-3", "@often": "unrecognized descriptor: @often",
		"x * * * *": `failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax`, "TZ=UTC": "a time zone without a schedule",
		"CRON_TZ=UTC 0 0 * * *": "", "@every never": `failed to parse duration @every never: time: invalid duration "never"`,
	} {
		err := batch.ParseSchedule(schedule)
		if says == "" && err != nil || says != "" && (err == nil || err.Error() != says) {
			t.Errorf("ParseSchedule(%q) error = %v, want %q (empty: no error)", schedule, err, says)
		}
	}
	cron := func(more string) *batchv1.CronJob {
		return kindtest.Decode[batchv1.CronJob](t, "metadata: {name: a, namespace: ns}\nspec: {jobTemplate: {spec: {template: "+endingTemplate+"}}, "+more+"}")
	}
	kindtest.Refuses(t, []kindtest.Create{
		{"at another place, in the old way", cron("schedule: 'TZ=UTC 0 0 * * *'"), []string{`spec.schedule: Invalid value: "TZ=UTC 0 0 * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`}},
		{"on no clock", cron("schedule: '@daily', timeZone: ../etc/passwd"), []string{`spec.timeZone: Invalid value: "../etc/passwd": unknown time zone ../etc/passwd`}},
		{"on any clock", cron("schedule: '@daily', timeZone: local"), []string{`spec.timeZone: Invalid value: "local": timeZone must be an explicit time zone...`, `spec.timeZone: Invalid value: "local": unknown time zone local`}},
		{"never, and all at once", cron("concurrencyPolicy: Race, startingDeadlineSeconds: -1"), []string{"spec.schedule: Required value",
			`spec.concurrencyPolicy: Unsupported value: "Race": supported values: "Allow", "Forbid", "Replace"`, "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0"}},
	})
}
