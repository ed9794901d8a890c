package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
)

// endpoints checks that the EndpointSlices, or the Endpoints that replace them, contain an endpoint that accepts
// requests on the port.
func (x *exam) endpoints(ctx context.Context) finding {
	switch {
	case x.service == nil:
		return unknown("the Service could not be read")
	case x.service.Spec.Type == corev1.ServiceTypeExternalName:
		return skipped("an ExternalName has none")
	}
	n := count(x.slices)
	if x.mirrored {
		n.source = "the Endpoints object " + x.service.Name
	}
	if apart := x.conditionMessage(apiservice.AvailableOnAllReplicas, "SomeReplicas"); x.problem == nil && apart != "" {
		return flawed(apart, x.inNamespace("get", "endpointslices", "-l", discoveryv1.LabelServiceName+"="+x.service.Name, "-o", "wide"))
	}
	if ejected := x.conditionMessage(apiservice.EndpointsInUse, ""); x.problem == nil && ejected != "" {
		return flawed(ejected, x.inNamespace("get", "endpointslices", "-l", discoveryv1.LabelServiceName+"="+x.service.Name, "-o", "wide"))
	}
	if x.problem == nil {
		return ok(n.String())
	}
	why, fix := x.whyNone(ctx, n)
	return broken(why, fix...).saying(x.problem.Message)
}

// conditionMessage returns the message of one of our conditions if it is False and has the given reason, if any. Otherwise it
// returns an empty string.
func (x *exam) conditionMessage(condition apiregistrationv1.APIServiceConditionType, reason string) string {
	for _, c := range x.object.Status.Conditions {
		if c.Type == condition && c.Status == apiregistrationv1.ConditionFalse && (reason == "" || c.Reason == reason) {
			return c.Message
		}
	}
	return ""
}

// endpointCount is the number of endpoints in each state. It ignores their ports.
type endpointCount struct {
	slices, ready, notReady, terminating int
	// source is the source of the endpoints, if they are not from EndpointSlices only.
	source string
}

func count(slices []*discoveryv1.EndpointSlice) endpointCount {
	n := endpointCount{slices: len(slices)}
	for _, s := range slices {
		for _, e := range s.Endpoints {
			switch c := e.Conditions; {
			case c.Terminating != nil && *c.Terminating:
				n.terminating++
			case c.Ready == nil || *c.Ready:
				n.ready++
			default:
				n.notReady++
			}
		}
	}
	return n
}

func (n endpointCount) String() string {
	return fmt.Sprintf("%d ready, %d not ready, %d terminating in %s", n.ready, n.notReady, n.terminating, cmp.Or(n.source, some(n.slices, "EndpointSlice")))
}

func (n endpointCount) none() bool { return n.ready+n.notReady+n.terminating == 0 }

// whyNone returns the reason why no endpoint accepts requests, and the fix.
func (x *exam) whyNone(ctx context.Context, n endpointCount) (string, []string) {
	name := x.service.Name
	switch {
	case n.ready > 0:
		return x.wrongPort()
	case !n.none() && x.mirrored:
		return fmt.Sprintf("%s: all addresses are in notReadyAddresses", n), []string{x.inNamespace("get", "endpoints", name, "-o", "yaml")}
	case !n.none():
		why := fmt.Sprintf("%s: no pod of the Service is ready", n)
		if pods := x.podsAt(ctx, nil); len(pods) > 0 {
			return why + ": " + pods[0].says, pods[0].look
		}
		return why, []string{x.inNamespace("get", "endpointslices", "-l", discoveryv1.LabelServiceName+"="+name, "-o", "yaml")}
	case len(x.service.Spec.Selector) == 0 && x.endpointsObject != nil:
		return x.notMirrored()
	case len(x.service.Spec.Selector) == 0:
		return "the Service has no selector, and nobody has written EndpointSlices for it",
			[]string{"# who runs the extension server outside of the cluster writes them:", x.inNamespace("get", "endpointslices", "-l", discoveryv1.LabelServiceName+"="+name)}
	}
	return x.nobodySelected(ctx)
}

// notMirrored handles unused Endpoints of a Service without a selector.
func (x *exam) notMirrored() (string, []string) {
	show := x.inNamespace("get", "endpoints", x.service.Name, "-o", "yaml")
	if len(apiservice.MirrorEndpoints(x.service, x.endpointsObject)) > 0 {
		return fmt.Sprintf("the Service has no selector, and no controller has mirrored its Endpoints object %s into EndpointSlices", x.service.Name),
			[]string{"# the endpointslice-mirroring-controller of kube-controller-manager does that; is it running?", show}
	}
	return fmt.Sprintf("the Service has no selector, and its Endpoints object %s has no addresses, or a label or annotation that excludes it", x.service.Name),
		[]string{"# no subset may be empty, the label " + discoveryv1.LabelSkipMirror + " must not be true, and it must not be that of a leader election:", show}
}

// wrongPort handles ready endpoints without the port. Controllers copy port names from the Service, so these slices
// have another origin.
func (x *exam) wrongPort() (string, []string) {
	wanted := ""
	index := 0
	for i, p := range x.service.Spec.Ports {
		if p.Port == x.port() {
			wanted, index = p.Name, i
		}
	}
	var offered []string
	for _, s := range x.slices {
		for _, p := range s.Ports {
			if p.Name != nil && p.Port != nil {
				offered = append(offered, *p.Name)
			}
		}
	}
	why := fmt.Sprintf("the Service calls port %d %q, and its EndpointSlices have ports %q", x.port(), wanted, offered)
	if x.mirrored {
		why = fmt.Sprintf("the Service calls port %d %q, and its Endpoints have ports %q", x.port(), wanted, offered)
	}
	if len(offered) == 0 {
		return why, []string{x.inNamespace("get", "endpointslices", "-l", discoveryv1.LabelServiceName+"="+x.service.Name, "-o", "yaml")}
	}
	operation := []fields{{"op": "add", "path": fmt.Sprintf("/spec/ports/%d/name", index), "value": offered[0]}}
	data := patch(operation)
	return why, []string{x.inNamespace("patch", "service", x.service.Name, "--type=json", "-p", data)}
}

// nobodySelected handles a selector that matches no pod, because pods do not exist or have other labels.
func (x *exam) nobodySelected(ctx context.Context) (string, []string) {
	ns := x.service.Namespace
	selector := labels.Set(x.service.Spec.Selector)
	var pods corev1.PodList
	if err := x.api.get(ctx, namespacePath(ns)+"/pods?"+url.Values{"labelSelector": {selector.String()}}.Encode(), &pods); err != nil {
		return "no endpoints, and the pods cannot be read: " + reading(err), []string{x.inNamespace("get", "pods", "-l", selector.String())}
	}
	if len(pods.Items) > 0 {
		why := fmt.Sprintf("the selector %s finds %s, and nobody made endpoints of them", selector, some(len(pods.Items), "pod"))
		return why, []string{x.inNamespace("describe", "pod", pods.Items[0].Name)}
	}
	var deployments appsv1.DeploymentList
	if x.api.get(ctx, "/apis/apps/v1/namespaces/"+url.PathEscape(ns)+"/deployments", &deployments) == nil {
		for _, d := range deployments.Items {
			if why, fix, found := x.deploymentFor(&d, selector); found {
				return why, fix
			}
		}
	}
	return fmt.Sprintf("no pod matches the selector %s of the Service", selector), []string{
		x.inNamespace("get", "pods", "--show-labels"),
		"# then, with the labels of the extension server's pods:",
		x.inNamespace("patch", "service", x.service.Name, "--type=merge", "-p", patch(fields{"spec": fields{"selector": fields{"LABEL": "VALUE"}}})),
	}
}

// deploymentFor reports whether a Deployment should own the missing pods, with the reason and the fix.
func (x *exam) deploymentFor(d *appsv1.Deployment, selector labels.Set) (string, []string, bool) {
	if selector.AsSelector().Matches(labels.Set(d.Spec.Template.Labels)) {
		if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			return fmt.Sprintf("no pod matches the selector: Deployment %s has 0 replicas", d.Name),
				[]string{x.inNamespace("scale", "deployment", d.Name, "--replicas=1")}, true
		}
		return fmt.Sprintf("no pod matches the selector: Deployment %s has none yet", d.Name),
			[]string{x.inNamespace("describe", "deployment", d.Name)}, true
	}
	// A Deployment with the name of the Service and other values for the same keys was probably renamed in only one
	// of the two objects.
	if d.Name != x.service.Name {
		return "", nil, false
	}
	meant := fields{}
	for key := range selector {
		value, has := d.Spec.Template.Labels[key]
		if !has {
			return "", nil, false
		}
		meant[key] = value
	}
	why := fmt.Sprintf("no pod matches the selector %s; those of Deployment %s have other labels", selector, d.Name)
	return why, []string{x.inNamespace("patch", "service", x.service.Name, "--type=merge", "-p", strings.TrimSpace(patch(fields{"spec": fields{"selector": meant}})))}, true
}
