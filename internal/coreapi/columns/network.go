package columns

import (
	"fmt"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

func IngressColumns() Printer {
	return show(func(i *networkingv1.Ingress, now time.Time) []any {
		class, ports := none, "80"
		if i.Spec.IngressClassName != nil {
			class = *i.Spec.IngressClassName
		}
		if len(i.Spec.TLS) > 0 {
			ports = "80, 443"
		}
		addresses := sets.New[string]()
		for _, point := range i.Status.LoadBalancer.Ingress {
			if address := orElse(point.IP, point.Hostname); address != "" {
				addresses.Insert(address)
			}
		}
		return []any{i.Name, class, ingressHosts(i.Spec.Rules), strings.Join(sets.List(addresses), ","), ports, ageOf(i, now)}
	}, name(), text("Class", "The IngressClass that has the rest of the configuration"), text("Hosts", "The hosts that there are rules for"),
		text("Address", "Where the load balancer is reached"), text("Ports", "80, and 443 where there is TLS"), age())
}

// ingressHosts lists the first hosts; what it counts as more are rules, as kube-apiserver does.
func ingressHosts(rules []networkingv1.IngressRule) string {
	var hosts []string
	for _, rule := range rules {
		if len(hosts) == shownAtMost {
			return fmt.Sprintf("%s + %d more...", strings.Join(hosts, ","), len(rules)-shownAtMost)
		}
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	return orElse(strings.Join(hosts, ","), "*")
}

func IngressClassColumns() Printer {
	return show(func(c *networkingv1.IngressClass, now time.Time) []any {
		shown, parameters := c.Name, none
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			shown += " (default)"
		}
		if p := c.Spec.Parameters; p != nil {
			parameters = p.Kind
			if p.APIGroup != nil {
				parameters += "." + *p.APIGroup
			}
			parameters += "/" + p.Name
		}
		return []any{shown, c.Spec.Controller, parameters, ageOf(c, now)}
	}, name(), text("Controller", "The controller that handles the class"), text("Parameters", "An object with more parameters"), age())
}

func NetworkPolicyColumns() Printer {
	return show(func(p *networkingv1.NetworkPolicy, now time.Time) []any {
		return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), ageOf(p, now)}
	}, name(), text("Pod-Selector", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]), age())
}

// IPAddressColumns have no age: kube-apiserver gives rows one, and no column for it.
func IPAddressColumns() Printer {
	return show(func(a *networkingv1.IPAddress, _ time.Time) []any {
		parent := none
		if ref := a.Spec.ParentRef; ref != nil {
			parent = strings.ToLower(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}.String())
			if ref.Namespace != "" {
				parent += "/" + ref.Namespace
			}
			parent += "/" + ref.Name
		}
		return []any{a.Name, parent}
	}, name(), text("ParentRef", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]))
}

func ServiceCIDRColumns() Printer {
	return show(func(c *networkingv1.ServiceCIDR, now time.Time) []any {
		return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), ageOf(c, now)}
	}, name(), text("CIDRs", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]), age())
}
