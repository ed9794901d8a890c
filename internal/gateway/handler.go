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

// handler serves the discovery requests of an API server from memory, and passes all other requests to the front
// door's router.
//
// An API server sends one request, /apis, for all group-versions of a Service. If the response does not contain a
// group-version, the API server assumes that it has no resources: namespaces would be finalized with objects in them.
// Therefore handler refuses aggregated discovery, with the 406 of a server that does not support it, while the
// resources of any adopted group-version are unknown. The API server then requests each group-version separately, and
// the response is either the known resources or a 503.
//
// A group-version that is not adopted gets a 503 and never a 404, on which controllers would act: the API server may
// not have noticed a release yet.
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

// groupVersionOf parses /apis/<group>/<version>[/...]. rest is empty for a trailing slash.
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

// serveGroupVersion serves the last-known document of one group-version, regardless of the state of its server. From
// it an API server decides whether it forwards requests, and controllers determine which objects to delete.
func (h *handler) serveGroupVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	known, ok := lookup(h.discovery(), gv)
	if !ok {
		respond.Error(w, r, h.unavailable(gv))
		return
	}
	respond.JSON(w, http.StatusOK, known.ResourceList())
}

// unavailable returns the reason why a group-version is unknown.
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

// lookup returns the known resources of a group-version. It returns false if they are unknown.
func lookup(s *discovery.Snapshot, gv schema.GroupVersion) (discovery.GroupVersion, bool) {
	if s == nil {
		return discovery.GroupVersion{}, false
	}
	known, ok := s.Lookup(gv)
	// A server without resources is also known, if its current document is empty.
	return known, ok && (len(known.Resources) > 0 || known.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent && known.Reason == "")
}

// allKnown reports whether the resources of every adopted group-version are known.
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
