package defaults

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// PodSpec sets the defaults shared by pods and pod templates. A template gets no other defaults, so that clients read back the
// template that they wrote.
func PodSpec(spec *corev1.PodSpec) {
	Set(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	Set(&spec.DNSPolicy, corev1.DNSClusterFirst)
	Set(&spec.SchedulerName, corev1.DefaultSchedulerName)
	Point(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	Point(&spec.SecurityContext, corev1.PodSecurityContext{})
	accountNames(spec)
	for i := range spec.InitContainers {
		container(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		container(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		container((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for i := range spec.Volumes {
		volume(&spec.Volumes[i])
	}
	Milli(spec.Overhead)
	if spec.Resources != nil {
		Milli(spec.Resources.Limits)
		Milli(spec.Resources.Requests)
	}
}

// accountNames sets the old serviceAccount field to the value of the new one, which takes precedence. Clients read either.
func accountNames(spec *corev1.PodSpec) {
	Set(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
}

func container(c *corev1.Container) {
	Set(&c.ImagePullPolicy, pullPolicy(c.Image))
	Set(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	Set(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		Set(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			fieldRef(from.FieldRef)
		}
	}
	Milli(c.Resources.Limits)
	Milli(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		probe(p)
	}
	if c.Lifecycle == nil {
		return
	}
	for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if handler != nil {
			httpGet(handler.HTTPGet)
		}
	}
}

func probe(p *corev1.Probe) {
	if p == nil {
		return
	}
	Set(&p.TimeoutSeconds, 1)
	Set(&p.PeriodSeconds, 10)
	Set(&p.SuccessThreshold, 1)
	Set(&p.FailureThreshold, 3)
	httpGet(p.HTTPGet)
	if p.GRPC != nil {
		Point(&p.GRPC.Service, "")
	}
}

func httpGet(action *corev1.HTTPGetAction) {
	if action == nil {
		return
	}
	Set(&action.Path, "/")
	Set(&action.Scheme, corev1.URISchemeHTTP)
}

func fieldRef(selector *corev1.ObjectFieldSelector) {
	if selector != nil {
		Set(&selector.APIVersion, "v1")
	}
}

// pullPolicy returns Always only for the tag latest, explicit or implied, because that tag may change. A digest always refers
// to the same image.
func pullPolicy(image string) corev1.PullPolicy {
	reference, _, digested := strings.Cut(image, "@")
	// A colon before the last slash belongs to the registry's port.
	_, tag, tagged := strings.Cut(reference[strings.LastIndexByte(reference, '/')+1:], ":")
	if tag == "latest" || !tagged && !digested && image != "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
