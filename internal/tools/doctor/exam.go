package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// exam is the examination of one APIService. It collects facts, and the hops add to them.
type exam struct {
	*Doctor
	object  *apiregistrationv1.APIService
	gv      schema.GroupVersion
	report  *Report
	portico bool

	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
	// endpointsObject is the Endpoints of a Service without a selector for which no EndpointSlice has the port, nil
	// if there is none. mirrored is true if slices were derived from it, because the front door uses it.
	//lint:ignore SA1019 deprecated, and still written for Services without selector
	endpointsObject *corev1.Endpoints
	mirrored        bool
	// spec is the destination of the Service; nil if it is not known
	spec *transport.Spec
	// problem is the condition that explains a missing destination
	problem *apiregistrationv1.APIServiceCondition
	// dialled lists the endpoints that accepted a connection from this machine
	dialled []string
	// seen is the result of a handshake with the backend; nil if this machine could not complete one
	seen *pki.Inspection
	// probed is the backend's response to a request from this machine; nil before the request
	probed *answer
	// words is the API server's view of the backend
	words clientView
	// resources of the group-version
	resources []resource
	// fromFrontDoor is an error that only a front door behind the API server can send, or nil
	fromFrontDoor *metav1.Status
	// denied is true if the API server does not permit the caller to list the resources
	denied bool
}

// hop is one step of the examination.
type hop struct {
	name string
	look func(context.Context) finding
}

func (d *Doctor) examine(ctx context.Context, object *apiregistrationv1.APIService, portico bool) *Report {
	if original, behind := behindGateway(object); behind {
		return d.examineBehindGateway(ctx, object, original, portico)
	}
	x := d.newExam(object, portico)
	x.walk(ctx, x.hops())
	x.walk(ctx, x.routeHops(ctx)) // its backends may work even if the Service of the APIService does not
	if object.Spec.Service == nil {
		return x.report
	}
	if f := x.frontDoor(ctx); f != nil {
		x.report.FrontDoor = f
		if d := x.report.Broken; d != nil {
			d.Mend = append(slices.Clone(f.Next), d.Mend...)
		}
	}
	return x.report
}

func (d *Doctor) newExam(object *apiregistrationv1.APIService, portico bool) *exam {
	x := &exam{
		Doctor: d, object: object, portico: portico,
		gv: schema.GroupVersion{Group: object.Spec.Group, Version: object.Spec.Version},
		report: &Report{
			APIService: object.Name,
			Available:  conditionOf(object, apiregistrationv1.Available),
		},
	}
	if ref := object.Spec.Service; ref != nil {
		x.report.Service = ref.Namespace + "/" + ref.Name + ":" + itoa(x.port())
	}
	return x
}

func conditionOf(object *apiregistrationv1.APIService, t apiregistrationv1.APIServiceConditionType) Condition {
	if c := apiregistrationhelper.GetAPIServiceConditionByType(object, t); c != nil {
		return Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message}
	}
	return Condition{Status: string(apiregistrationv1.ConditionUnknown)}
}

func (x *exam) hops() []hop {
	return []hop{
		{HopRegistration, x.registration},
		{HopService, x.lookAtService},
		{HopEndpoints, x.endpoints},
		{HopDNS, x.dns},
		{HopTCP, x.tcp},
		{HopTLS, x.tls},
		{HopIdentity, x.identity},
		{HopDiscovery, x.discovery},
		{HopAggregated, x.aggregated},
		{HopOpenAPI, x.openAPI},
		{HopReview, x.review},
		{HopList, x.list},
		{HopWatch, x.watch},
	}
}

// walk examines hops in order. After the failure of a hop that the others depend on, it skips the rest. Otherwise
// only the first failure makes the diagnosis.
func (x *exam) walk(ctx context.Context, hops []hop) {
	blockedBy := ""
	for _, h := range hops {
		var f finding
		switch {
		case x.object.Spec.Service == nil && h.name != HopRegistration:
			continue
		case blockedBy != "":
			f = skipped("after " + blockedBy)
		case ctx.Err() != nil:
			f = unknown("interrupted")
		default:
			f = h.look(ctx)
		}
		f.found = apiservice.SingleLine(f.found)
		x.report.Hops = append(x.report.Hops, Hop{Name: h.name, State: f.state, Found: f.found})
		if f.state != Failed {
			continue
		}
		if f.blocks {
			blockedBy = h.name
		}
		if x.report.Broken == nil {
			f.fix = x.spareSharedService(ctx, f.fix)
			x.report.Broken = x.diagnose(h.name, f)
		}
	}
}

// diagnose uses the message of the condition as the cause if that message is, or may be, about this hop. The report
// then matches `kubectl describe`, the Event and the 503.
func (x *exam) diagnose(hop string, f finding) *Diagnosis {
	d := &Diagnosis{Hop: hop, Cause: f.cause, Found: f.found}
	for _, line := range f.fix {
		d.Mend = append(d.Mend, printable(line))
	}
	d.Cause = cmp.Or(d.Cause, f.found)
	c := x.report.Available
	if said := blame(c.Reason, c.Message); f.blocks && c.Status != string(apiregistrationv1.ConditionTrue) && c.Message != "" && (said == hop || said == "") {
		d.Cause = c.Message
	}
	d.Cause = apiservice.SingleLine(d.Cause)
	if d.Found == d.Cause {
		d.Found = ""
	}
	return d
}

// printable replaces control characters. Unlike a message, a command must not be truncated.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, line)
}
