package kinds_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestJobTables(t *testing.T) {
	const template = "template: {spec: {containers: [{name: a, image: i}]}}"
	job := func(name, status, more string) string {
		return "metadata: {name: " + name + "}\nspec: {" + more + template + "}\nstatus: {" + status + "}"
	}
	condition := func(kind string) string { return "conditions: [{type: " + kind + ", status: 'True'}]" }
	kindtest.Table[batchv1.Job](t,
		job("running", "startTime: '2026-03-04T12:00:00Z', succeeded: 1", "completions: 3, "),
		job("done", "startTime: '2026-03-04T12:00:00Z', completionTime: '2026-03-04T12:01:00Z', succeeded: 1, "+condition("Complete"), "completions: 1, selector: {matchLabels: {a: b}}, "),
		job("queue", "", "parallelism: 4, "), job("single", "", ""), job("failed", condition("Failed"), ""), job("held", condition("Suspended"), ""),
		job("failing", condition("FailureTarget"), ""), job("enough", condition("SuccessCriteriaMet"), ""),
		"metadata: {name: going, deletionTimestamp: '2026-03-04T12:00:00Z'}\nspec: {"+template+"}")
	kindtest.Table[batchv1.CronJob](t,
		"metadata: {name: nightly}\nspec: {schedule: '0 3 * * *', timeZone: Europe/Berlin, suspend: false, jobTemplate: {spec: {"+template+"}}}\nstatus: {lastScheduleTime: '2026-03-04T03:00:00Z', active: [{name: x}]}",
		"metadata: {name: new}\nspec: {schedule: '@daily', jobTemplate: {spec: {"+template+"}}}")
}
