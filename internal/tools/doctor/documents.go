package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
)

const mediaAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// resource is a resource of the group-version that can be listed.
type resource struct {
	name       string
	namespaced bool
	verbs      metav1.Verbs
}

// discovery checks the discovery document of the group-version, which clients read first.
func (x *exam) discovery(ctx context.Context) finding {
	a := x.discoveryAnswer(ctx)
	switch {
	case x.backendStatusCode(ctx) != 0:
		return x.otherDiscovery(x.backendStatusCode(ctx))
	case !x.answered(ctx):
		return x.noDiscovery(ctx, a)
	case !a.passed():
		return x.otherDiscovery(a.code)
	}
	return x.readDiscovery(a)
}

// noDiscovery handles an API server that gets no response, without an explanation in the earlier hops.
func (x *exam) noDiscovery(ctx context.Context, a answer) finding {
	if len(x.dialled) == 0 {
		return broken("the API server gets no answer, and the extension server cannot be asked from here: "+strings.TrimSpace(a.text()), x.lookAtServer()).saying(x.availableMessage(ctx))
	}
	p := x.probe(ctx)
	switch {
	case errors.Is(p.err, context.DeadlineExceeded):
		return broken(fmt.Sprintf("the extension server takes the request and does not answer within %s; a check of the API server waits %s at most", x.cfg.Timeout, x.cfg.checkTimeout), x.lookAtServer()).saying(apiservice.ProbeErrorMessage(x.probeURL(), p.err))
	case p.err != nil:
		return broken("asked from here, the extension server does not answer either", x.lookAtServer()).saying(apiservice.ProbeErrorMessage(x.probeURL(), p.err))
	}
	if limit, what := x.patience(); p.took > limit {
		return broken(fmt.Sprintf("the extension server is too slow: asked from here, it answers %d after %s, and %s %s at most",
			p.code, p.took.Round(10*time.Millisecond), what, limit), x.lookAtServer()).saying(x.availableMessage(ctx))
	}
	return broken(fmt.Sprintf("asked from here, the extension server answers %d; the API server gets no answer: something between the two is in the way", p.code),
		x.inNamespace("get", "networkpolicies"), x.lookAtServer()).saying(x.availableMessage(ctx))
}

// patience returns how long a server may take before it counts as unavailable, and a description of that limit. A
// front door and a gateway mark a server that leaves all requests unanswered as unavailable before a check times out.
func (x *exam) patience() (limit time.Duration, what string) {
	if x.cfg.checkTimeout > apiservice.HungTimeout && (x.portico || x.report.Gateway != nil) {
		return apiservice.HungTimeout, "a server may leave all requests unanswered for"
	}
	return x.cfg.checkTimeout, "a check of the API server waits"
}

// otherDiscovery handles a response with an unexpected status code.
func (x *exam) otherDiscovery(code int) finding {
	found := fmt.Sprintf("the extension server answers %d to %s", code, apiservice.DiscoveryPath(x.gv))
	fix := []string{x.lookAtServer()}
	switch {
	case code == http.StatusNotFound:
		found = fmt.Sprintf("the extension server does not serve %s: it answers 404", x.gv)
		fix = []string{"# if it serves another version now, and that has an APIService of its own:", Kubectl("delete", "apiservice", x.object.Name)}
	case code >= 300 && code < 400:
		found += ", a redirect, which no API server follows"
	}
	return broken(found, fix...).saying(apiservice.ProbeStatusMessage(x.probeURL(), code))
}

// readDiscovery checks the contents of the document. The API server's check ignores them, so only clients notice
// these faults.
func (x *exam) readDiscovery(a answer) finding {
	var list metav1.APIResourceList
	body := bytes.TrimSpace(a.body)
	path := apiservice.DiscoveryPath(x.gv)
	wrong := ""
	switch {
	case len(body) == 0:
		wrong = "is empty"
	case body[0] == '<':
		wrong = "is HTML: a web server or a login page answers, not an extension server"
	case json.Unmarshal(body, &list) != nil:
		wrong = "is not JSON"
	case list.Kind != "APIResourceList":
		wrong = fmt.Sprintf("is of kind %q, not APIResourceList", list.Kind)
	case list.GroupVersion != x.gv.String():
		wrong = fmt.Sprintf("is of %q, not of %q: the Service leads to another extension server", list.GroupVersion, x.gv)
	}
	switch {
	case wrong != "" && list.GroupVersion != "":
		return broken("the answer to "+path+" "+wrong, Kubectl("get", "--raw", path),
			"# SERVICE is the one of the extension server of "+x.gv.String()+":", x.patchAPIService(fields{"service": fields{"name": "SERVICE"}}))
	case wrong != "":
		return broken("the answer to "+path+" "+wrong, append([]string{Kubectl("get", "--raw", path)}, x.redirectCommands()...)...)
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			x.resources = append(x.resources, resource{r.Name, r.Namespaced, r.Verbs})
		}
	}
	return ok(x.gv.String() + " has " + some(len(x.resources), "resource"))
}

// aggregated checks the aggregated discovery document, which current clients read.
func (x *exam) aggregated(ctx context.Context) finding {
	path := "/apis"
	if x.gv.Group == "" {
		path = "/api"
	}
	a := x.api.send(ctx, http.MethodGet, path, mediaAggregated, nil)
	var list apidiscoveryv2.APIGroupDiscoveryList
	switch {
	case !a.passed():
		return unknown(path + ": " + strings.TrimSpace(a.text()))
	case json.Unmarshal(a.body, &list) != nil || list.Kind != "APIGroupDiscoveryList":
		return unknown("the API server offers none")
	}
	again := []string{"# it is fetched again within a minute; if that does not help, what the extension server says of itself:",
		Kubectl("get", "--raw", apiservice.DiscoveryPath(x.gv))}
	for _, group := range list.Items {
		for _, v := range group.Versions {
			switch {
			case group.Name != x.gv.Group || v.Version != x.gv.Version:
			case v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale:
				return flawed("the API server has it as Stale: clients leave its kinds out, and the deletion of namespaces may wait for it", again...)
			case len(v.Resources) == 0 && len(x.resources) > 0:
				return flawed(fmt.Sprintf("the API server lists no resources, the extension server %d", len(x.resources)), again...)
			default:
				return ok("Current, with " + some(len(v.Resources), "resource"))
			}
		}
	}
	return flawed("the API server does not list "+x.gv.String(), again...)
}

// openAPI checks the document that clients use for validation and `kubectl explain`.
func (x *exam) openAPI(ctx context.Context) finding {
	for _, c := range x.object.Status.Conditions {
		if c.Type == "OpenAPIValid" && c.Status == apiregistrationv1.ConditionFalse {
			return flawed(c.Message, x.lookAtServer())
		}
	}
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := x.api.get(ctx, "/openapi/v3", &index); err != nil {
		return unknown("the API server's index cannot be read: " + reading(err))
	}
	entry, listed := index.Paths[strings.TrimPrefix(apiservice.DiscoveryPath(x.gv), "/")]
	if !listed || !strings.HasPrefix(entry.ServerRelativeURL, "/openapi/v3/") {
		return unknown("there is no document: the extension server has none, or it was not read yet; kubectl explain knows nothing of these kinds")
	}
	a := x.api.send(ctx, http.MethodGet, entry.ServerRelativeURL, mediaJSON, nil)
	look := []string{Kubectl("get", "--raw", entry.ServerRelativeURL), x.lookAtServer()}
	var document struct {
		OpenAPI string                     `json:"openapi"`
		Paths   map[string]json.RawMessage `json:"paths"`
	}
	switch {
	case !a.passed():
		return flawed(fmt.Sprintf("the document is listed and cannot be read: %s", answered(a)), look...)
	case json.Unmarshal(a.body, &document) != nil, !strings.HasPrefix(document.OpenAPI, "3."):
		return flawed("what is served as the document is no OpenAPI v3 document", look...)
	}
	return ok(some(len(document.Paths), "path"))
}

// answered formats a response.
func answered(a answer) string {
	if a.err != nil {
		return a.err.Error()
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", a.code, a.text()))
}
