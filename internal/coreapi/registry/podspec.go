package registry

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DropAlphaOfPods leaves out what an object says of pods by fields of features that are alpha, and off: nobody would act
// on it, and it would begin to count with some later release. An object that another server has stored with such a field may
// keep it, and have others.
func DropAlphaOfPods(obj, old runtime.Object) {
	if job := JobSpecOf(obj); job != nil {
		if before := JobSpecOf(old); before == nil || before.Scheduling == nil {
			job.Scheduling = nil // WorkloadWithJob
		}
	}
	spec := PodSpecOf(obj)
	if spec == nil {
		return
	}
	if old != nil {
		if before := PodSpecOf(old); before != nil && (alpha{}).spec(before) {
			return
		}
	}
	alpha{drop: true}.spec(spec)
}

// JobSpecOf is the spec of the job that obj is, or makes. Nil: it makes none.
func JobSpecOf(obj runtime.Object) *batchv1.JobSpec {
	switch o := obj.(type) {
	case *batchv1.Job:
		return &o.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec
	}
	return nil
}

// PodSpecOf is the spec of the pod that obj is, or makes. Nil: it makes none.
func PodSpecOf(obj runtime.Object) *corev1.PodSpec {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *corev1.PodTemplate:
		return &o.Template.Spec
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return &o.Spec.Template.Spec
		}
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	}
	return nil
}

// alpha goes through a pod. Its methods report whether there was any field of the kind.
type alpha struct{ drop bool }

// cleared reports whether a field is set, and clears it.
func cleared[T comparable](a alpha, f *T) bool {
	var none T
	there := *f != none
	if there && a.drop {
		*f = none
	}
	return there
}

func emptied[T any](a alpha, f *[]T) bool {
	there := len(*f) > 0
	if there && a.drop {
		*f = nil
	}
	return there
}

func (a alpha) spec(s *corev1.PodSpec) bool {
	found := emptied(a, &s.EvictionResponders)      // EvictionRequestAPI
	found = cleared(a, &s.SchedulingGroup) || found // GenericWorkload
	for i := range s.InitContainers {
		found = a.container((*corev1.EphemeralContainerCommon)(&s.InitContainers[i])) || found
	}
	for i := range s.Containers {
		found = a.container((*corev1.EphemeralContainerCommon)(&s.Containers[i])) || found
	}
	for i := range s.EphemeralContainers {
		found = a.container(&s.EphemeralContainers[i].EphemeralContainerCommon) || found
	}
	for i := range s.Volumes {
		found = a.volume(&s.Volumes[i].VolumeSource) || found
	}
	return found
}

func (a alpha) container(c *corev1.EphemeralContainerCommon) bool {
	found := false
	if c.Lifecycle != nil {
		found = cleared(a, &c.Lifecycle.StopSignal) // ContainerStopSignals
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			found = h != nil && h.HTTPGet != nil && cleared(a, &h.HTTPGet.Protocol) || found
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil {
			continue
		}
		found = p.HTTPGet != nil && cleared(a, &p.HTTPGet.Protocol) || found // H2CContainerProbe
		found = p.GRPC != nil && cleared(a, &p.GRPC.Mode) || found           // GRPCContainerProbeTLS
	}
	for i := range c.VolumeMounts {
		found = emptied(a, &c.VolumeMounts[i].BindMountOptions) || found // VolumeBindMountOptions
	}
	return found
}

// volume looks for the owners of files (AtomicWriteVolumeUserFields) and the mode of a directory (EmptyDirVolumeMode).
func (a alpha) volume(v *corev1.VolumeSource) bool {
	found := false
	if v.EmptyDir != nil {
		found = cleared(a, &v.EmptyDir.Mode)
	}
	if v.Secret != nil {
		found = cleared(a, &v.Secret.DefaultUser) || found
		found = a.keys(v.Secret.Items) || found
	}
	if v.ConfigMap != nil {
		found = cleared(a, &v.ConfigMap.DefaultUser) || found
		found = a.keys(v.ConfigMap.Items) || found
	}
	if v.DownwardAPI != nil {
		found = cleared(a, &v.DownwardAPI.DefaultUser) || found
		found = a.files(v.DownwardAPI.Items) || found
	}
	if v.Projected != nil {
		found = cleared(a, &v.Projected.DefaultUser) || found
		for i := range v.Projected.Sources {
			found = a.source(&v.Projected.Sources[i]) || found
		}
	}
	return found
}

func (a alpha) source(s *corev1.VolumeProjection) bool {
	found := s.Secret != nil && a.keys(s.Secret.Items)
	found = s.ConfigMap != nil && a.keys(s.ConfigMap.Items) || found
	found = s.DownwardAPI != nil && a.files(s.DownwardAPI.Items) || found
	found = s.ServiceAccountToken != nil && cleared(a, &s.ServiceAccountToken.User) || found
	found = s.ClusterTrustBundle != nil && cleared(a, &s.ClusterTrustBundle.User) || found
	return s.PodCertificate != nil && cleared(a, &s.PodCertificate.User) || found
}

func (a alpha) keys(items []corev1.KeyToPath) bool {
	found := false
	for i := range items {
		found = cleared(a, &items[i].User) || found
	}
	return found
}

func (a alpha) files(items []corev1.DownwardAPIVolumeFile) bool {
	found := false
	for i := range items {
		found = cleared(a, &items[i].User) || found
	}
	return found
}
