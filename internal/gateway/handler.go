package gateway

import (
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery"
	"portico.dev/internal/respond"
	"portico.dev/internal/routetable"
)

// handler answers from memory what an API server asks to know a server, and leaves the rest to the router of the front door.
//
// An API server has one question about all group-versions of a Service, /apis, and believes that a group-version has no resources if
// the answer does not list them: namespaces would be finalized with objects in them. So aggregated discovery is refused, with 406 as by a
// server that does not know it, while there is an adopted group-version of which nothing is known yet. The API server then asks for each
// group-version by itself, and each has an answer of its own: what is known, or 503.
//
// A group-version that is not adopted gets 503 and never 404, on which controllers would act: the API server may not have noticed a
// release yet.
type handler struct {
	routes    func() *routetable.Table
	discovery func() *discovery.Snapshot
	router    http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	gv, rest, ok := groupVersionOf(r.URL.Path)
	switch {
	case ok && !h.serves(gv):
		respond.Error(w, r, notAdopted(gv))
	case ok && rest == "" && isRead(r):
		h.serveGroupVersion(w, r, gv)
	case asksAggregated(r) && !h.allKnown():
		respond.Error(w, r, notAggregated())
	default:
		h.router.ServeHTTP(w, r)
	}
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// asksAggregated reports whether a request is for the discovery of all group-versions at once.
func asksAggregated(r *http.Request) bool {
	if !isRead(r) || strings.TrimSuffix(r.URL.Path, "/") != "/apis" {
		return false
	}
	for c := range respond.Clauses(strings.Join(r.Header.Values("Accept"), ",")) {
		if c.Params["as"] == "APIGroupDiscoveryList" {
			return true
		}
	}
	return false
}

func notAggregated() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "no discovery document is known yet of one APIService at least; ask for each group-version",
	}}
}

// groupVersionOf reads /apis/<group>/<version>[/...]. A trailing slash is no rest.
func groupVersionOf(path string) (gv schema.GroupVersion, rest string, ok bool) {
	below, ok := strings.CutPrefix(path, "/apis/")
	parts := strings.SplitN(below, "/", 3)
	if !ok || len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		return schema.GroupVersion{}, "", false
	}
	if len(parts) == 3 {
		rest = parts[2]
	}
	return schema.GroupVersion{Group: parts[0], Version: parts[1]}, rest, true
}

func (h *handler) serves(gv schema.GroupVersion) bool {
	route, ok := h.routes().Lookup(gv)
	return ok && !route.Local
}

// serveGroupVersion serves the last-known document of one group-version, whether its server lives or not: by it an API server decides
// whether it passes requests on, and controllers what there is to be deleted.
func (h *handler) serveGroupVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	known, ok := lookup(h.discovery(), gv)
	if !ok {
		respond.Error(w, r, h.unavailable(gv))
		return
	}
	respond.JSON(w, http.StatusOK, known.ResourceList())
}

// unavailable says why nothing is known of a group-version.
func (h *handler) unavailable(gv schema.GroupVersion) error {
	route, ok := h.routes().Lookup(gv)
	if !ok {
		return notAdopted(gv)
	}
	message := "no discovery document of APIService " + route.Name + " is known yet"
	if c := route.Condition; !route.Available() && c.Reason != "" {
		message += ": its server is unavailable (" + c.Reason + "): " + c.Message
	}
	return unknownYet(message)
}

// lookup returns what is known of a group-version; false if nothing is.
func lookup(s *discovery.Snapshot, gv schema.GroupVersion) (discovery.GroupVersion, bool) {
	if s == nil {
		return discovery.GroupVersion{}, false
	}
	known, ok := s.Lookup(gv)
	// A server without a resource is known too, if that is what it says now.
	return known, ok && (len(known.Resources) > 0 || known.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent && known.Reason == "")
}

// allKnown reports whether something is known of every adopted group-version.
func (h *handler) allKnown() bool {
	s := h.discovery()
	for _, route := range h.routes().Routes() {
		if route.Local {
			continue
		}
		if _, ok := lookup(s, route.GroupVersion); !ok {
			return false
		}
	}
	return true
}

func notAdopted(gv schema.GroupVersion) error {
	return unknownYet("this gateway serves no APIService of " + gv.String() + "; `kubectl get apiservices` shows where each one leads")
}

func unknownYet(message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}
