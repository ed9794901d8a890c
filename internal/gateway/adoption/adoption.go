package adoption

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/pki"
)

// Annotations of an APIService behind a gateway. They hold its original server, which a release restores.
//
//reference:annotations Annotations of an APIService behind a gateway
const (
	// OriginalServiceAnnotation is the Service of the extension server, as namespace/name or namespace/name:port; the
	// default port is 443. A gateway serves exactly the APIServices with this annotation.
	OriginalServiceAnnotation = "gateway.portico.dev/original-service"
	// OriginalCABundleAnnotation is the caBundle for that Service, in base64 as in spec.caBundle. Without it, the
	// system roots verify the certificate of the extension server.
	OriginalCABundleAnnotation = "gateway.portico.dev/original-ca-bundle"
	// OriginalInsecureAnnotation set to "true" accepts any certificate of the extension server, like
	// insecureSkipTLSVerify.
	OriginalInsecureAnnotation = "gateway.portico.dev/original-insecure-skip-tls-verify"
)

// Conditions that a gateway writes to the status of an APIService. The API server writes the condition Available,
// which reports whether it reaches the gateway.
//
//reference:conditions Conditions of an APIService behind a gateway
const (
	// BackendAvailable reports whether the gateway reaches the extension server. Its reasons and messages are the
	// same as in the condition Available of a front door.
	BackendAvailable apiregistrationv1.APIServiceConditionType = "BackendAvailable"
	// FrontProxyTrusted reports whether the extension server trusts the gateway's front-proxy certificate.
	FrontProxyTrusted apiregistrationv1.APIServiceConditionType = "FrontProxyTrusted"
)

// annotations lists the annotations of an adoption.
func annotations() []string {
	return []string{OriginalServiceAnnotation, OriginalCABundleAnnotation, OriginalInsecureAnnotation}
}

// Service is a port of a Service.
type Service struct {
	Namespace, Name string
	Port            int32
}

const defaultPort = 443

func (s Service) String() string {
	return s.Namespace + "/" + net.JoinHostPort(s.Name, strconv.Itoa(int(s.Port)))
}

// ServerName returns the DNS name in the certificate of the Service.
func (s Service) ServerName() string { return s.Name + "." + s.Namespace + ".svc" }

// Reference returns the Service as a reference in an APIService.
func (s Service) Reference() *apiregistrationv1.ServiceReference {
	return &apiregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Port: &s.Port}
}

// ServiceOf returns the Service of a reference.
func ServiceOf(ref *apiregistrationv1.ServiceReference) Service {
	s := Service{Namespace: ref.Namespace, Name: ref.Name, Port: defaultPort}
	if ref.Port != nil {
		s.Port = *ref.Port
	}
	return s
}

// ParseService parses namespace/name or namespace/name:port.
func ParseService(text string) (Service, error) {
	s := Service{Port: defaultPort}
	namespace, rest, found := strings.Cut(strings.TrimSpace(text), "/")
	if !found {
		return s, fmt.Errorf("%.128q is not of the form namespace/name:port", text)
	}
	s.Namespace, s.Name = namespace, rest
	if name, port, has := strings.Cut(rest, ":"); has {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return s, fmt.Errorf("%.128q: the port is not a number from 1 to 65535", text)
		}
		s.Name, s.Port = name, int32(n)
	}
	if why := slices.Concat(validation.IsDNS1123Label(s.Namespace), validation.IsDNS1123Label(s.Name)); len(why) > 0 {
		return s, fmt.Errorf("%.128q is not of the form namespace/name:port: %s", text, strings.Join(why, "; "))
	}
	return s, nil
}

// Original is the server of an APIService without the gateway.
type Original struct {
	Service               Service
	CABundle              []byte
	InsecureSkipTLSVerify bool
}

// Adopted reports whether the APIService has the annotation that makes a gateway serve it. It does not validate the
// annotation.
func Adopted(o *apiregistrationv1.APIService) bool {
	_, ok := o.Annotations[OriginalServiceAnnotation]
	return ok
}

// OriginalOf parses the annotations. It returns an error if they are missing or refer to the gateway itself.
func (g Service) OriginalOf(o *apiregistrationv1.APIService) (Original, error) {
	original, err := OriginalOf(o)
	if err == nil && original.Service.Namespace == g.Namespace && original.Service.Name == g.Name {
		err = fmt.Errorf("%s: leads back to the gateway itself; it must name the Service of the extension server", OriginalServiceAnnotation)
	}
	return original, err
}

// OriginalOf parses the annotations. It returns an error if they are missing.
func OriginalOf(o *apiregistrationv1.APIService) (original Original, err error) {
	text, ok := o.Annotations[OriginalServiceAnnotation]
	if !ok {
		return original, fmt.Errorf("it has no annotation %s", OriginalServiceAnnotation)
	}
	if original.Service, err = ParseService(text); err != nil {
		return original, fmt.Errorf("%s: %w", OriginalServiceAnnotation, err)
	}
	switch insecure := strings.TrimSpace(o.Annotations[OriginalInsecureAnnotation]); insecure {
	case "", "false":
	case "true":
		original.InsecureSkipTLSVerify = true
	default:
		return original, fmt.Errorf(`%s: %.64q is neither "true" nor "false"`, OriginalInsecureAnnotation, insecure)
	}
	bundle := strings.TrimSpace(o.Annotations[OriginalCABundleAnnotation])
	if bundle == "" {
		return original, nil
	}
	if original.InsecureSkipTLSVerify {
		return original, fmt.Errorf("%s: excludes %s", OriginalInsecureAnnotation, OriginalCABundleAnnotation)
	}
	if original.CABundle, err = base64.StdEncoding.DecodeString(bundle); err != nil {
		return original, fmt.Errorf("%s: is not base64: %w", OriginalCABundleAnnotation, err)
	}
	if _, err := pki.ParseBundle(original.CABundle); err != nil {
		return original, fmt.Errorf("%s: %w", OriginalCABundleAnnotation, err)
	}
	return original, nil
}

// Fronts reports whether the API server sends requests for the APIService to this gateway.
func (g Service) Fronts(o *apiregistrationv1.APIService) bool {
	return o.Spec.Service != nil && ServiceOf(o.Spec.Service) == g
}

// FrontedElsewhere reports whether an adopted APIService refers to a different gateway. The server in its annotations
// then belongs to that gateway.
func (g Service) FrontedElsewhere(o *apiregistrationv1.APIService) bool {
	original, err := g.OriginalOf(o)
	return err == nil && o.Spec.Service != nil && !g.Fronts(o) && ServiceOf(o.Spec.Service) != original.Service
}

// rewriters are annotations that make other programs write spec.caBundle. These programs would replace the gateway's
// authority with the server's.
var rewriters = []string{"cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret", "cert-manager.io/inject-apiserver-ca", "service.beta.openshift.io/inject-cabundle"}

// Prepare stores the server of an APIService in its annotations and does not change its spec. The gateway then
// monitors the server, but receives no requests for it yet. Prepare does not change an APIService that this gateway
// already serves.
func (g Service) Prepare(o *apiregistrationv1.APIService) error {
	switch {
	case o.Spec.Service == nil:
		return errors.New("the API server serves it itself; only APIServices with a Service can be adopted")
	case o.Labels["kube-aggregator.kubernetes.io/automanaged"] != "":
		return errors.New("the API server manages it, and would revert every change")
	case g.Fronts(o):
		_, err := g.OriginalOf(o)
		return err
	}
	for _, annotation := range rewriters {
		if o.Annotations[annotation] != "" {
			return fmt.Errorf("its annotation %s has another program write spec.caBundle, which would replace the gateway's authority; move the authority of the server into annotation %s, and remove that one",
				annotation, OriginalCABundleAnnotation)
		}
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	for _, a := range annotations() {
		delete(o.Annotations, a)
	}
	o.Annotations[OriginalServiceAnnotation] = ServiceOf(o.Spec.Service).String()
	if len(o.Spec.CABundle) > 0 {
		o.Annotations[OriginalCABundleAnnotation] = base64.StdEncoding.EncodeToString(o.Spec.CABundle)
	}
	if o.Spec.InsecureSkipTLSVerify {
		o.Annotations[OriginalInsecureAnnotation] = "true"
	}
	_, err := g.OriginalOf(o)
	return err
}

// Adopt makes the API server send the requests for a prepared APIService to the gateway. caBundle verifies the
// gateway's serving certificate.
func (g Service) Adopt(o *apiregistrationv1.APIService, caBundle []byte) error {
	if _, err := g.OriginalOf(o); err != nil {
		return err
	}
	o.Spec.Service, o.Spec.CABundle, o.Spec.InsecureSkipTLSVerify = g.Reference(), caBundle, false
	return nil
}

// KeepBundle sets the bundle that verifies the gateway in an APIService that refers to this gateway. If the current
// bundle has a different authority, an operator or controller has replaced the server's authority in the usual field,
// so KeepBundle moves it to the annotation. It reports whether it changed the object.
func (g Service) KeepBundle(o *apiregistrationv1.APIService, bundle []byte) (changed bool) {
	if !g.Fronts(o) || !Adopted(o) || o.Spec.InsecureSkipTLSVerify || bytes.Equal(o.Spec.CABundle, bundle) {
		return false
	}
	if certs, err := pki.ParseBundle(o.Spec.CABundle); err == nil && !slices.ContainsFunc(certs, g.isServingAuthority) {
		o.Annotations[OriginalCABundleAnnotation] = base64.StdEncoding.EncodeToString(o.Spec.CABundle)
		delete(o.Annotations, OriginalInsecureAnnotation)
	}
	o.Spec.CABundle = bundle
	return true
}

// isServingAuthority reports whether c is a current or former authority of this gateway.
func (g Service) isServingAuthority(c *x509.Certificate) bool {
	return c.Subject.CommonName == g.ServingAuthorityName()
}

// Release undoes Prepare and Adopt, for any gateway, and removes the gateway's conditions. The conditions are in the
// status, which must be updated separately. It reports whether it changed the object.
func Release(o *apiregistrationv1.APIService) (released bool, err error) {
	if !Adopted(o) {
		return false, nil
	}
	original, err := OriginalOf(o)
	if err != nil {
		return false, err
	}
	o.Spec.Service, o.Spec.CABundle, o.Spec.InsecureSkipTLSVerify = original.Service.Reference(), original.CABundle, original.InsecureSkipTLSVerify
	for _, a := range annotations() {
		delete(o.Annotations, a)
	}
	RemoveConditions(o)
	return true, nil
}

// written lists the conditions that a gateway's routing table writes in addition to BackendAvailable. A front door
// writes them too.
var written = []apiregistrationv1.APIServiceConditionType{
	"CABundleValid", "ServingCertExpiring", "Orphaned", "AnnotationsValid", "OpenAPIValid", "TLSVerified", "HidesLocalResources",
	"AvailableOnAllReplicas", "EndpointsInUse",
}

// RemoveConditions removes a gateway's conditions from the status and reports whether there were any.
func RemoveConditions(o *apiregistrationv1.APIService) bool {
	ours := func(c apiregistrationv1.APIServiceCondition) bool {
		return c.Type == BackendAvailable || c.Type == FrontProxyTrusted
	}
	if !slices.ContainsFunc(o.Status.Conditions, ours) {
		return false
	}
	o.Status.Conditions = slices.DeleteFunc(o.Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool {
		return ours(c) || slices.Contains(written, c.Type)
	})
	return true
}

// Condition returns a condition of the status, and whether it is present.
func Condition(o *apiregistrationv1.APIService, t apiregistrationv1.APIServiceConditionType) (apiregistrationv1.APIServiceCondition, bool) {
	i := slices.IndexFunc(o.Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool { return c.Type == t })
	if i < 0 {
		return apiregistrationv1.APIServiceCondition{Type: t, Status: apiregistrationv1.ConditionUnknown}, false
	}
	return o.Status.Conditions[i], true
}
