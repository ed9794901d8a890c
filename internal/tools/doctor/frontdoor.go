package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/version"
)

// FrontDoor describes a backend that is not an extension server but another API server, which has its own APIServices
// and forwards the request to its own backend.
type FrontDoor struct {
	// Address is host:port as seen from this machine. It is empty if the server is known only from a response that
	// the API server forwarded.
	Address string `json:"address,omitempty"`
	// Version is the gitVersion of its /version, empty if it is not known.
	Version string `json:"version,omitempty"`
	// Evidence is the reason for this conclusion.
	Evidence string `json:"evidence"`
	// APIService is the APIService of that server that forwards the request.
	APIService string `json:"apiService"`
	// Service is the destination of that APIService as namespace/name:port. It is empty if it cannot be read or that
	// server serves the group-version itself.
	Service string `json:"service,omitempty"`
	// Available is the condition of that APIService, nil if this machine cannot read it.
	Available *Condition `json:"available,omitempty"`
	// Next lists command lines for the further examination, and remarks that begin with #.
	Next []string `json:"next"`
}

const registrationGroup = apiregistrationv1.GroupName

// kubernetesVersion matches the gitVersion of a kube-apiserver. Extension servers have different versions, and
// Portico's programs, which all share one version, add a suffix.
var kubernetesVersion = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?(\+[a-z0-9.]+)?$`)

// apiServerName is the DNS name by which pods reach an API server. Only API servers have a certificate for it.
const apiServerName = "kubernetes.default.svc"

// hidden completes the sentence about a server that may have APIServices.
const hidden = ", and it does not tell this caller whether it has APIServices; --proxy-client-cert-file lets the doctor ask as the API server does"

// forwards returns the APIService named in a Status about a backend that cannot serve a request, or an empty string
// for any other Status. Only a server that forwards requests sends such a Status.
func forwards(s *metav1.Status) string {
	if s == nil || s.Status == metav1.StatusSuccess || s.Details == nil || s.Details.Kind != "APIService" || s.Details.Group != registrationGroup {
		return ""
	}
	return s.Details.Name
}

// passedOn records an error that the API server forwarded from the backend and that only a front door sends. An API
// server of this project sends such errors itself, except for a loop: it would have refused the request without
// contacting the backend.
func (x *exam) passedOn(a answer) {
	if a.err == nil && forwards(a.status()) != "" && (!x.portico || a.code == http.StatusLoopDetected) {
		x.fromFrontDoor = a.status()
	}
}

// frontDoor determines whether the backend is a front door, from its responses to this machine and from responses
// that the API server forwarded. It returns nil without such indications.
func (x *exam) frontDoor(ctx context.Context) *FrontDoor {
	f := &FrontDoor{APIService: x.object.Name}
	certain, message := false, ""
	say := func(name, evidence string) {
		if !certain {
			certain, f.Evidence = true, evidence
		}
		if name != "" {
			f.APIService = apiservice.SingleLine(name)
		}
	}
	if s := x.fromFrontDoor; s != nil {
		say(s.Details.Name, fmt.Sprintf("it answers %d with an error about an APIService of its own", s.Code))
		message = s.Message
	}
	// A server that does not answer the first request gets no further ones, because each would wait for its deadline.
	if len(x.dialled) > 0 && x.reachable() && x.probe(ctx).err == nil {
		f.Address = x.dialled[0]
		if s := x.probe(ctx).status(); forwards(s) != "" {
			say(s.Details.Name, fmt.Sprintf("asked from here, it answers %d with an error about an APIService of its own", s.Code))
			message = s.Message
		}
		var resources metav1.APIResourceList
		a := x.askBackend(ctx, "/apis/"+registrationGroup+"/v1")
		if a.passed() && json.Unmarshal(a.body, &resources) == nil && resources.GroupVersion == registrationGroup+"/v1" &&
			slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "apiservices" }) {
			say("", "it serves "+registrationGroup+"/v1 itself")
		}
		var info apiversion.Info
		if v := x.askBackend(ctx, "/version"); v.passed() && json.Unmarshal(v.body, &info) == nil {
			f.Version = apiservice.SingleLine(info.GitVersion)
		}
		switch {
		case certain || a.err != nil || a.code != http.StatusUnauthorized && a.code != http.StatusForbidden:
		case x.seen != nil && x.seen.Chain[0].VerifyHostname(apiServerName) == nil:
			f.Evidence = "its certificate is one of an API server, for " + apiServerName + hidden
		case kubernetesVersion.MatchString(info.GitVersion):
			f.Evidence = "its /version is that of a Kubernetes API server" + hidden
		}
	}
	if f.Evidence == "" {
		return nil
	}
	if certain && f.Address != "" {
		x.readBehind(ctx, f)
	}
	if message != "" && f.Available == nil { // otherwise the condition contains the message
		f.Evidence += ": " + message
	}
	f.Evidence = apiservice.SingleLine(f.Evidence)
	f.Next = x.examineThere(f, certain)
	return f
}

// reachable reports whether requests from this machine can reach the backend, because no earlier hop failed.
func (x *exam) reachable() bool {
	for _, h := range x.report.Hops {
		if h.State == Failed && slices.Contains([]string{HopRegistration, HopService, HopEndpoints, HopDNS, HopTCP, HopTLS}, h.Name) {
			return false
		}
	}
	return x.spec != nil
}

// readBehind reads the APIService of the other front door if permitted, which usually requires the front proxy's
// certificate.
func (x *exam) readBehind(ctx context.Context, f *FrontDoor) {
	var object apiregistrationv1.APIService
	if x.askBackend(ctx, apiServicesPath+"/"+url.PathEscape(f.APIService)).decode(&object) != nil {
		return
	}
	if ref := object.Spec.Service; ref != nil {
		f.Service = apiservice.SingleLine(ref.Namespace + "/" + ref.Name + ":" + itoa(portNumber(ref)))
	}
	f.Available = &Condition{Status: string(apiregistrationv1.ConditionUnknown)}
	if c := apiregistrationhelper.GetAPIServiceConditionByType(&object, apiregistrationv1.Available); c != nil {
		f.Available = &Condition{Status: string(c.Status), Reason: c.Reason, Message: apiservice.SingleLine(c.Message)}
	}
}

// examineThere returns the commands to continue the examination at the other front door.
func (x *exam) examineThere(f *FrontDoor, certain bool) []string {
	is := "is itself a front door"
	if !certain {
		is = "may itself be a front door"
	}
	at, where := "the backend", "that server"
	if f.Address != "" {
		at, where = "the backend at "+f.Address, "https://"+f.Address
	}
	out := []string{"# " + at + " " + is + "; the APIService behind is examined there. KUBECONFIG is a kubeconfig for " + where + ":",
		version.Program + " doctor apiservice " + quote(f.APIService) + " --kubeconfig=KUBECONFIG"}
	if s := x.fromFrontDoor; s != nil && s.Code == http.StatusLoopDetected {
		out = append(out, "# a front door forwards no request that a front door has forwarded already; register here the server that the APIService there leads to")
	}
	for i := range out {
		out[i] = printable(out[i])
	}
	return out
}

// describe returns a one-sentence description.
func (f *FrontDoor) describe() string {
	var b strings.Builder
	b.WriteString("APIService " + f.APIService)
	if f.Service != "" {
		b.WriteString(" -> " + f.Service)
	}
	if f.Address != "" {
		b.WriteString(" at " + f.Address)
	}
	if f.Version != "" {
		b.WriteString(" (" + f.Version + ")")
	}
	if c := f.Available; c != nil {
		b.WriteString(", Available is " + c.Status)
		if c.Message != "" && c.Status != string(apiregistrationv1.ConditionTrue) {
			b.WriteString(": " + c.Message)
		}
	}
	return b.String() + "; " + f.Evidence
}
