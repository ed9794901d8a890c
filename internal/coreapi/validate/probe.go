package validate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// probe checks a probe; one success is all that it takes for those after which the container is killed or let alone.
func probe(p *corev1.Probe, once bool, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := probeHandler(&p.ProbeHandler, path)
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds}, {"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		errs = append(errs, validation.ValidateNonnegativeField(int64(f.value), path.Child(f.name))...)
	}
	if once && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	if g := p.TerminationGracePeriodSeconds; g != nil && !once {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *g, "must not be set for readinessProbes"))
	} else if g != nil && *g <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *g, "must be greater than 0"))
	}
	return errs
}

func probeHandler(h *corev1.ProbeHandler, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch pointersSet(*h) {
	case 0:
		return field.ErrorList{field.Required(path, "must specify a handler type")}
	case 1:
	default:
		return field.ErrorList{field.Forbidden(path, "may not specify more than 1 handler type")}
	}
	switch {
	case h.Exec != nil && len(h.Exec.Command) == 0:
		errs = append(errs, field.Required(path.Child("exec", "command"), ""))
	case h.HTTPGet != nil:
		at := path.Child("httpGet")
		if h.HTTPGet.Path == "" {
			errs = append(errs, field.Required(at.Child("path"), ""))
		}
		errs = append(errs, portOrName(h.HTTPGet.Port, at.Child("port"))...)
		errs = append(errs, oneOf(h.HTTPGet.Scheme, at.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	case h.TCPSocket != nil:
		errs = append(errs, portOrName(h.TCPSocket.Port, path.Child("tcpSocket", "port"))...)
	case h.GRPC != nil:
		errs = append(errs, portNumber(h.GRPC.Port, path.Child("grpc", "port"))...)
	}
	return errs
}
