package validate

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// workloadRulesOf is the table of contents of what makes pods, or scales and protects what makes them.
func workloadRulesOf(obj runtime.Object) (ruleset, bool) {
	switch obj.(type) {
	case *corev1.PodTemplate:
		return changing(podTemplate, podTemplateUpdate), true
	case *corev1.ReplicationController:
		return full(replicationController, replicationControllerUpdate, replicationControllerStatus), true
	case *appsv1.Deployment:
		return full(deployment, deploymentUpdate, deploymentStatus), true
	case *appsv1.ReplicaSet:
		return full(replicaSet, replicaSetUpdate, replicaSetStatus), true
	case *appsv1.StatefulSet:
		return full(statefulSet, statefulSetUpdate, statefulSetStatus), true
	case *appsv1.DaemonSet:
		return full(daemonSet, daemonSetUpdate, daemonSetStatus), true
	case *appsv1.ControllerRevision:
		return changing(controllerRevision, controllerRevisionUpdate), true
	case *batchv1.Job:
		return full(job, jobUpdate, jobStatus), true
	case *batchv1.CronJob:
		return changing(cronJob, cronJobUpdate), true
	case *autoscalingv2.HorizontalPodAutoscaler:
		return full(autoscaler, autoscalerUpdate, autoscalerStatus), true
	case *policyv1.PodDisruptionBudget:
		return full(disruptionBudget, disruptionBudgetUpdate, disruptionBudgetStatus), true
	}
	return ruleset{}, false
}
