package defaults

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func container(c *corev1.Container) {
	set(&c.ImagePullPolicy, pullPolicy(c.Image))
	set(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	set(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		set(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			fieldRef(from.FieldRef)
		}
	}
	milli(c.Resources.Limits)
	milli(c.Resources.Requests)
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

// hostPorts are the container's own where the pod has no network of its own.
func hostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		set(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

func probe(p *corev1.Probe) {
	if p == nil {
		return
	}
	set(&p.TimeoutSeconds, 1)
	set(&p.PeriodSeconds, 10)
	set(&p.SuccessThreshold, 1)
	set(&p.FailureThreshold, 3)
	httpGet(p.HTTPGet)
	if p.GRPC != nil {
		point(&p.GRPC.Service, "")
	}
}

func httpGet(action *corev1.HTTPGetAction) {
	if action == nil {
		return
	}
	set(&action.Path, "/")
	set(&action.Scheme, corev1.URISchemeHTTP)
}

func fieldRef(selector *corev1.ObjectFieldSelector) {
	if selector != nil {
		set(&selector.APIVersion, "v1")
	}
}

// pullPolicy pulls every time only what can change under its name: the tag latest, said or meant. A digest names one
// image for ever.
func pullPolicy(image string) corev1.PullPolicy {
	reference, _, digested := strings.Cut(image, "@")
	// A colon before the last slash belongs to the registry's port.
	_, tag, tagged := strings.Cut(reference[strings.LastIndexByte(reference, '/')+1:], ":")
	if tag == "latest" || !tagged && !digested && image != "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
