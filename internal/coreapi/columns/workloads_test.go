package columns_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWorkloadTables(t *testing.T) {
	const template = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: i}, {name: b, image: j}]}}"
	const selector = "selector: {matchLabels: {app: web}}, " + template
	apps := func(kind string) schema.GroupKind { return schema.GroupKind{Group: appsv1.GroupName, Kind: kind} }
	golden(t, apps("Deployment"), each[appsv1.Deployment](t,
		"metadata: {name: web}\nspec: {replicas: 3, "+selector+"}\nstatus: {readyReplicas: 2, updatedReplicas: 3, availableReplicas: 2}",
		"metadata: {name: broken}\nspec: {selector: {matchExpressions: [{key: a, operator: Maybe}]}, template: {spec: {containers: null}}}")...)
	golden(t, apps("ReplicaSet"), each[appsv1.ReplicaSet](t,
		"metadata: {name: web-1}\nspec: {replicas: 3, "+selector+"}\nstatus: {replicas: 2, readyReplicas: 1}", "metadata: {name: bare}\nspec: {selector: null}\nstatus: {replicas: 0}")...)
	golden(t, apps("StatefulSet"), each[appsv1.StatefulSet](t, "metadata: {name: db}\nspec: {replicas: 3, serviceName: db, "+selector+"}\nstatus: {replicas: 3, readyReplicas: 2}")...)
	golden(t, apps("DaemonSet"), each[appsv1.DaemonSet](t, "metadata: {name: agent}\nspec: {selector: {matchLabels: {app: web}}, template: {spec: {nodeSelector: {disk: ssd}, containers: [{name: a, image: i}]}}}\n"+
		"status: {desiredNumberScheduled: 5, currentNumberScheduled: 4, numberReady: 3, updatedNumberScheduled: 2, numberAvailable: 1, numberMisscheduled: 0}")...)
	golden(t, apps("ControllerRevision"), each[appsv1.ControllerRevision](t,
		"metadata: {name: db-1, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: u, controller: true}]}\nrevision: 7", "metadata: {name: loose}\nrevision: 1")...)
	golden(t, schema.GroupKind{Kind: "PodTemplate"}, each[corev1.PodTemplate](t, "metadata: {name: web}\n"+template)...)
	golden(t, schema.GroupKind{Kind: "ReplicationController"}, each[corev1.ReplicationController](t,
		"metadata: {name: web}\nspec: {replicas: 2, selector: {app: web}, "+template+"}\nstatus: {replicas: 1}", "metadata: {name: bare}\nspec: {}\nstatus: {replicas: 0}")...)
	golden(t, schema.GroupKind{Group: policyv1.GroupName, Kind: "PodDisruptionBudget"}, each[policyv1.PodDisruptionBudget](t,
		"metadata: {name: least}\nspec: {minAvailable: 50%}\nstatus: {disruptionsAllowed: 2, currentHealthy: 0, desiredHealthy: 0, expectedPods: 0}", "metadata: {name: most}\nspec: {maxUnavailable: 1}")...)
	golden(t, schema.GroupKind{Group: autoscalingv1.GroupName, Kind: "Scale"}, each[autoscalingv1.Scale](t, "metadata: {name: web}\nspec: {replicas: 3}\nstatus: {replicas: 2}")...)
}

func TestJobTables(t *testing.T) {
	const template = "template: {spec: {containers: [{name: a, image: i}]}}"
	job := func(name, status, more string) string {
		return "metadata: {name: " + name + "}\nspec: {" + more + template + "}\nstatus: {" + status + "}"
	}
	condition := func(kind string) string { return "conditions: [{type: " + kind + ", status: 'True'}]" }
	golden(t, schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}, each[batchv1.Job](t,
		job("running", "startTime: '2026-03-04T12:00:00Z', succeeded: 1", "completions: 3, "),
		job("done", "startTime: '2026-03-04T12:00:00Z', completionTime: '2026-03-04T12:01:00Z', succeeded: 1, "+condition("Complete"), "completions: 1, selector: {matchLabels: {a: b}}, "),
		job("queue", "", "parallelism: 4, "), job("single", "", ""), job("failed", condition("Failed"), ""), job("held", condition("Suspended"), ""),
		job("failing", condition("FailureTarget"), ""), job("enough", condition("SuccessCriteriaMet"), ""),
		"metadata: {name: going, deletionTimestamp: '2026-03-04T12:00:00Z'}\nspec: {"+template+"}")...)
	golden(t, schema.GroupKind{Group: batchv1.GroupName, Kind: "CronJob"}, each[batchv1.CronJob](t,
		"metadata: {name: nightly}\nspec: {schedule: '0 3 * * *', timeZone: Europe/Berlin, suspend: false, jobTemplate: {spec: {"+template+"}}}\nstatus: {lastScheduleTime: '2026-03-04T03:00:00Z', active: [{name: x}]}",
		"metadata: {name: new}\nspec: {schedule: '@daily', jobTemplate: {spec: {"+template+"}}}")...)
}

func TestAutoscalerTable(t *testing.T) {
	hpa := func(name, metrics, current string) string {
		return "metadata: {name: " + name + "}\nspec: {minReplicas: 1, maxReplicas: 5, scaleTargetRef: {kind: Deployment, name: web}, metrics: [" + metrics + "]}\n" +
			"status: {desiredReplicas: 2, currentReplicas: 2, currentMetrics: [" + current + "]}"
	}
	const cpu = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}"
	golden(t, schema.GroupKind{Group: autoscalingv2.GroupName, Kind: "HorizontalPodAutoscaler"}, each[autoscalingv2.HorizontalPodAutoscaler](t,
		hpa("unknown", cpu, ""), hpa("cpu", cpu, "{type: Resource, resource: {name: cpu, current: {averageUtilization: 40}}}"), hpa("none", "", ""),
		hpa("memory", "{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 1Gi}}}", "{type: Resource, resource: {name: memory, current: {averageValue: 512Mi}}}"),
		hpa("pods", "{type: Pods, pods: {metric: {name: q}, target: {type: AverageValue, averageValue: 10}}}", "{type: Pods, pods: {metric: {name: q}, current: {averageValue: 7}}}"),
		hpa("object", "{type: Object, object: {metric: {name: q}, describedObject: {kind: Service, name: s}, target: {type: Value, value: 10}}}", "{type: Object, object: {metric: {name: q}, describedObject: {kind: Service, name: s}, current: {value: 7}}}"),
		hpa("outside", "{type: External, external: {metric: {name: q}, target: {type: AverageValue, averageValue: 10}}}", ""),
		hpa("container", "{type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization}}}", ""),
		hpa("many", cpu+", "+cpu+", "+cpu, ""), hpa("odd", "{type: Resource}", ""))...)
}
