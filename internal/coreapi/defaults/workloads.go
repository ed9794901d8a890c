package defaults

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	revisionsKept         = 10
	progressSeconds       = 600
	jobRetries            = 6
	successfulJobs        = 3
	failedJobs            = 1
	rolloutShare          = "25%"
	claimKind, claimGroup = "PersistentVolumeClaim", "v1"
)

func DefaultPodTemplate(t *corev1.PodTemplate) { podSpec(&t.Template.Spec) }

// DefaultReplicationController takes labels and selector from its template: it is from before selectors were asked for.
func DefaultReplicationController(c *corev1.ReplicationController) {
	point(&c.Spec.Replicas, 1)
	if c.Spec.Template == nil {
		return
	}
	if labels := c.Spec.Template.Labels; labels != nil {
		if len(c.Spec.Selector) == 0 {
			c.Spec.Selector = labels
		}
		if len(c.Labels) == 0 {
			c.Labels = labels
		}
	}
	podSpec(&c.Spec.Template.Spec)
}

func DefaultDeployment(d *appsv1.Deployment) {
	point(&d.Spec.Replicas, 1)
	point(&d.Spec.RevisionHistoryLimit, revisionsKept)
	point(&d.Spec.ProgressDeadlineSeconds, progressSeconds)
	strategy := &d.Spec.Strategy
	set(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		point(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		point(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString(rolloutShare))
		point(&strategy.RollingUpdate.MaxSurge, intstr.FromString(rolloutShare))
	}
	podSpec(&d.Spec.Template.Spec)
}

func DefaultReplicaSet(s *appsv1.ReplicaSet) {
	point(&s.Spec.Replicas, 1)
	podSpec(&s.Spec.Template.Spec)
}

func DefaultStatefulSet(s *appsv1.StatefulSet) {
	spec := &s.Spec
	point(&spec.Replicas, 1)
	point(&spec.RevisionHistoryLimit, revisionsKept)
	set(&spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &spec.UpdateStrategy
	if strategy.Type == "" {
		strategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		point(&strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && strategy.RollingUpdate != nil {
		point(&strategy.RollingUpdate.Partition, 0)
		point(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	point(&spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	set(&spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	set(&spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	podSpec(&spec.Template.Spec)
	for i := range spec.VolumeClaimTemplates {
		claimTemplate(&spec.VolumeClaimTemplates[i])
	}
}

// claimTemplate names the kind of an embedded claim, as kube-apiserver has since before 1.17: clients compare with it
// (kubernetes/kubernetes#87583).
func claimTemplate(c *corev1.PersistentVolumeClaim) {
	c.APIVersion, c.Kind = claimGroup, claimKind
	set(&c.Status.Phase, corev1.ClaimPending)
	point(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	milli(c.Spec.Resources.Limits)
	milli(c.Spec.Resources.Requests)
}

func DefaultDaemonSet(s *appsv1.DaemonSet) {
	point(&s.Spec.RevisionHistoryLimit, revisionsKept)
	strategy := &s.Spec.UpdateStrategy
	set(&strategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		point(&strategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		point(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		point(&strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	podSpec(&s.Spec.Template.Spec)
}
