package kinds_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestBatchWorkloadDefaults(t *testing.T) {
	const in = "{metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}], resources: {limits: {cpu: 1}}}], hostNetwork: true}}"
	out := func(restart string) string {
		return "{metadata: {labels: {app: a}}, spec: {hostNetwork: true, restartPolicy: " + restart + ", dnsPolicy: ClusterFirst, schedulerName: default-scheduler, " +
			"terminationGracePeriodSeconds: 30, securityContext: {}, containers: [{name: c, image: i, imagePullPolicy: Always, terminationMessagePath: /dev/termination-log, " +
			"terminationMessagePolicy: File, ports: [{containerPort: 80, protocol: TCP}], resources: {limits: {cpu: '1'}}}]}}"
	}
	always := out("Always")
	kindtest.Defaults(t, []kindtest.Default{
		{"a job of one pod", &batchv1.Job{}, "spec: {template: " + in + "}",
			"metadata: {labels: {app: a}}\nspec: {completions: 1, parallelism: 1, backoffLimit: 6, completionMode: NonIndexed, suspend: false, manualSelector: false, podReplacementPolicy: TerminatingOrFailed, template: " + always + "}\nstatus: {}"},
		{"a queue that looks at failures", &batchv1.Job{}, "metadata: {labels: {b: c}}\nspec: {parallelism: 2, podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: T}]}]}, template: " + in + "}",
			"metadata: {labels: {b: c}}\nspec: {parallelism: 2, backoffLimit: 6, completionMode: NonIndexed, suspend: false, manualSelector: false, podReplacementPolicy: Failed, " +
				"podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: T, status: 'True'}]}]}, template: " + always + "}\nstatus: {}"},
		{"a cron job leaves its jobs to get theirs", &batchv1.CronJob{}, "spec: {schedule: '@daily', jobTemplate: {spec: {template: " + in + "}}}",
			"metadata: {}\nspec: {schedule: '@daily', concurrencyPolicy: Allow, suspend: false, successfulJobsHistoryLimit: 3, failedJobsHistoryLimit: 1, jobTemplate: {metadata: {}, spec: {template: " + always + "}}}\nstatus: {}"},
	})
}
