package networking

import (
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/validate"
)

func ingressResource() registry.Resource {
	return registry.Resource{
		Name: "ingresses", Singular: "ingress", ShortNames: []string{"ing"},
		Object: &networkingv1.Ingress{}, List: &networkingv1.IngressList{}, Optional: true, Directory: "ingress",
		Samples: []string{
			"metadata: {name: a, namespace: ns}\n" +
				"spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}",
			"metadata: {name: b, namespace: ns}\n" +
				"spec: {ingressClassName: nginx, rules: [{host: '*.example.com', http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: 1web, port: {name: http}}}}, {pathType: ImplementationSpecific, backend: {resource: {kind: Bucket, name: b}}}]}}], tls: [{hosts: ['*.example.com'], secretName: s}]}",
		},
		Rules:      validate.WithStatus(validateIngress, validateIngressUpdate, validateIngressStatus),
		Warnings:   validate.Warn(ingressWarnings),
		Columns:    ingressColumns,
		WatchCache: true, AllowUnconditionalUpdate: true, Generations: true,
		Spec:   registry.SpecOf(func(o *networkingv1.Ingress) *networkingv1.IngressSpec { return &o.Spec }),
		Status: registry.StatusOf(func(o *networkingv1.Ingress) *networkingv1.IngressStatus { return &o.Status }), StatusChangesMetadata: true,
	}
}

func ingressColumns() columns.Printer {
	return columns.Show(func(i *networkingv1.Ingress, now time.Time) []any {
		class, ports := columns.None, "80"
		if i.Spec.IngressClassName != nil {
			class = *i.Spec.IngressClassName
		}
		if len(i.Spec.TLS) > 0 {
			ports = "80, 443"
		}
		addresses := sets.New[string]()
		for _, point := range i.Status.LoadBalancer.Ingress {
			if address := columns.OrElse(point.IP, point.Hostname); address != "" {
				addresses.Insert(address)
			}
		}
		return []any{i.Name, class, ingressHosts(i.Spec.Rules), strings.Join(sets.List(addresses), ","), ports, columns.AgeOf(i, now)}
	}, columns.Name(), columns.Text("Class", "The IngressClass that has the rest of the configuration"), columns.Text("Hosts", "The hosts that there are rules for"),
		columns.Text("Address", "Where the load balancer is reached"), columns.Text("Ports", "80, and 443 where there is TLS"), columns.Age())
}

// ingressHosts lists the first hosts. The number of further ones counts rules, as in kube-apiserver.
func ingressHosts(rules []networkingv1.IngressRule) string {
	var hosts []string
	for _, rule := range rules {
		if len(hosts) == columns.ShownAtMost {
			return fmt.Sprintf("%s + %d more...", strings.Join(hosts, ","), len(rules)-columns.ShownAtMost)
		}
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	return columns.OrElse(strings.Join(hosts, ","), "*")
}

func validateIngress(i *networkingv1.Ingress) field.ErrorList {
	errs := ingressRules(i, tolerated{})
	value, set := i.Annotations[deprecatedClassAnnotation]
	if set && i.Spec.IngressClassName != nil && *i.Spec.IngressClassName != value {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(deprecatedClassAnnotation), value,
			"must match `ingressClassName` when both are specified"))
	}
	return errs
}

// tolerated describes faults of the stored object. An update may keep them, so that the rest of the object remains editable.
type tolerated struct {
	secretNames, wildcardRules bool
}

func validateIngressUpdate(i, old *networkingv1.Ingress) field.ErrorList {
	var let tolerated
	for _, tls := range old.Spec.TLS {
		let.secretNames = let.secretNames || len(secretName(tls.SecretName, nil)) > 0
	}
	for _, rule := range old.Spec.Rules {
		wildcard := strings.Contains(rule.Host, "*")
		let.wildcardRules = let.wildcardRules || wildcard && len(httpRule(rule.HTTP, nil)) > 0
	}
	return ingressRules(i, let)
}

func ingressRules(i *networkingv1.Ingress, let tolerated) field.ErrorList {
	errs := validate.ObjectMeta(&i.ObjectMeta, validate.Namespaced, validation.NameIsDNSSubdomain)
	spec := field.NewPath("spec")
	if len(i.Spec.Rules) == 0 && i.Spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(spec, i.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if i.Spec.DefaultBackend != nil {
		errs = append(errs, ingressBackend(i.Spec.DefaultBackend, spec.Child("defaultBackend"))...)
	}
	for n, rule := range i.Spec.Rules {
		at := spec.Child("rules").Index(n)
		errs = append(errs, ingressHost(rule.Host, at.Child("host"))...)
		if !strings.Contains(rule.Host, "*") || !let.wildcardRules {
			errs = append(errs, httpRule(rule.HTTP, at.Child("http"))...)
		}
	}
	for n, tls := range i.Spec.TLS {
		at := spec.Child("tls").Index(n)
		errs = append(errs, validate.EachValue(tls.Hosts, at.Child("hosts"), dnsOrWildcard)...)
		if !let.secretNames {
			errs = append(errs, secretName(tls.SecretName, at.Child("secretName"))...)
		}
	}
	if class := i.Spec.IngressClassName; class != nil {
		errs = append(errs, validate.DnsSubdomain(*class, spec.Child("ingressClassName"))...)
	}
	return errs
}

func secretName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	return validate.DnsSubdomain(name, path)
}

func ingressHost(host string, path *field.Path) field.ErrorList {
	if host == "" {
		return nil
	}
	var errs field.ErrorList
	if netutils.ParseIPSloppy(host) != nil {
		errs = append(errs, field.Invalid(path, host, "must be a DNS name, not an IP address"))
	}
	return append(errs, dnsOrWildcard(host, path)...)
}

func dnsOrWildcard(host string, path *field.Path) field.ErrorList {
	if strings.Contains(host, "*") {
		return validate.Invalid(path, host, utilvalidation.IsWildcardDNS1123Subdomain(host))
	}
	return validate.DnsSubdomain(host, path)
}

func httpRule(rule *networkingv1.HTTPIngressRuleValue, path *field.Path) field.ErrorList {
	if rule == nil {
		return nil
	}
	var errs field.ErrorList
	if len(rule.Paths) == 0 {
		errs = append(errs, field.Required(path.Child("paths"), ""))
	}
	return append(errs, validate.Each(rule.Paths, path.Child("paths"), httpPath)...)
}

func httpPath(p *networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	errs := validate.OneOf(*p.PathType, path.Child("pathType"), networkingv1.PathTypeExact,
		networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	at := path.Child("path")
	literal := *p.PathType == networkingv1.PathTypeExact || *p.PathType == networkingv1.PathTypePrefix
	if (literal || p.Path != "" && len(errs) == 0) && !strings.HasPrefix(p.Path, "/") {
		errs = append(errs, field.Invalid(at, p.Path, "must be an absolute path"))
	}
	if literal {
		errs = append(errs, plainPath(p.Path, at)...)
	}
	return append(errs, ingressBackend(&p.Backend, path.Child("backend"))...)
}

// plainPath refuses sequences that ingress controllers normalize in different ways, because their routing would differ.
func plainPath(value string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, sequence := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(value, sequence) {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("must not contain '%s'", sequence)))
		}
	}
	for _, end := range []string{"/..", "/."} {
		if strings.HasSuffix(value, end) {
			errs = append(errs, field.Invalid(path, value, fmt.Sprintf("cannot end with '%s'", end)))
		}
	}
	return errs
}

func ingressBackend(b *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return localReference(b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name, path.Child("resource"))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
	}
	errs := validate.RequiredName(b.Service.Name, path.Child("service", "name"))
	if b.Service.Name != "" {
		errs = validate.DnsLabel(b.Service.Name, path.Child("service", "name"))
	}
	switch port := b.Service.Port; {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, validate.Invalid(path.Child("service", "port", "name"), port.Name, utilvalidation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		errs = append(errs, validate.PortNumber(port.Number, path.Child("service", "port", "number"))...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

func validateIngressStatus(i, old *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	var stored []string
	for _, point := range old.Status.LoadBalancer.Ingress {
		stored = append(stored, point.IP)
	}
	stored = slices.DeleteFunc(stored, func(ip string) bool { return ip == "" })
	for n, point := range i.Status.LoadBalancer.Ingress {
		at := field.NewPath("status", "loadBalancer", "ingress").Index(n)
		if point.IP != "" {
			errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Child("ip"), point.IP, true, stored)...)
		}
		if point.Hostname == "" {
			continue
		}
		errs = append(errs, validate.DnsSubdomain(point.Hostname, at.Child("hostname"))...)
		if netutils.ParseIPSloppy(point.Hostname) != nil {
			errs = append(errs, field.Invalid(at.Child("hostname"), point.Hostname, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}

// deprecatedClassAnnotation contains the class in objects that are older than the field.
const deprecatedClassAnnotation = "kubernetes.io/ingress.class"

func ingressWarnings(i *networkingv1.Ingress) []string {
	if _, set := i.Annotations[deprecatedClassAnnotation]; set && i.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", deprecatedClassAnnotation)}
	}
	return nil
}
