package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/pki"
)

// lookAtService checks the Service and reads its EndpointSlices, because apiservice.Resolve judges both together.
func (x *exam) lookAtService(ctx context.Context) finding {
	ref := x.object.Spec.Service
	var service corev1.Service
	err := x.api.get(ctx, namespacePath(ref.Namespace)+"/services/"+url.PathEscape(ref.Name), &service)
	switch {
	case apierrors.IsNotFound(err):
		_, x.problem = apiservice.Resolve(&x.object.Spec, nil, nil, true)
		return broken(x.problem.Message, x.withoutService(ctx)...)
	case err != nil:
		return unknown("the Service cannot be read: " + err.Error())
	}
	x.service = &service
	if err := x.readSlices(ctx); err != nil {
		return unknown("the EndpointSlices cannot be read: " + err.Error())
	}
	x.readEndpoints(ctx)
	x.spec, x.problem = apiservice.Resolve(&x.object.Spec, x.service, x.slices, true)
	if x.problem != nil && blame(x.problem.Reason, x.problem.Message) == HopService {
		return broken(x.problem.Message, x.otherPort()...)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		x.slices = nil // leftovers that are not used
		if !x.answered(ctx) && strings.Contains(x.availableMessage(ctx), "unsupported service type") {
			return broken("the API server takes the endpoints of Services (--enable-aggregator-routing) and follows no ExternalName", x.withEndpoints()...).saying(x.availableMessage(ctx))
		}
		return ok(fmt.Sprintf("ExternalName %s, port %d", service.Spec.ExternalName, x.port()))
	}
	return ok(fmt.Sprintf("%s, port %d is %s", typeOf(&service), x.port(), describePort(&service, x.port())))
}

func (x *exam) readSlices(ctx context.Context) error {
	ref := x.object.Spec.Service
	var list discoveryv1.EndpointSliceList
	query := url.Values{"labelSelector": {labels.Set{discoveryv1.LabelServiceName: ref.Name}.String()}}
	err := x.api.get(ctx, "/apis/discovery.k8s.io/v1/namespaces/"+url.PathEscape(ref.Namespace)+"/endpointslices?"+query.Encode(), &list)
	if err != nil {
		return err
	}
	for i := range list.Items {
		x.slices = append(x.slices, &list.Items[i])
	}
	return nil
}

// readEndpoints reads the Endpoints of a Service that has no usable EndpointSlices. A front door uses them like the
// slices that they would be mirrored into. Other API servers rely on the mirroring by kube-controller-manager. An
// error counts as no Endpoints, because most Services have none.
func (x *exam) readEndpoints(ctx context.Context) {
	ref := x.object.Spec.Service
	//lint:ignore SA1019 deprecated, and still written for Services without selector
	var endpoints corev1.Endpoints
	if x.service.Spec.Type == corev1.ServiceTypeExternalName || !apiservice.UsesEndpoints(x.service, x.port(), x.slices) ||
		x.api.get(ctx, namespacePath(ref.Namespace)+"/endpoints/"+url.PathEscape(ref.Name), &endpoints) != nil {
		return
	}
	x.endpointsObject = &endpoints
	if made := apiservice.MirrorEndpoints(x.service, &endpoints); x.portico && len(made) > 0 {
		x.slices, x.mirrored = append(x.slices, made...), true
	}
}

// withoutService returns the fix for a missing Service: refer to the only other Service with that port, if there is
// one, or delete an APIService that an uninstall left behind.
func (x *exam) withoutService(ctx context.Context) []string {
	ref := x.object.Spec.Service
	var fix []string
	var list corev1.ServiceList
	if x.api.get(ctx, namespacePath(ref.Namespace)+"/services", &list) == nil {
		list.Items = slices.DeleteFunc(list.Items, func(s corev1.Service) bool {
			return !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == x.port() })
		})
		if len(list.Items) == 1 {
			fix = append(fix, fmt.Sprintf("# if %s is the one that was meant, the only Service there with port %d:", list.Items[0].Name, x.port()),
				x.patchAPIService(fields{"service": fields{"name": list.Items[0].Name}}))
		}
	}
	return append(fix, "# if the extension server was removed:", Kubectl("delete", "apiservice", x.object.Name))
}

// withEndpoints returns commands that replace an ExternalName.
func (x *exam) withEndpoints() []string {
	ref := x.object.Spec.Service
	return []string{
		x.inNamespace("patch", "service", ref.Name, "--type=merge", "-p", patch(fields{"spec": fields{
			"type": corev1.ServiceTypeClusterIP, "externalName": nil, "ports": []fields{{"name": "https", "port": x.port(), "protocol": corev1.ProtocolTCP}},
		}})),
		"# then an EndpointSlice labelled " + discoveryv1.LabelServiceName + "=" + ref.Name + ", with a port named https and the address of the extension server",
	}
}

// otherPort returns the fix for a Service without the port.
func (x *exam) otherPort() []string {
	ref := x.object.Spec.Service
	ports := x.service.Spec.Ports
	switch {
	case x.service.Spec.Type == corev1.ServiceTypeExternalName:
		return []string{x.inNamespace("patch", "service", ref.Name, "--type=merge", "-p", patch(fields{"spec": fields{"externalName": "HOST"}}))}
	case len(ports) == 0:
		return []string{x.inNamespace("edit", "service", ref.Name)}
	}
	choice := ports[0]
	if i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return p.Port == 443 || strings.HasPrefix(p.Name, "https") }); i >= 0 {
		choice = ports[i]
	}
	return []string{x.patchAPIService(fields{"service": fields{"port": choice.Port}})}
}

func namespacePath(ns string) string { return "/api/v1/namespaces/" + url.PathEscape(ns) }

func typeOf(s *corev1.Service) string {
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		return "headless"
	}
	if s.Spec.Type == "" {
		return string(corev1.ServiceTypeClusterIP)
	}
	return string(s.Spec.Type)
}

func describePort(s *corev1.Service, number int32) string {
	for _, p := range s.Spec.Ports {
		if p.Port == number && p.Name != "" {
			return fmt.Sprintf("%q", p.Name)
		}
	}
	return "unnamed"
}

// reading returns a short message for a failed read.
func reading(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

const defaultServicePort = 443

func (x *exam) port() int32 { return portNumber(x.object.Spec.Service) }

func portNumber(ref *apiregistrationv1.ServiceReference) int32 {
	if ref.Port != nil {
		return *ref.Port
	}
	return defaultServicePort
}

// registration checks the APIService itself.
func (x *exam) registration(context.Context) finding {
	spec := x.object.Spec
	if spec.Service == nil {
		return ok("the API server serves " + x.gv.String() + " itself")
	}
	switch {
	case spec.InsecureSkipTLSVerify:
		return ok("insecureSkipTLSVerify accepts whoever answers at the Service's address")
	case len(spec.CABundle) == 0:
		return ok("no caBundle: the certificate is verified against the authorities of the API server's machine")
	}
	certs, err := pki.ParseBundle(spec.CABundle)
	if err != nil {
		return broken(apiservice.CABundleMessage(err),
			append([]string{"# ca.crt is the certificate of the authority that signs the serving certificate:", x.setBundle("ca.crt")}, x.injectBundle()...)...)
	}
	var names []string
	for _, c := range certs {
		names = append(names, fmt.Sprintf("%q", nameOf(c)))
	}
	return ok("caBundle holds " + strings.Join(names, ", "))
}
