package aggregator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/auth/satoken"
	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/openapidocs"
	"portico.dev/internal/discovery"
	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/lifecycle"
	"portico.dev/internal/openapi"
	"portico.dev/internal/store"
	"portico.dev/internal/transport"
)

// Rooms on one floor do not know each other. What one offers is handed to the next in the shape that it asks for, here
// and nowhere else.

// routes is the route table as discovery and OpenAPI see it.
func (h *house) routes() remote.Table {
	table := h.apiservices.Table()
	out := remote.Table{Synced: table.Synced(), Routes: make([]remote.Route, 0, len(table.Routes()))}
	for _, r := range table.Routes() {
		out.Routes = append(out.Routes, remoteRoute(r))
	}
	return out
}

func remoteRoute(r *apiservice.Route) remote.Route {
	route := remote.Route{
		GroupVersion: r.GroupVersion, APIService: r.Name, UID: r.UID, Revision: revisionOf(r), Local: r.Local,
		Available: r.Available(), GroupPriority: r.GroupPriority, VersionPriority: r.VersionPriority,
	}
	if !route.Available {
		route.Reason = r.Condition.Reason
	}
	if r.Backend != nil {
		route.Backend = r.Backend
	}
	return route
}

// revisionOf changes when an APIService is pointed at another backend, which may rightly serve less than the one before.
// A new CA bundle is not such a change.
func revisionOf(r *apiservice.Route) string {
	s := r.Service
	if s == nil {
		return ""
	}
	port := int32(443)
	if s.Port != nil {
		port = *s.Port
	}
	return fmt.Sprintf("%s/%s:%d", s.Namespace, s.Name, port)
}

func (h *house) localDiscovery() discovery.Local {
	d := h.core.Discovery()
	return discovery.Local{Core: d.Core, Groups: d.Groups}
}

// served is discovery as namespace finalization sees it: what can hold objects of a namespace, and who is to blame when
// it cannot be asked.
func (h *house) served() []lifecycle.GroupVersion {
	snapshot := h.discovery.Current()
	if snapshot == nil || !snapshot.Synced() {
		return nil
	}
	table := h.apiservices.Table()
	var out []lifecycle.GroupVersion
	for _, gv := range snapshot.GroupVersions() {
		current := gv.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent
		served := lifecycle.GroupVersion{
			GroupVersion: gv.GroupVersion,
			Resources:    deletable(gv.Resources),
			Known:        gv.Local || current || len(gv.Resources) > 0,
			Current:      current,
			APIService:   gv.APIService,
			Reason:       gv.Reason,
		}
		if route, ok := table.Lookup(gv.GroupVersion); ok && !route.Available() {
			served.Since = route.Condition.LastTransitionTime.Time
		}
		out = append(out, served)
	}
	return out
}

func deletable(resources []apidiscoveryv2.APIResourceDiscovery) []lifecycle.Resource {
	var out []lifecycle.Resource
	for _, r := range resources {
		if r.Scope != apidiscoveryv2.ScopeNamespace || !slices.Contains(r.Verbs, "delete") {
			continue
		}
		out = append(out, lifecycle.Resource{
			Name: r.Resource, List: slices.Contains(r.Verbs, "list"), DeleteCollection: slices.Contains(r.Verbs, "deletecollection"),
		})
	}
	return out
}

// lastKnown keeps what backends last said in etcd, where every replica and the next start find it.
type lastKnown struct{ store *store.Store }

const lastKnownPrefix = "discovery/"

func (l lastKnown) Load(ctx context.Context) (map[string][]byte, error) {
	values, err := l.store.List(ctx, lastKnownPrefix)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(values))
	for key, value := range values {
		out[strings.TrimPrefix(key, lastKnownPrefix)] = value
	}
	return out, nil
}

func (l lastKnown) Save(ctx context.Context, name string, value []byte) error {
	return l.store.Put(ctx, lastKnownPrefix+name, value)
}

func (l lastKnown) Delete(ctx context.Context, name string) error {
	return l.store.Delete(ctx, lastKnownPrefix+name)
}

func (h *house) ownAddresses() []string { return []string{h.listener.Addr().String()} }

// reportFailure lets the prober look at once when traffic meets a failure.
func (h *house) reportFailure(b *transport.Backend, _ error) { h.apiservices.ReportFailure(b) }

// localDocuments are the OpenAPI documents of the local groups, prepared when the program was built.
func localDocuments() []openapi.Document {
	prepared := openapidocs.Documents()
	out := make([]openapi.Document, 0, len(prepared))
	for _, d := range prepared {
		out = append(out, openapi.Document{Path: d.Path, Hash: d.Hash, Packed: d.Packed})
	}
	return out
}

// issuer signs tokens for the local groups.
type issuer struct{ tokens *satoken.Tokens }

func (i issuer) IssueToken(ctx context.Context, subject coreapi.TokenSubject, audiences []string, lifetime time.Duration) (coreapi.IssuedToken, error) {
	seconds := int64(lifetime / time.Second)
	request := satoken.IssueRequest{
		Namespace: subject.Account.Namespace, Name: subject.Account.Name, UID: subject.Account.UID,
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds, BoundObjectRef: boundTo(subject)},
	}
	token, expires, err := i.tokens.Issue(ctx, request)
	if err != nil {
		return coreapi.IssuedToken{}, err
	}
	if len(audiences) == 0 {
		audiences = i.tokens.Audiences()
	}
	return coreapi.IssuedToken{Token: token, Expires: expires, Audiences: audiences}, nil
}

func boundTo(s coreapi.TokenSubject) *authenticationv1.BoundObjectReference {
	switch {
	case s.Pod != nil:
		return &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: s.Pod.Name, UID: s.Pod.UID}
	case s.Secret != nil:
		return &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: s.Secret.Name, UID: s.Secret.UID}
	case s.Node != nil:
		return &authenticationv1.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: s.Node.Name, UID: s.Node.UID}
	}
	return nil
}
