package defaults_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestWorkloadDefaults(t *testing.T) {
	const in = "{metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}], resources: {limits: {cpu: 1}}}], hostNetwork: true}}"
	out := func(restart string) string {
		return "{metadata: {labels: {app: a}}, spec: {hostNetwork: true, restartPolicy: " + restart + ", dnsPolicy: ClusterFirst, schedulerName: default-scheduler, " +
			"terminationGracePeriodSeconds: 30, securityContext: {}, containers: [{name: c, image: i, imagePullPolicy: Always, terminationMessagePath: /dev/termination-log, " +
			"terminationMessagePolicy: File, ports: [{containerPort: 80, protocol: TCP}], resources: {limits: {cpu: '1'}}}]}}"
	}
	always := out("Always")
	for _, c := range []struct {
		situation string
		obj       runtime.Object
		in, want  string
	}{
		{"a template leaves to its pods what only pods get", &corev1.PodTemplate{}, "template: " + in, "metadata: {}\ntemplate: " + always},
		{"a deployment rolls", &appsv1.Deployment{}, "spec: {selector: null, template: " + in + "}",
			"metadata: {}\nspec: {replicas: 1, revisionHistoryLimit: 10, progressDeadlineSeconds: 600, selector: null, strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 25%, maxSurge: 25%}}, template: " + always + "}\nstatus: {}"},
		{"a deployment that starts anew", &appsv1.Deployment{}, "spec: {replicas: 0, selector: null, strategy: {type: Recreate}, template: " + in + "}",
			"metadata: {}\nspec: {replicas: 0, revisionHistoryLimit: 10, progressDeadlineSeconds: 600, selector: null, strategy: {type: Recreate}, template: " + always + "}\nstatus: {}"},
		{"a replica set", &appsv1.ReplicaSet{}, "spec: {selector: null, template: " + in + "}", "metadata: {}\nspec: {replicas: 1, selector: null, template: " + always + "}\nstatus: {replicas: 0}"},
		{"a stateful set names the kind of its claims", &appsv1.StatefulSet{}, "spec: {selector: null, serviceName: '', template: " + in + ", volumeClaimTemplates: [{metadata: {name: d}}]}",
			"metadata: {}\nspec: {replicas: 1, revisionHistoryLimit: 10, selector: null, serviceName: '', podManagementPolicy: OrderedReady, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0, maxUnavailable: 1}}, " +
				"persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}, template: " + always + ", volumeClaimTemplates: [{apiVersion: v1, kind: PersistentVolumeClaim, " +
				"metadata: {name: d}, spec: {volumeMode: Filesystem, resources: {}}, status: {phase: Pending}}]}\nstatus: {replicas: 0, availableReplicas: 0}"},
		{"a daemon set", &appsv1.DaemonSet{}, "spec: {selector: null, template: " + in + "}",
			"metadata: {}\nspec: {revisionHistoryLimit: 10, selector: null, updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}, template: " + always +
				"}\nstatus: {currentNumberScheduled: 0, desiredNumberScheduled: 0, numberMisscheduled: 0, numberReady: 0}"},
		{"a replication controller is labelled and selects as its template", &corev1.ReplicationController{}, "spec: {template: " + in + "}",
			"metadata: {labels: {app: a}}\nspec: {replicas: 1, selector: {app: a}, template: " + always + "}\nstatus: {replicas: 0}"},
		{"a job of one pod", &batchv1.Job{}, "spec: {template: " + in + "}",
			"metadata: {labels: {app: a}}\nspec: {completions: 1, parallelism: 1, backoffLimit: 6, completionMode: NonIndexed, suspend: false, manualSelector: false, podReplacementPolicy: TerminatingOrFailed, template: " + always + "}\nstatus: {}"},
		{"a queue that looks at failures", &batchv1.Job{}, "metadata: {labels: {b: c}}\nspec: {parallelism: 2, podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: T}]}]}, template: " + in + "}",
			"metadata: {labels: {b: c}}\nspec: {parallelism: 2, backoffLimit: 6, completionMode: NonIndexed, suspend: false, manualSelector: false, podReplacementPolicy: Failed, " +
				"podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: T, status: 'True'}]}]}, template: " + always + "}\nstatus: {}"},
		{"a cron job leaves its jobs to get theirs", &batchv1.CronJob{}, "spec: {schedule: '@daily', jobTemplate: {spec: {template: " + in + "}}}",
			"metadata: {}\nspec: {schedule: '@daily', concurrencyPolicy: Allow, suspend: false, successfulJobsHistoryLimit: 3, failedJobsHistoryLimit: 1, jobTemplate: {metadata: {}, spec: {template: " + always + "}}}\nstatus: {}"},
		{"an autoscaler without metrics", &autoscalingv2.HorizontalPodAutoscaler{}, "spec: {behavior: {scaleUp: {stabilizationWindowSeconds: 5}}}",
			"metadata: {}\nspec: {minReplicas: 1, maxReplicas: 0, scaleTargetRef: {kind: '', name: ''}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}], behavior: " +
				"{scaleUp: {stabilizationWindowSeconds: 5, selectPolicy: Max, policies: [{type: Pods, value: 4, periodSeconds: 15}, {type: Percent, value: 100, periodSeconds: 15}]}, " +
				"scaleDown: {selectPolicy: Max, policies: [{type: Percent, value: 100, periodSeconds: 15}]}}}\nstatus: {desiredReplicas: 0, currentMetrics: null}"},
		{"an autoscaler of v1 gets its target when it is converted", &autoscalingv1.HorizontalPodAutoscaler{}, "spec: {maxReplicas: 2}",
			"metadata: {}\nspec: {minReplicas: 1, maxReplicas: 2, scaleTargetRef: {kind: '', name: ''}}\nstatus: {currentReplicas: 0, desiredReplicas: 0}"},
	} {
		t.Run(c.situation, func(t *testing.T) { fill(t, c.obj, c.in, c.want) })
	}
}
