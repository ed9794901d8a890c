package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routes/v1alpha1"
)

const apiRoutesPath = "/apis/routing.portico.dev/v1alpha1/apiroutes"

// routeHops returns the hops of the group-version's APIRoute and its backends, if it has an APIRoute.
func (x *exam) routeHops(ctx context.Context) []hop {
	if !x.portico || x.object.Spec.Service == nil {
		return nil
	}
	var route v1alpha1.APIRoute
	switch err := x.api.get(ctx, apiRoutesPath+"/"+url.PathEscape(x.object.Name), &route); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return []hop{{HopRoute, func(context.Context) finding { return unknown("the APIRoute cannot be read: " + err.Error()) }}}
	}
	hops := []hop{{HopRoute, func(context.Context) finding { return x.route(&route) }}}
	for i := range route.Spec.Backends {
		if b := &route.Spec.Backends[i]; b.Service != nil {
			hops = append(hops, hop{"backend " + b.Name, func(ctx context.Context) finding { return x.routeBackend(ctx, &route, b) }})
		}
	}
	return hops
}

// route checks the status of the APIRoute.
func (x *exam) route(route *v1alpha1.APIRoute) finding {
	describe, edit := Kubectl("describe", "apiroute", route.Name), Kubectl("edit", "apiroute", route.Name)
	accepted := meta.FindStatusCondition(route.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case accepted == nil:
		return unknown("no front door has looked at the APIRoute yet")
	case accepted.Status == metav1.ConditionFalse:
		return flawed("the APIRoute has no effect ("+accepted.Reason+"): "+accepted.Message, describe, edit)
	}
	for _, rule := range route.Status.Rules {
		if c := meta.FindStatusCondition(rule.Conditions, v1alpha1.ConditionAccepted); c != nil && c.Status == metav1.ConditionFalse {
			return flawed(fmt.Sprintf("rule %s has no effect (%s): %s", rule.Name, c.Reason, c.Message),
				"# put the rule before the one that takes its requests, or delete it:", edit)
		}
	}
	for i := range route.Spec.Backends {
		b := &route.Spec.Backends[i]
		c := backendCondition(route, b.Name)
		switch {
		case b.Service != nil || c == nil || c.Status != metav1.ConditionFalse:
		case b.CustomResources != nil:
			return flawed(fmt.Sprintf("backend %s, the custom resources of %s, is not available (%s): %s", b.Name, x.gv, c.Reason, c.Message),
				Kubectl("get", "customresourcedefinitions"), describe)
		default:
			return flawed(fmt.Sprintf("backend %s, the Service of the APIService, is not available (%s): %s", b.Name, c.Reason, c.Message), describe)
		}
	}
	found := fmt.Sprintf("%d backends, %d rules", len(route.Spec.Backends), len(route.Spec.Rules))
	for _, rule := range route.Spec.Rules {
		if rule.ReadOnly {
			found += fmt.Sprintf("; rule %s refuses writes: if no migration is running, run it again, or delete the rule", rule.Name)
		}
	}
	for i := range route.Status.Rules {
		rule := &route.Status.Rules[i]
		if c := routing.RollbackOf(route, rule); c != nil { // another backend answers its requests
			found += fmt.Sprintf("; rule %s is rolled back: %s", rule.Name, c.Message)
		}
	}
	return ok(found)
}

func backendCondition(route *v1alpha1.APIRoute, name string) *metav1.Condition {
	for _, b := range route.Status.Backends {
		if b.Name == name {
			return meta.FindStatusCondition(b.Conditions, v1alpha1.ConditionAvailable)
		}
	}
	return nil
}

// routeBackend examines a backend like the Service of an APIService, up to the TLS handshake.
func (x *exam) routeBackend(ctx context.Context, route *v1alpha1.APIRoute, b *v1alpha1.APIRouteBackend) finding {
	object := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: x.object.Name}}
	object.Spec = apiregistrationv1.APIServiceSpec{
		Group: x.gv.Group, Version: cmp.Or(b.Version, x.gv.Version), CABundle: b.CABundle, InsecureSkipTLSVerify: b.InsecureSkipTLSVerify,
		Service: &apiregistrationv1.ServiceReference{Namespace: b.Service.Namespace, Name: b.Service.Name, Port: b.Service.Port},
	}
	said := backendCondition(route, b.Name)
	if said != nil {
		object.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
			Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionStatus(said.Status), Reason: said.Reason, Message: said.Message,
		}}
	}
	y := x.newExam(object, x.portico)
	y.walk(ctx, []hop{
		{HopRegistration, y.registration},
		{HopService, y.lookAtService},
		{HopEndpoints, y.endpoints},
		{HopDNS, y.dns},
		{HopTCP, y.tcp},
		{HopTLS, y.tls},
	})
	at := b.Service.Namespace + "/" + b.Service.Name
	if d := y.report.Broken; d != nil {
		return flawed(at+": "+d.Hop+": "+cmp.Or(d.Found, d.Cause), backendFixes(route.Name, b.Name, d.Mend)...).saying(d.Cause)
	}
	if said != nil && said.Status == metav1.ConditionFalse {
		return flawed(fmt.Sprintf("%s is not available (%s): %s", at, said.Reason, said.Message),
			y.inNamespace("get", "service", b.Service.Name, "-o", "wide"),
			y.inNamespace("get", "endpointslices", "-l", "kubernetes.io/service-name="+b.Service.Name, "-o", "wide"),
			Kubectl("describe", "apiroute", route.Name))
	}
	for _, h := range y.report.Hops {
		if h.State == Unknown {
			return unknown(at + ": " + h.Name + ": " + h.Found)
		}
	}
	return ok(at + " answers")
}

// backendFixes converts the commands for an APIService into commands for a backend of an APIRoute. A field that is
// patched in the APIService is an element of a list in the APIRoute.
func backendFixes(route, backend string, lines []string) []string {
	fixes, edited := make([]string, 0, len(lines)), false
	for _, line := range lines {
		if !strings.Contains(line, " apiservice ") {
			fixes = append(fixes, line)
			continue
		}
		if !edited {
			fixes = append(fixes, "# set service and caBundle of backend "+apiservice.SingleLine(backend)+":", Kubectl("edit", "apiroute", route))
			edited = true
		}
	}
	return fixes
}
