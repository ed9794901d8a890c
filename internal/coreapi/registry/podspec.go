package registry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PodSpec locates the pod spec in objects of a kind that is, or creates, pods.
type PodSpec struct {
	// Of returns nil if an object has none.
	Of   func(obj runtime.Object) *corev1.PodSpec
	Path *field.Path
}

// PodSpecOf describes the pod spec that of returns, and its path.
func PodSpecOf[T runtime.Object](of func(T) *corev1.PodSpec, path ...string) *PodSpec {
	return &PodSpec{Of: func(obj runtime.Object) *corev1.PodSpec { return of(obj.(T)) }, Path: field.NewPath(path[0], path[1:]...)}
}

// PodTemplate describes a pod spec at spec.template.spec, as in most kinds that create pods.
func PodTemplate[T runtime.Object](of func(T) *corev1.PodTemplateSpec) *PodSpec {
	return PodSpecOf(func(obj T) *corev1.PodSpec {
		if template := of(obj); template != nil {
			return &template.Spec
		}
		return nil
	}, "spec", "template", "spec")
}

// Privileged returns errors for privileged containers in pods and pod templates if --allow-privileged is false. As in
// kube-apiserver, the old object is not considered, so existing objects with privileged containers cannot be updated.
func (s Strategy) Privileged(obj runtime.Object) field.ErrorList {
	if s.Resource.PodSpec == nil || !s.Environment.DenyPrivileged {
		return nil
	}
	spec, at := s.Resource.PodSpec.Of(obj), s.Resource.PodSpec.Path
	if spec == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(c *corev1.SecurityContext, at *field.Path) {
		if c != nil && c.Privileged != nil && *c.Privileged {
			errs = append(errs, field.Forbidden(at.Child("securityContext", "privileged"), "disallowed by cluster policy"))
		}
	}
	for i := range spec.Containers {
		check(spec.Containers[i].SecurityContext, at.Child("containers").Index(i))
	}
	for i := range spec.InitContainers {
		check(spec.InitContainers[i].SecurityContext, at.Child("initContainers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		check(spec.EphemeralContainers[i].SecurityContext, at.Child("ephemeralContainers").Index(i))
	}
	return errs
}

// DropAlphaFields clears the fields of a pod spec that belong to alpha features, which are off. No component would act on them,
// and they could take effect in a later release. If another server has stored an object with such a field, the object may keep
// it and get others.
func (s Strategy) DropAlphaFields(obj, old runtime.Object) {
	if s.Resource.PodSpec == nil {
		return
	}
	spec := s.Resource.PodSpec.Of(obj)
	if spec == nil {
		return
	}
	if old != nil {
		if before := s.Resource.PodSpec.Of(old); before != nil && (alpha{}).spec(before) {
			return
		}
	}
	alpha{drop: true}.spec(spec)
}

// alpha visits a pod spec. Its methods report whether any field of an alpha feature was set.
type alpha struct{ drop bool }

// cleared reports whether a field is set, and clears it if a.drop is set.
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

// volume checks the owners of files (AtomicWriteVolumeUserFields) and the mode of a directory (EmptyDirVolumeMode).
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
