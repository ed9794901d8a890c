package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"portico.dev/internal/filters"
	"portico.dev/internal/merge"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
	"portico.dev/internal/routetable"
	"portico.dev/internal/routing"
	"portico.dev/internal/routing/v1alpha1"
)

// BackendHeader names the backend of an APIRoute that gets a request, whatever the rules say. It is for those who may migrate the APIRoute, who
// copy objects from one backend to another, and for the controllers of the front door.
const BackendHeader = "X-Portico-Backend"

// migrateVerb is the verb that a user needs for the APIRoute to send BackendHeader.
const migrateVerb = "migrate"

// custom reports whether a choice is the custom resources of the group-version.
func custom(route *routetable.Route, c routing.Choice) bool {
	return c.Backend == route.Routing.CustomResources()
}

// chosenBackend returns the place of the backend that a request names by BackendHeader, -1 if it names none. False: it was refused.
func (s *Router) chosenBackend(w http.ResponseWriter, r *filters.Request, route *routetable.Route) (backend int, ok bool) {
	names := r.Header[BackendHeader]
	if len(names) == 0 {
		return -1, true
	}
	who := r.User
	gr := v1alpha1.GroupVersion.WithResource("apiroutes").GroupResource()
	if who == nil || !slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) && !s.mayMigrate(r.Context(), &authorizer.AttributesRecord{
		User: who, Verb: migrateVerb, APIGroup: gr.Group, APIVersion: v1alpha1.GroupVersion.Version, Resource: gr.Resource, Name: route.Name, ResourceRequest: true,
	}) {
		respond.Error(w, r.Request, apierrors.NewForbidden(gr, route.Name, fmt.Errorf("the header %s needs the verb %q for the APIRoute", BackendHeader, migrateVerb)))
		return 0, false
	}
	at := slices.IndexFunc(route.Routing.Backends, func(b v1alpha1.APIRouteBackend) bool { return b.Name == names[0] })
	if at < 0 {
		respond.Error(w, r.Request, apierrors.NewBadRequest(fmt.Sprintf("%s: APIRoute %s has no backend %q", BackendHeader, route.Name, names[0])))
		return 0, false
	}
	return at, true
}

func (s *Router) mayMigrate(ctx context.Context, a authorizer.Attributes) bool {
	if s.Authorizer == nil {
		return false
	}
	decision, _, err := s.Authorizer.Authorize(ctx, a)
	return err == nil && decision == authorizer.DecisionAllow
}

// refuseWrite answers a write while the objects are being copied.
func refuseWrite(w http.ResponseWriter, r *filters.Request, route *routetable.Route, c routing.Choice) {
	refusal := apierrors.NewServiceUnavailable(fmt.Sprintf("the objects can be read only while they are being copied to another backend (rule %s of APIRoute %s): try again", c.Rule, route.Name))
	refusal.ErrStatus.Details = retryAfter(1)
	r.Record.Failed(refusal.ErrStatus.Message)
	respond.Error(w, r.Request, refusal)
}

// isCollection reports whether a request is for the objects of a collection.
func isCollection(r *filters.Request) bool {
	info := r.Info
	return (info.Verb == "list" || info.Verb == "watch") && info.Subresource == "" && r.Method == http.MethodGet && r.Header["Upgrade"] == nil
}

// serveCollection answers a list or a watch of objects some of which are custom resources.
func (s *Router) serveCollection(w http.ResponseWriter, r *filters.Request, route *routetable.Route, q *routing.Request, choices []routing.Choice) {
	r.Record.ServedBy = route.Name
	info := r.Info
	if len(choices) > 1 && !s.CustomResource(route.GroupVersion.WithResource(info.Resource)) {
		// No CustomResourceDefinition defines it: all of them are at the others.
		choices = slices.DeleteFunc(choices, func(c routing.Choice) bool { return custom(route, c) })
	}
	c := merge.Collection{ID: string(route.Routing.UID), Epoch: route.Routing.Generation, Lifetime: lifetimeOf("")}
	for _, choice := range choices {
		c.Sources = append(c.Sources, merge.Source{
			Name: route.Routing.Backends[choice.Backend].Name,
			Owns: func(namespace string) bool {
				var room [2]routing.Choice
				of := q.Of(namespace, "")
				return route.Routing.Choose(&of, room[:0])[0].Backend == choice.Backend
			},
			Get: s.source(r, route, choice),
		})
	}
	rec := r.Record
	rec.HoldSeat(info.Verb == "watch")
	defer rec.CancelSeatRelease()
	s.Merger.Serve(w, r.Request, &c, info.Verb == "watch")
}

// source sends lists and watches of the collection that a request is for to one of its backends, as the same user.
func (s *Router) source(r *filters.Request, then *routetable.Route, c routing.Choice) func(context.Context, bool, []string, url.Values) (*http.Response, error) {
	info, who := r.Info, r.User
	header := r.Header.Clone()
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range", "If-Range"} {
		header.Del(name)
	}
	path := "/apis/" + then.GroupVersion.String()
	if info.Namespace != "" {
		path += "/namespaces/" + info.Namespace
	}
	path += "/" + info.Resource
	return func(ctx context.Context, watch bool, accept []string, query url.Values) (*http.Response, error) {
		route, ok := s.Routes().Lookup(then.GroupVersion)
		if !ok || route.Routing == nil || route.Routing.UID != then.Routing.UID || route.Routing.Generation != then.Routing.Generation {
			return nil, merge.Expired("resource version")
		}
		part := *info
		part.Path, part.Verb, part.Name = path, "list", ""
		if watch {
			part.Verb = "watch"
		}
		inner := &request.Context{Context: ctx, Info: &part, User: who, AuditID: r.AuditID, RemoteAddr: r.RemoteAddr, Received: time.Now()}
		sent := &http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query.Encode()}, Host: r.Host, Header: header.Clone(), Body: http.NoBody,
			RemoteAddr: r.RemoteAddr, TLS: r.TLS,
		}
		sent.Header["Accept"] = accept
		return s.InProcess(http.HandlerFunc(func(w http.ResponseWriter, sent *http.Request) {
			s.serveSource(w, &filters.Request{Request: sent, Info: &part, User: who, AuditID: r.AuditID, Record: &filters.Record{}}, route, c)
		})).RoundTrip(sent.WithContext(inner))
	}
}

// serveSource answers a list or a watch of one backend.
func (s *Router) serveSource(w http.ResponseWriter, r *filters.Request, route *routetable.Route, c routing.Choice) {
	part := route.Parts[c.Backend]
	if part.Local {
		if !part.Available() {
			respond.Error(w, r.Request, unavailable(part, r.AuditID))
			return
		}
		s.Local.ServeHTTP(w, r.Request)
		return
	}
	part, target, ok := s.partDestination(r.Context(), route, c)
	if !ok || target.Statement.Header != "" { // another replica would merge it again
		respond.Error(w, r.Request, unavailable(part, r.AuditID))
		return
	}
	target.Fallback, target.Observer = nil, &copyOutcome{}
	s.Proxy.Serve(w, r.Request, target)
}

// isOfElsewhere reports whether a list or a watch goes on from where a client was when the objects were those of a merged collection, which
// this one is not. It was answered then.
func isOfElsewhere(w http.ResponseWriter, r *filters.Request) bool {
	if raw := r.URL.RawQuery; !strings.Contains(raw, "resourceVersion=1") && !strings.Contains(raw, "=merged.") { // nearly always
		return false
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return false
	}
	for _, name := range []string{"resourceVersion", "continue"} {
		if merge.IsPosition(query.Get(name)) {
			respond.Error(w, r.Request, merge.Expired(map[string]string{"resourceVersion": "resource version", "continue": "continue parameter"}[name]))
			return true
		}
	}
	return false
}
