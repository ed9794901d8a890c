package validate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxExitCodes is the maximum number of exit codes in a restart rule of a container.
const maxExitCodes = 255

func (p *podScope) containers(path *field.Path) field.ErrorList {
	list := p.spec.Containers
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range list {
		c, at := &list[i], path.Index(i)
		errs = append(errs, p.container(c, at)...)
		errs = append(errs, newName(names, c.Name, at)...)
		errs = append(errs, p.longRunning(c, at)...)
		errs = append(errs, containerRestarts(c, at)...)
		if p.spec.HostNetwork {
			errs = append(errs, p.portsOfHost(c.Ports, at.Child("ports"))...)
		}
	}
	return append(errs, hostPorts(list, path)...)
}

func (p *podScope) initContainers(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for _, c := range p.spec.Containers {
		names.Insert(c.Name)
	}
	for i := range p.spec.InitContainers {
		c, at := &p.spec.InitContainers[i], path.Index(i)
		errs = append(errs, p.container(c, at)...)
		errs = append(errs, newName(names, c.Name, at)...)
		errs = append(errs, containerRestarts(c, at)...)
		errs = append(errs, hostPorts(p.spec.InitContainers[i:i+1], path)...) // init containers run one by one
		if sidecar(c) {
			errs = append(errs, p.longRunning(c, at)...)
			continue
		}
		for name, set := range map[string]bool{
			"lifecycle": c.Lifecycle != nil, "livenessProbe": c.LivenessProbe != nil,
			"readinessProbe": c.ReadinessProbe != nil, "startupProbe": c.StartupProbe != nil,
		} {
			if set {
				errs = append(errs, field.Forbidden(at.Child(name), "may not be set for init containers without restartPolicy=Always"))
			}
		}
		for j, policy := range c.ResizePolicy {
			if policy.RestartPolicy == corev1.RestartContainer {
				errs = append(errs, field.Invalid(at.Child("resizePolicy").Index(j).Child("restartPolicy"), policy.RestartPolicy,
					"must not be set to 'RestartContainer' for non-sidecar initContainers"))
			}
		}
	}
	return errs
}

func newName(names sets.Set[string], name string, path *field.Path) field.ErrorList {
	if names.Has(name) {
		return field.ErrorList{field.Duplicate(path.Child("name"), name)}
	}
	if name != "" {
		names.Insert(name)
	}
	return nil
}

// sidecar reports whether an init container keeps running.
func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// container checks the fields that all kinds of containers have in common.
func (p *podScope) container(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, DnsLabel(c.Name, path.Child("name"))...)
	}
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(path.Child("image"), ""))
	case p.meta != nil && strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, Required(c.ImagePullPolicy, path.Child("imagePullPolicy"), corev1.PullAlways,
		corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, Required(c.TerminationMessagePolicy, path.Child("terminationMessagePolicy"),
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, containerPorts(c.Ports, path.Child("ports"))...)
	errs = append(errs, environment(c.Env, path.Child("env"))...)
	errs = append(errs, environmentFrom(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, p.mounts(c, path.Child("volumeMounts"))...)
	errs = append(errs, p.devices(c, path.Child("volumeDevices"))...)
	errs = append(errs, containerResources(&c.Resources, p.claims, path.Child("resources"))...)
	errs = append(errs, resizePolicies(c.ResizePolicy, p.spec.RestartPolicy, path.Child("resizePolicy"))...)
	return append(errs, containerSecurity(c.SecurityContext, p.spec.HostUsers == nil || *p.spec.HostUsers, path.Child("securityContext"))...)
}

// longRunning checks probes and lifecycle hooks, which only containers that keep running may have.
func (p *podScope) longRunning(c *corev1.Container, path *field.Path) field.ErrorList {
	grace := p.spec.TerminationGracePeriodSeconds
	errs := lifecycle(c.Lifecycle, grace, p.spec.OS, path.Child("lifecycle"))
	errs = append(errs, probe(c.LivenessProbe, true, grace, path.Child("livenessProbe"))...)
	errs = append(errs, probe(c.StartupProbe, true, grace, path.Child("startupProbe"))...)
	return append(errs, probe(c.ReadinessProbe, false, grace, path.Child("readinessProbe"))...)
}

// ephemeralAllows contains the fields that an ephemeral container may have. New fields are refused until they are added.
var ephemeralAllows = sets.New("Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
	"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")

func (p *podScope) ephemeralContainers(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	others := sets.New[string]()
	for _, list := range [][]corev1.Container{p.spec.Containers, p.spec.InitContainers} {
		for _, c := range list {
			others.Insert(c.Name)
		}
	}
	names := others.Clone()
	for i := range p.spec.EphemeralContainers {
		e, at := &p.spec.EphemeralContainers[i], path.Index(i)
		errs = append(errs, p.container((*corev1.Container)(&e.EphemeralContainerCommon), at)...)
		errs = append(errs, newName(names, e.Name, at)...)
		if e.TargetContainerName != "" && !others.Has(e.TargetContainerName) {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), e.TargetContainerName))
		}
		errs = append(errs, onlyFields(e.EphemeralContainerCommon, ephemeralAllows, "cannot be set for an Ephemeral Container", at)...)
		for j, mount := range e.VolumeMounts {
			for name, set := range map[string]bool{"subPath": mount.SubPath != "", "subPathExpr": mount.SubPathExpr != ""} {
				if set {
					errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(j).Child(name), "cannot be set for an Ephemeral Container"))
				}
			}
		}
	}
	return errs
}

// onlyFields forbids all fields of a struct that are set and not in allowed.
func onlyFields(value any, allowed sets.Set[string], why string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for f, member := range reflect.ValueOf(value).Fields() {
		if !allowed.Has(f.Name) && !member.IsZero() {
			errs = append(errs, field.Forbidden(path.Child(strings.ToLower(f.Name[:1])+f.Name[1:]), why))
		}
	}
	return errs
}

func containerPorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			bad := Invalid(at.Child("name"), p.Name, utilvalidation.IsValidPortName(p.Name))
			if errs = append(errs, bad...); len(bad) == 0 {
				errs = append(errs, newName(names, p.Name, at)...)
			}
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, PortNumber(p.ContainerPort, at.Child("containerPort"))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, PortNumber(p.HostPort, at.Child("hostPort"))...)
		}
		errs = append(errs, Protocol(p.Protocol, at.Child("protocol"))...)
	}
	return errs
}

// portsOfHost requires host ports to equal container ports on the host's network. A template may omit them, because its pods
// get the default.
func (p *podScope) portsOfHost(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, port := range ports {
		if (p.meta != nil || port.HostPort != 0) && port.HostPort != port.ContainerPort {
			errs = append(errs, field.Invalid(path.Index(i).Child("hostPort"), port.HostPort,
				"must match `containerPort` when `hostNetwork` is true"))
		}
	}
	return errs
}

// hostPorts refuses containers that require the same host port, because the pod could not start on any node.
func hostPorts(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := sets.New[string]()
	for i, c := range containers {
		for j, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if taken.Has(key) {
				errs = append(errs, field.Duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			taken.Insert(key)
		}
	}
	return errs
}

const maxRestartRules = 20

// containerRestarts checks the container's own restart policy and rules.
func containerRestarts(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case c.RestartPolicy != nil:
		errs = OneOf(*c.RestartPolicy, path.Child("restartPolicy"), corev1.ContainerRestartPolicyAlways,
			corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	case len(c.RestartPolicyRules) > 0:
		errs = append(errs, field.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	rules := path.Child("restartPolicyRules")
	if len(c.RestartPolicyRules) > maxRestartRules {
		errs = append(errs, field.TooMany(rules, len(c.RestartPolicyRules), maxRestartRules))
	}
	for i, rule := range c.RestartPolicyRules {
		at := rules.Index(i)
		errs = append(errs, OneOf(rule.Action, at.Child("action"), corev1.ContainerRestartRuleActionRestart,
			corev1.ContainerRestartRuleActionRestartAllContainers)...)
		if rule.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, OneOf(rule.ExitCodes.Operator, at.Child("exitCodes", "operator"),
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(rule.ExitCodes.Values); n > maxExitCodes {
			errs = append(errs, field.TooMany(at.Child("exitCodes", "values"), n, maxExitCodes))
		}
	}
	return errs
}

func resizePolicies(list []corev1.ContainerResizePolicy, restarts corev1.RestartPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range list {
		if slices.ContainsFunc(list[:i], func(o corev1.ContainerResizePolicy) bool { return o.ResourceName == p.ResourceName }) {
			errs = append(errs, field.Duplicate(path.Index(i), p.ResourceName))
		}
		errs = append(errs, Required(p.ResourceName, path, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, Required(p.RestartPolicy, path, corev1.NotRequired, corev1.RestartContainer)...)
		if restarts == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			errs = append(errs, field.Invalid(path, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// probe checks a probe. once requires a success threshold of 1, as for liveness and startup probes.
func probe(p *corev1.Probe, once bool, grace *int64, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := handler(&corev1.LifecycleHandler{Exec: p.Exec, HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket}, p.GRPC, grace, path)
	errs = append(errs, NonNegative(path, NamedNumbers{
		"initialDelaySeconds": int64(p.InitialDelaySeconds), "timeoutSeconds": int64(p.TimeoutSeconds),
		"periodSeconds": int64(p.PeriodSeconds), "successThreshold": int64(p.SuccessThreshold), "failureThreshold": int64(p.FailureThreshold),
	})...)
	if once && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	g := p.TerminationGracePeriodSeconds
	if g != nil && *g <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *g, "must be greater than 0"))
	}
	if g != nil && !once {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *g, "must not be set for readinessProbes"))
	}
	return errs
}

func lifecycle(l *corev1.Lifecycle, grace *int64, os *corev1.PodOS, path *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	var errs field.ErrorList
	if l.PostStart != nil {
		errs = append(errs, handler(l.PostStart, nil, grace, path.Child("postStart"))...)
	}
	if l.PreStop != nil {
		errs = append(errs, handler(l.PreStop, nil, grace, path.Child("preStop"))...)
	}
	if l.StopSignal != nil && os == nil {
		errs = append(errs, field.Forbidden(path.Child("stopSignal"), "may not be set for containers with empty `spec.os.name`"))
	}
	return errs
}

// handler checks the action of a hook or probe. It checks the first action in detail and refuses any further one.
func handler(h *corev1.LifecycleHandler, grpc *corev1.GRPCAction, grace *int64, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	way := func(name string, given bool, check func(*field.Path) field.ErrorList) {
		switch {
		case !given:
		case found:
			errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 handler type"))
		default:
			found = true
			errs = append(errs, check(path.Child(name))...)
		}
	}
	way("exec", h.Exec != nil, func(at *field.Path) field.ErrorList {
		if len(h.Exec.Command) == 0 {
			return field.ErrorList{field.Required(at.Child("command"), "")}
		}
		return nil
	})
	way("httpGet", h.HTTPGet != nil, func(at *field.Path) field.ErrorList { return httpGet(h.HTTPGet, at) })
	way("tcpSocket", h.TCPSocket != nil, func(at *field.Path) field.ErrorList { return PortOrName(h.TCPSocket.Port, at.Child("port")) })
	way("grpc", grpc != nil, func(at *field.Path) field.ErrorList { return PortNumber(grpc.Port, at.Child("port")) })
	way("sleep", h.Sleep != nil, func(at *field.Path) field.ErrorList {
		if grace != nil && (h.Sleep.Seconds < 0 || h.Sleep.Seconds > *grace) {
			return field.ErrorList{field.Invalid(at, h.Sleep.Seconds,
				fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))}
		}
		return nil
	})
	if !found {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	return errs
}

func httpGet(g *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if g.Path == "" {
		errs = append(errs, field.Required(path.Child("path"), ""))
	}
	errs = append(errs, PortOrName(g.Port, path.Child("port"))...)
	errs = append(errs, OneOf(g.Scheme, path.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, header := range g.HTTPHeaders {
		errs = append(errs, Invalid(path.Child("httpHeaders"), header.Name, utilvalidation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}
