package validate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// probe checks a probe; one success is all that it takes for those after which the container is killed or let alone.
func probe(p *corev1.Probe, once bool, grace *int64, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := handler(&corev1.LifecycleHandler{Exec: p.Exec, HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket}, p.GRPC, grace, path)
	errs = append(errs, Naturals(path, FieldsOf{
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

// handler checks what is done to a container. The first way of doing it is looked into, any other is one too many.
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
