package doctor

import (
	"context"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/gateway/adoption"
	"portico.dev/internal/version"
)

// Gateway is the gateway in front of the extension server of an adopted APIService.
type Gateway struct {
	// Service is namespace/name:port.
	Service string `json:"service"`
	// BackendAvailable reports whether the gateway reaches the extension server, and FrontProxyTrusted whether the
	// extension server trusts the gateway.
	BackendAvailable  Condition `json:"backendAvailable"`
	FrontProxyTrusted Condition `json:"frontProxyTrusted"`
}

// HopTrust is the hop that checks whether the extension server trusts the gateway.
const HopTrust = "gateway trusted"

// gatewayHop returns the name of a hop between the API server and a gateway.
func gatewayHop(name string) string { return "gateway " + name }

// behindGateway reports whether the API server sends requests for an APIService to a gateway, and returns the
// original destination.
func behindGateway(o *apiregistrationv1.APIService) (adoption.Original, bool) {
	if o.Spec.Service == nil || !adoption.Adopted(o) {
		return adoption.Original{}, false
	}
	original, err := adoption.OriginalOf(o)
	return original, err == nil && original.Service != adoption.ServiceOf(o.Spec.Service)
}

// examineBehindGateway examines the path from the API server to the gateway first, and then the path from the gateway
// to the extension server.
func (d *Doctor) examineBehindGateway(ctx context.Context, o *apiregistrationv1.APIService, original adoption.Original, portico bool) *Report {
	gateway := adoption.ServiceOf(o.Spec.Service)
	front := d.newExam(o, portico)
	var hops []hop
	for _, h := range front.hops() {
		if h.name == HopIdentity {
			break // the following hops concern the extension server
		}
		hops = append(hops, hop{gatewayHop(h.name), h.look})
	}
	front.walk(ctx, hops)

	shown := o.DeepCopy()
	shown.Spec.Service, shown.Spec.CABundle, shown.Spec.InsecureSkipTLSVerify = original.Service.Reference(), original.CABundle, original.InsecureSkipTLSVerify
	behind := d.newExam(shown, portico)
	behind.report.Available = conditionOf(o, adoption.BackendAvailable)
	behind.report.Gateway = &Gateway{
		Service: gateway.String(), BackendAvailable: behind.report.Available, FrontProxyTrusted: conditionOf(o, adoption.FrontProxyTrusted),
	}
	hops = nil
	for _, h := range behind.hops() {
		if h.name == HopIdentity {
			if front.report.Broken != nil {
				break // the remaining hops need a working gateway
			}
			hops = append(hops, hop{HopTrust, behind.gatewayTrusted})
		}
		hops = append(hops, h)
	}
	behind.walk(ctx, hops)

	r := behind.report
	r.Available = front.report.Available
	r.Hops = append(front.report.Hops, r.Hops...)
	if b := front.report.Broken; b != nil {
		b.Mend = append(b.Mend, "# the way to the gateway is broken; until it is repaired, the API server can reach the extension server directly:",
			version.Program+" release "+quote(o.Name))
		r.Broken = b
	}
	return r
}

// gatewayTrusted checks the gateway's FrontProxyTrusted condition.
func (x *exam) gatewayTrusted(context.Context) finding {
	switch c := x.report.Gateway.FrontProxyTrusted; c.Status {
	case string(apiregistrationv1.ConditionTrue):
		return ok("the extension server believes the gateway's front-proxy certificate")
	case string(apiregistrationv1.ConditionFalse):
		return flawed(c.Message, x.lookAtServer())
	default:
		return unknown("the gateway has not found out whether it is believed " + c.Message)
	}
}
